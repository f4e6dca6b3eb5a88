#include "runtime/trace.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/progress.h"
#include "runtime/engine_cli.h"
#include "runtime/evaluation.h"
#include "runtime/route_recorder.h"
#include "runtime/text/tokenizer.h"

namespace tierpack {

namespace {

constexpr uint64_t kCorpusBytesMax = uint64_t{1} << 30;

struct TraceOptions {
  EngineOptions engine;
  std::vector<std::filesystem::path> corpora;
  std::filesystem::path out;
  uint32_t chunk = 1;
  uint32_t prompt = 0;
  bool json = false;
};

std::vector<std::vector<uint32_t>> tokenize(const Engine& engine, const std::vector<std::filesystem::path>& corpora) {
  std::vector<std::vector<uint32_t>> texts;
  for (const std::filesystem::path& path : corpora) {
    texts.push_back(engine.tokenizer().encode(read_text_file(path, kCorpusBytesMax), text::Tokenizer::Special::kParse));
    if (texts.back().empty()) fail(ErrorKind::kUsage, "{}: no tokens in it to trace", path.string());
  }
  return texts;
}

int run_trace(const TraceOptions& options) {
  const ProgressStyle style = options.json ? ProgressStyle::kSilent : ProgressStyle::kAuto;
  const std::unique_ptr<Engine> engine = open_engine(options.engine, style);
  const std::vector<std::vector<uint32_t>> texts = tokenize(*engine, options.corpora);
  uint64_t total = 0;
  for (const auto& text : texts) total += text.size();

  const experts::RouteTraceHeader header = trace_header(*engine);
  OutputFile file(options.out);
  uint64_t bytes = 0;
  experts::RouteTraceWriter writer(header, [&](Bytes data) {
    file.write(data);
    bytes += data.size();
  });
  Progress progress("tracing", total, style, ProgressUnit::kTokens);
  RecordOptions record;
  record.chunk = options.chunk;
  record.prompt = options.prompt;
  record.prompt_chunk = engine->options().chunk;
  record.on_tokens = [&](uint64_t n) { progress.add(n); };
  record.should_stop = [] { return interrupted(); };
  const auto started = std::chrono::steady_clock::now();
  try {
    record_routes(*engine, texts, record, writer);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kInterrupted) throw;
    fail(ErrorKind::kInterrupted, "interrupted after {} of {} tokens; {} was not written", writer.tokens(), total, options.out.string());
  }
  writer.finish();
  file.finish();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();

  if (options.json) {
    const Json out = {{"out", options.out.string()},
                      {"tokens", writer.tokens()},
                      {"texts", texts.size()},
                      {"routing_id", header.routing_id.hex()},
                      {"layers", header.layers.size()},
                      {"experts", header.experts},
                      {"used", header.used},
                      {"chunk", options.chunk},
                      {"prompt", options.prompt},
                      {"bytes", bytes},
                      {"tokens_per_second", static_cast<double>(writer.tokens()) / seconds}};
    fmt::print("{}", dump_json(out));
  } else {
    fmt::print("{}: {} tokens of {} {}, {} layers of {} experts, {} used; {}\n", options.out.string(), format_count(writer.tokens()),
               texts.size(), texts.size() == 1 ? "text" : "texts", header.layers.size(), header.experts, header.used,
               format_size(bytes));
  }
  return 0;
}

}  // namespace

CommandRun setup_trace(CLI::App& app) {
  const auto options = std::make_shared<TraceOptions>();
  app.description(
      "Records which experts a pack's model chooses for every token of a text, for `tierpack simulate`. Every text begins "
      "with an empty context; one that is longer continues in another window.");
  app.add_option("pack", options->engine.pack, "The pack directory")->required();
  app.add_option("--corpus", options->corpora, "Text file like those the model will work on; may be given several times")
      ->required()
      ->allow_extra_args(false)
      ->check(CLI::ExistingFile);
  app.add_option("--out", options->out, "Where the recording is written")->required();
  app.add_option("--chunk", options->chunk, "Tokens recorded as computed together; 1 is how answers are computed")
      ->check(CLI::Range(1u, experts::kTraceTokensMax))
      ->capture_default_str();
  app.add_option("--prompt", options->prompt,
                 "Tokens at the head of every text that are recorded as a prompt, in chunks of 512")
      ->capture_default_str();
  app.add_option("--threads", options->engine.threads, "Threads; 0 = every usable core")->capture_default_str();
  app.add_option("--context", options->engine.context, "Tokens in a window; 0 = the model's limit or what fits");
  app.add_flag("--json", options->json, "Print one JSON object");
  app.footer("Examples:\n"
             "  tierpack trace model.tierpack --corpus mails.txt --out mails.trace\n"
             "  tierpack trace model.tierpack --corpus a.txt --corpus b.txt --prompt 200 --out chat.trace\n"
             "  tierpack simulate mails.trace --capacity 25% --capacity 50%");
  return [options] { return run_trace(*options); };
}

}  // namespace tierpack

#include "runtime/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "runtime/available_memory.h"
#include "runtime/bench_report.h"
#include "runtime/bench_run.h"
#include "runtime/engine_cli.h"
#include "runtime/text/tokenizer.h"

namespace tierpack {

namespace {

constexpr const char* kLengthsDefault = "512,1K,4K";
constexpr uint32_t kDecodeMax = 65536;
constexpr uint32_t kRunsMax = 1000;
constexpr uint64_t kCorpusBytesMax = uint64_t{1} << 30;
constexpr uint64_t kSeed = 1;
constexpr uint64_t kProbeBytesMin = uint64_t{64} << 20;
constexpr uint64_t kProbeBytesMax = uint64_t{512} << 20;

struct BenchOptions {
  EngineOptions engine;
  std::string lengths;  // empty: those of the default that the model can hold
  uint32_t decode = 64;
  uint32_t runs = 3;
  std::filesystem::path corpus;
  std::filesystem::path report;
  bool json = false;
};

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

// Prompt lengths that leave room for the decoded tokens in the model's context.
std::vector<uint32_t> lengths_for(const BenchOptions& options, const ModelConfig& config) {
  const uint32_t room = config.context - std::min(config.context, options.decode);
  std::vector<uint32_t> lengths =
      parse_lengths(options.lengths.empty() ? kLengthsDefault : options.lengths, std::numeric_limits<uint32_t>::max() / 2);
  if (options.lengths.empty()) {
    std::erase_if(lengths, [&](uint32_t length) { return length > room; });
    if (lengths.empty()) lengths.push_back(std::max(room / 2, 1u));
  }
  if (lengths.back() > room) {
    fail(ErrorKind::kUsage, "a prompt of {} tokens and {} decoded ones do not fit the model's context of {}; ask for shorter "
         "prompts (--lengths) or fewer tokens (--decode)", lengths.back(), options.decode, config.context);
  }
  return lengths;
}

// The corpus as one timeline, or ids that depend on the vocabulary alone. `offset` moves the second request elsewhere.
void choose_tokens(const BenchOptions& options, const Engine& engine, BenchPlan& plan) {
  const size_t first = size_t{plan.lengths.back()} + plan.decode;
  const size_t second = size_t{plan.lengths.front()} + plan.decode;
  if (options.corpus.empty()) {
    plan.tokens = seeded_tokens(first, engine.config().vocab, kSeed);
    plan.second = seeded_tokens(second, engine.config().vocab, kSeed + 1);
    return;
  }
  plan.tokens = engine.tokenizer().encode(read_text_file(options.corpus, kCorpusBytesMax), text::Tokenizer::Special::kParse);
  if (plan.tokens.size() < first) {
    fail(ErrorKind::kUsage, "{}: {} tokens are too few; the longest prompt and what is decoded after it take {}",
         options.corpus.string(), plan.tokens.size(), first);
  }
  plan.second.assign(plan.tokens.end() - static_cast<ptrdiff_t>(second), plan.tokens.end());
  plan.tokens.resize(first);
}

int run_command(const BenchOptions& given) {
  BenchOptions options = given;
  if (!options.report.empty()) require_report_target(options.report);
  BenchPlan plan;
  plan.decode = options.decode;
  plan.runs = options.runs;
  {
    const Pack pack = Pack::open(options.engine.pack);
    require_runnable(pack.config(), options.engine.pack.string());
    plan.lengths = lengths_for(options, pack.config());
  }
  options.engine.context = plan.lengths.back() + plan.decode;
  options.engine.sessions = 2;

  const ProgressStyle style = options.json ? ProgressStyle::kSilent : ProgressStyle::kAuto;
  const auto started = std::chrono::steady_clock::now();
  const std::unique_ptr<Engine> engine = open_engine(options.engine, style);
  engine->wait_until_seeded();  // rates are those of filled caches
  const double load_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  choose_tokens(options, *engine, plan);
  plan.probe_bytes = std::clamp(available_memory_bytes() / 4, kProbeBytesMin, kProbeBytesMax);

  std::optional<Progress> progress(std::in_place, "measuring " + pack_name(options.engine.pack), plan.total_tokens(), style,
                                   ProgressUnit::kTokens);
  BenchResult result =
      run_bench(*engine, plan, [&](uint64_t tokens) { progress->add(tokens); }, [] { return interrupted(); });
  progress.reset();
  result.load_s = load_s;
  result.load_bytes = engine->seed_progress().loaded_bytes;
  for (const Record& record : engine->pack().manifest().records) {
    if (record.segment == Segment::kDense) result.load_bytes += record.bytes;
  }
  result.experts = engine->expert_counters();
  result.expert_layers = engine->expert_layer_counters();

  BenchSubject subject;
  subject.pack = pack_name(options.engine.pack);
  subject.model = engine->config().name;
  subject.architecture = architecture_name(engine->config().architecture);
  subject.routing_id = engine->pack().manifest().routing_id.hex();
  subject.version = TIERPACK_VERSION;
  subject.time = utc_now();
  subject.options = engine->options();
  subject.decode = plan.decode;
  subject.runs = plan.runs;
  subject.prompts = options.corpus.empty() ? fmt::format("ids from seed {}", kSeed)
                                           : fmt::format("text of {}", options.corpus.filename().string());
  fmt::print("{}", options.json ? bench_json(subject, result) : bench_text(subject, result));
  if (!options.report.empty()) {
    write_report(options.report, subject, result);
    log_info(fmt::format("report in {}", options.report.string()));
  }
  return 0;
}

}  // namespace

CommandRun setup_bench(CLI::App& app) {
  const auto options = std::make_shared<BenchOptions>();
  app.description(
      "Measures a pack on this machine: prompts of several lengths, the time to the first token, decoding at those depths, two "
      "requests at once, memory and loading. Beside each figure stands the most this machine could do, measured between the "
      "runs: its read bandwidth with the same threads, or its rate of 8-bit multiply-adds. Every run must give the same "
      "logits, bit for bit; their fingerprint is printed.");
  add_engine_options(app, options->engine);
  app.remove_option(app.get_option("--context"));  // follows from the lengths
  app.add_option("--lengths", options->lengths,
                 fmt::format("Prompt lengths in tokens, separated by commas; K = 1024. Without it, those of {} that the model "
                             "can hold", kLengthsDefault))
      ->check([](const std::string& text) { return text.empty() ? std::string("no lengths given") : std::string(); });
  app.add_option("--decode", options->decode, "Tokens decoded after each prompt")
      ->check(CLI::Range(1u, kDecodeMax))
      ->capture_default_str();
  app.add_option("--runs", options->runs, "Measured runs, after a warm-up")->check(CLI::Range(1u, kRunsMax))->capture_default_str();
  app.add_option("--corpus", options->corpus, "Take the tokens from this text file; otherwise fixed pseudo-random ids");
  app.add_option("--report", options->report, "Write report.json, report.md and plots to this new or empty directory");
  app.add_flag("--json", options->json, "Print one JSON object (the content of report.json)");
  app.footer(
      "Examples:\n"
      "  tierpack bench pebble.tierpack\n"
      "  tierpack bench model.tierpack --lengths 512,4K,32K --runs 5 --report model-bench\n"
      "  tierpack bench model.tierpack --threads 1 --lengths 512 --decode 128 --json\n"
      "  tierpack bench pebble.tierpack --corpus book.txt --lengths 1K");
  return [options] { return run_command(*options); };
}

}  // namespace tierpack

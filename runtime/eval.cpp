#include "runtime/eval.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "runtime/engine.h"
#include "runtime/engine_cli.h"
#include "runtime/expert_report.h"
#include "runtime/evaluation.h"
#include "runtime/text/tokenizer.h"

namespace tierpack {

namespace {

constexpr uint64_t kInputBytesMax = uint64_t{1} << 30;

struct EvalOptions {
  EngineOptions engine;
  bool warm = false;
  std::string kv = "f16";
  std::filesystem::path tokens;
  std::filesystem::path corpus;
  std::filesystem::path logits_out;
  std::filesystem::path kl_against;
  std::filesystem::path routes_out;
  bool json = false;
};

// Writes what the forward pass decided, one line a decision:
//   route BLOCK POSITION EXPERT:WEIGHT ...     largest weight first
//   attend BLOCK POSITION FIRST-LAST,...       visible positions as ranges
class RouteWriter final : public ForwardObserver {
 public:
  explicit RouteWriter(const std::filesystem::path& path) : file_(path) {}

  void on_route(uint32_t layer, uint32_t position, std::span<const uint32_t> experts,
                std::span<const float> weights) override {
    line_ = fmt::format("route {} {}", layer, position);
    for (size_t i = 0; i < experts.size(); ++i) line_ += fmt::format(" {}:{:.9g}", experts[i], weights[i]);
    write_line();
  }

  bool wants_attention() const override { return true; }
  void on_attend(uint32_t layer, uint32_t position, std::span<const uint32_t> visible) override {
    line_ = fmt::format("attend {} {} ", layer, position);
    for (size_t i = 0; i < visible.size();) {
      size_t end = i + 1;
      while (end < visible.size() && visible[end] == visible[end - 1] + 1) ++end;
      line_ += fmt::format("{}{}-{}", i == 0 ? "" : ",", visible[i], visible[end - 1]);
      i = end;
    }
    write_line();
  }

  void finish() { file_.finish(); }

 private:
  void write_line() {
    line_ += '\n';
    file_.write(as_bytes(line_));
  }
  OutputFile file_;
  std::string line_;
};

std::unique_ptr<Engine> open_engine(const EvalOptions& options) {
  EngineOptions engine = options.engine;
  std::unique_ptr<Progress> progress;
  engine.on_load = [&, before = uint64_t{0}](uint64_t done, uint64_t total) mutable {
    throw_if_interrupted();
    if (!progress) {
      progress = std::make_unique<Progress>("loading " + options.engine.pack.filename().string(), total,
                                            options.json ? ProgressStyle::kSilent : ProgressStyle::kAuto);
    }
    progress->add(done - before);
    before = done;
  };
  std::unique_ptr<Engine> opened = Engine::open(engine);
  progress.reset();
  log_plan(*opened);
  return opened;
}

// The tokens in windows that fit a session.
std::vector<std::span<const uint32_t>> windows_of(std::span<const uint32_t> tokens, uint32_t window) {
  std::vector<std::span<const uint32_t>> windows;
  for (size_t at = 0; at < tokens.size(); at += window) {
    windows.push_back(tokens.subspan(at, std::min<size_t>(window, tokens.size() - at)));
  }
  return windows;
}

void print_text(const EvalOptions& options, const Engine& engine, const Evaluation& e, size_t windows, double seconds) {
  const EngineOptions& o = engine.options();
  fmt::print("tokens        {}{}\n", format_count(e.rows()),
             windows > 1 ? fmt::format(" in {} windows of {}", windows, o.context) : "");
  fmt::print("fingerprint   {}\n", e.fingerprint().hex());
  if (e.predicted() > 0) {
    fmt::print("perplexity    {:.6g} ({:.6f} nats a token over {} predictions)\n", e.perplexity(), e.mean_loss(),
               format_count(e.predicted()));
  }
  if (e.distance()) {
    const LogitsDistance& d = *e.distance();
    fmt::print("KL            {:.6g} nats mean, {:.6g} largest, against {}\n", d.mean_kl, d.max_kl,
               options.kl_against.string());
    fmt::print("same top      {:.2f} %, largest logit difference {:.6g}\n", 100 * d.same_top, d.max_difference);
  }
  if (!options.logits_out.empty()) fmt::print("logits        {}\n", options.logits_out.string());
  if (!options.routes_out.empty()) fmt::print("routes        {}\n", options.routes_out.string());
  fmt::print("speed         {:.1f} tokens/s ({} thread{}, chunks of {}, {} KV cache, {} activations, {} kernels)\n",
             static_cast<double>(e.rows()) / seconds, o.threads, o.threads == 1 ? "" : "s", o.chunk,
             kv_type_name(o.kv), activation_type_name(o.activations), o.isa);
  log_detail(expert_summary(engine.expert_counters()));
  log_detail("\n" + expert_layer_table(engine.expert_layer_counters()));
}

void print_json(const Engine& engine, const Evaluation& e, size_t windows, double seconds) {
  const EngineOptions& o = engine.options();
  Json out = {{"tokens", e.rows()},
              {"windows", windows},
              {"fingerprint", e.fingerprint().hex()},
              {"predicted", e.predicted()}};
  if (e.predicted() > 0) {
    out["perplexity"] = e.perplexity();
    out["loss"] = e.mean_loss();
  }
  if (e.distance()) {
    const LogitsDistance& d = *e.distance();
    out["kl"] = {{"mean", d.mean_kl}, {"max", d.max_kl}, {"same_top", d.same_top}, {"max_difference", d.max_difference}};
  }
  out["tokens_per_second"] = static_cast<double>(e.rows()) / seconds;
  out["options"] = {{"threads", o.threads}, {"chunk", o.chunk}, {"context", o.context}, {"kv", kv_type_name(o.kv)},
                    {"activations", activation_type_name(o.activations)}, {"isa", o.isa}};
  out["experts"] = expert_json(engine.expert_counters(), engine.expert_layer_counters());
  fmt::print("{}", dump_json(out));
}

int run_eval(const EvalOptions& given) {
  EvalOptions options = given;
  if (options.tokens.empty() == options.corpus.empty()) {
    fail(ErrorKind::kUsage, "eval needs either --tokens FILE (token ids) or --corpus FILE (text)");
  }
  options.engine.kv = kv_type_named(options.kv);
  std::vector<uint32_t> tokens;
  if (!options.tokens.empty()) {
    tokens = parse_token_ids(read_text_file(options.tokens, kInputBytesMax), options.tokens.string());
    // One timeline, exactly as long as it has to be.
    if (options.engine.context == 0) options.engine.context = static_cast<uint32_t>(std::max<size_t>(tokens.size(), 1));
  }
  const std::unique_ptr<Engine> engine = open_engine(options);
  if (!options.corpus.empty()) {
    const text::Tokenizer& tokenizer = engine->tokenizer();
    tokens = tokenizer.encode(read_text_file(options.corpus, kInputBytesMax), text::Tokenizer::Special::kParse);
    if (tokenizer.adds_bos() && tokenizer.bos() >= 0) tokens.insert(tokens.begin(), static_cast<uint32_t>(tokenizer.bos()));
  }
  if (tokens.empty()) {
    fail(ErrorKind::kUsage, "{}: no tokens in it", (options.tokens.empty() ? options.corpus : options.tokens).string());
  }

  if (options.warm) engine->wait_until_seeded();
  const std::unique_ptr<Session> session = engine->new_session();
  Evaluation evaluation(engine->config().vocab, tokens.size(), options.logits_out, options.kl_against);
  std::unique_ptr<RouteWriter> routes;
  if (!options.routes_out.empty()) {
    routes = std::make_unique<RouteWriter>(options.routes_out);
    session->set_observer(routes.get());
  }
  const auto started = std::chrono::steady_clock::now();
  const auto windows = options.tokens.empty() ? windows_of(tokens, session->capacity())
                                              : std::vector<std::span<const uint32_t>>{tokens};
  for (const std::span<const uint32_t> window : windows) {
    session->clear();
    session->append(window, true, [&](uint32_t position, std::span<const float> logits) {
      const size_t next = size_t{position} + 1;
      evaluation.add(logits, next < window.size() ? std::optional(window[next]) : std::nullopt);
    }, [] { return interrupted(); });
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  evaluation.finish();
  if (routes) routes->finish();
  if (options.json) {
    print_json(*engine, evaluation, windows.size(), seconds);
  } else {
    print_text(options, *engine, evaluation, windows.size(), seconds);
  }
  return 0;
}

}  // namespace

CommandRun setup_eval(CLI::App& app) {
  const auto options = std::make_shared<EvalOptions>();
  app.description("Runs a pack's model over token ids or a text: perplexity, distance from other logits, and a fingerprint of "
                  "the logits, which depends on the pack, the tokens and the types of KV cache and activations alone.");
  app.add_option("pack", options->engine.pack, "The pack directory")->required();
  app.add_option("--tokens", options->tokens, "File of decimal token ids separated by white space: one timeline");
  app.add_option("--corpus", options->corpus, "Text file; computed in windows of the context")->excludes("--tokens");
  app.add_option("--logits-out", options->logits_out, "Write the logits: raw little-endian f32, (tokens, vocabulary)");
  app.add_option("--kl-against", options->kl_against, "Logits file of the same tokens to compare with");
  app.add_option("--routes-out", options->routes_out,
                 "Write routed experts and attended positions: lines 'route BLOCK POSITION EXPERT:WEIGHT ...' and "
                 "'attend BLOCK POSITION FIRST-LAST,...'");
  app.add_option("--threads", options->engine.threads, "Threads; 0 = every usable core")->capture_default_str();
  app.add_option("--chunk", options->engine.chunk, "Tokens computed together")->capture_default_str();
  app.add_option("--context", options->engine.context, "Tokens in a window; 0 = the model's limit or what fits");
  app.add_option("--kv", options->kv, "Type of the KV cache")->check(CLI::IsMember({"f32", "f16", "q8"}))->capture_default_str();
  add_activations_option(app, options->engine);
  add_memory_options(app, options->engine);
  app.add_flag("--warm", options->warm, "Begin when the caches are filled, for measurements");
  app.add_option("--isa", options->engine.isa, "Kernels by name instead of the best for this CPU");
  app.add_flag("--json", options->json, "Print one JSON object");
  app.footer("Examples:\n"
             "  tierpack eval pebble.tierpack --corpus book.txt\n"
             "  tierpack eval pebble.tierpack --tokens prompt.ids --kv f32 --logits-out prompt.f32\n"
             "  tierpack eval pebble.tierpack --tokens prompt.ids --kl-against prompt.f32");
  return [options] { return run_eval(*options); };
}

}  // namespace tierpack

#include "calibrate/tune_command.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <memory>
#include <optional>

#include <fmt/core.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "calibrate/tune.h"
#include "formats/tuned.h"
#include "runtime/hardware/machine_report.h"

namespace tierpack::calibrate {

namespace {

constexpr uint32_t kPromptMax = 1024, kPromptMin = 128;
constexpr uint32_t kDecodeMax = 32, kDecodeMin = 4;
constexpr double kPromptSeconds = 5, kDecodeSeconds = 3;  // of one trial, about
constexpr uint32_t kRounds = 5;

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

uint32_t fitting(double seconds_each, double seconds, uint32_t low, uint32_t high) {
  return static_cast<uint32_t>(std::clamp(seconds / seconds_each, static_cast<double>(low), static_cast<double>(high)));
}

// An engine for each trial, one at a time: two might not fit into memory.
class Trials {
 public:
  explicit Trials(std::filesystem::path pack) : pack_(std::move(pack)) {}

  Speed measure(const Settings& settings, const Workload& workload) {
    throw_if_interrupted();
    Engine& engine = engine_for(settings, static_cast<uint32_t>(workload.tokens.size()));
    return measure_session(engine, workload);
  }

  Engine& engine_for(const Settings& settings, uint32_t context) {
    if (engine_ && settings == settings_ && context == context_) return *engine_;
    engine_.reset();
    EngineOptions options;
    options.pack = pack_;
    options.device = DeviceChoice::kCpu;  // what is tuned is the CPU's
    options.threads = settings.threads;
    options.chunk = settings.chunk;
    options.isa = settings.isa;
    options.context = context;
    options.on_load = [](uint64_t, uint64_t) { throw_if_interrupted(); };
    engine_ = Engine::open(options);
    settings_ = settings;
    context_ = context;
    return *engine_;
  }

 private:
  std::filesystem::path pack_;
  Settings settings_;
  uint32_t context_ = 0;
  std::unique_ptr<Engine> engine_;
};

// As long as a trial of a few seconds allows.
Workload workload_for(Trials& trials, const Settings& start, const Pack& pack) {
  const uint32_t context = pack.config().context;
  Workload out;
  out.prompt = std::min(kPromptMin, context / 2);
  out.decode = std::min(kDecodeMin, context / 4);
  if (out.prompt == 0 || out.decode == 0) {
    fail(ErrorKind::kUsage, "{}: a context of {} tokens is too short to measure with", pack.directory().string(), context);
  }
  const uint32_t vocab = pack.config().vocab;
  out.tokens = fixed_tokens(size_t{out.prompt} + out.decode, vocab);
  const Speed first = trials.measure(start, out);
  out.decode = fitting(first.decode, kDecodeSeconds, out.decode, std::max(out.decode, std::min(kDecodeMax, context / 4)));
  out.prompt = fitting(first.prefill, kPromptSeconds, out.prompt, std::max(out.prompt, std::min(kPromptMax, context - out.decode)));
  out.tokens = fixed_tokens(size_t{out.prompt} + out.decode, vocab);
  return out;
}

std::string setting_text(const Stage& stage, const Settings& settings) {
  if (stage.name == "kernels") return settings.isa;
  return stage.name == "threads" ? fmt::format("{}", settings.threads) : fmt::format("{}", settings.chunk);
}

void print_table(const TuneResult& result, const Workload& workload) {
  fmt::print("prompts of {} tokens, {} decoded, {} rounds; gain: less time for a request\n", workload.prompt, workload.decode, kRounds);
  fmt::print("{:<9}{:<14}{:>12}{:>12}{:>9}\n", "", "", "prefill/s", "decode/s", "gain");
  for (const Stage& stage : result.stages) {
    const char* name = stage.name.c_str();
    for (const Trial& trial : stage.trials) {
      fmt::print("{:<9}{:<14}{:>12.1f}{:>12.1f}{:>7.1f} %{}\n", name, setting_text(stage, trial.settings), 1 / trial.median.prefill,
                 1 / trial.median.decode, 100 * trial.gain, trial.chosen ? "  <- kept" : "");
      name = "";
    }
  }
}

Json settings_json(const Settings& settings) {
  return {{"threads", settings.threads}, {"chunk", settings.chunk}, {"isa", settings.isa}};
}

void print_json(const TuneResult& result, const Workload& workload, const std::filesystem::path& path) {
  Json stages = Json::array();
  for (const Stage& stage : result.stages) {
    Json trials = Json::array();
    for (const Trial& trial : stage.trials) {
      trials.push_back({{"settings", settings_json(trial.settings)},
                        {"prefill_tokens_s", 1 / trial.median.prefill},
                        {"decode_tokens_s", 1 / trial.median.decode},
                        {"gain", trial.gain},
                        {"chosen", trial.chosen}});
    }
    stages.push_back({{"name", stage.name}, {"trials", std::move(trials)}});
  }
  const Json out = {{"out", path.string()},          {"prompt", workload.prompt}, {"decode", workload.decode},
                    {"rounds", kRounds},             {"best", settings_json(result.best)},
                    {"stages", std::move(stages)}};
  fmt::print("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void keep(const std::filesystem::path& path, const Sha256Digest& routing_id, const CpuInfo& cpu, const TuneResult& result) {
  TunedFile file;
  std::error_code absent;
  if (std::filesystem::exists(path, absent)) {
    try {
      file = read_tuned(path);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kCorrupt) throw;
      log_warning(fmt::format("{}; it is written anew", e.what()));
    }
  }
  file.set({routing_id, cpu.model, cpu.cores, static_cast<uint32_t>(result.best.threads), result.best.chunk, result.best.isa,
            1 / result.speed.decode, 1 / result.speed.prefill, TIERPACK_VERSION, utc_now()});
  write_tuned(path, file);
}

}  // namespace

int run_tune(const std::filesystem::path& pack_path, bool json) {
  const std::filesystem::path path = default_tuned_path();
  if (path.empty()) {
    fail(ErrorKind::kUsage, "there is no place for tuned settings: neither HOME nor XDG_STATE_HOME names a directory");
  }
  const CpuInfo cpu = hardware::examine_cpu();
  Sha256Digest routing_id;
  Workload workload;
  Settings start{static_cast<int>(cpu.cores), EngineOptions{}.chunk, cpu.isa.front()};
  Trials trials(pack_path);
  {
    const Pack pack = Pack::open(pack_path);
    routing_id = pack.manifest().routing_id;
    start.chunk = std::min(start.chunk, pack.config().context / 2);
    workload = workload_for(trials, start, pack);
  }
  log_info(fmt::format("trying settings with prompts of {} tokens and {} decoded", workload.prompt, workload.decode));
  const TuneResult result = tune(cpu, start, workload, kRounds, [&](const Settings& settings, const Workload& work) {
    const Speed speed = trials.measure(settings, work);
    log_detail(fmt::format("{} threads, chunks of {}, {} kernels: {:.1f} and {:.1f} tokens/s", settings.threads, settings.chunk,
                           settings.isa, 1 / speed.prefill, 1 / speed.decode));
    return speed;
  });
  if (result.stages.empty()) {
    log_info("there is nothing to choose from on this machine");
    return 0;
  }
  keep(path, routing_id, cpu, result);
  if (json) {
    print_json(result, workload, path);
  } else {
    print_table(result, workload);
    fmt::print("{}: {} thread{}, chunks of {}, {} kernels\n", path.string(), result.best.threads, result.best.threads == 1 ? "" : "s",
               result.best.chunk, result.best.isa);
  }
  return 0;
}

}  // namespace tierpack::calibrate

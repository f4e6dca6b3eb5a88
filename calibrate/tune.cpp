#include "calibrate/tune.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"
#include "base/interrupt.h"

namespace tierpack::calibrate {

namespace {

constexpr std::array<uint32_t, 4> kChunks = {128, 256, 512, 1024};
constexpr size_t kOtherKernelsMax = 2;
constexpr uint32_t kWarmUpTokens = 32;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  TIERPACK_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// `now` first, the others after it.
std::vector<Settings> with_others(const Settings& now, std::vector<Settings> others) {
  std::erase(others, now);
  others.insert(others.begin(), now);
  return others;
}

}  // namespace

double request_seconds(const Speed& speed) { return kPromptPerAnswer * speed.prefill + speed.decode; }

const Trial& decide(Stage& stage) {
  const std::vector<Speed> present = stage.trials.front().rounds;
  Trial* best = &stage.trials.front();
  for (Trial& trial : stage.trials) {
    TIERPACK_CHECK(trial.rounds.size() == present.size());
    std::vector<double> prefill, decode, gains;
    for (size_t round = 0; round < present.size(); ++round) {
      prefill.push_back(trial.rounds[round].prefill);
      decode.push_back(trial.rounds[round].decode);
      gains.push_back(1 - request_seconds(trial.rounds[round]) / request_seconds(present[round]));
    }
    trial.median = {median(prefill), median(decode)};
    trial.gain = median(gains);
    // Of five rounds a faster setting wins at least four.
    const auto wins = static_cast<size_t>(std::count_if(gains.begin(), gains.end(), [](double gain) { return gain > 0; }));
    const bool beyond_noise = trial.gain > kGainMin && 5 * wins >= 4 * gains.size();
    if (beyond_noise && trial.gain > best->gain) best = &trial;
  }
  best->chosen = true;
  return *best;
}

std::vector<Settings> kernel_candidates(const Settings& now, const CpuInfo& cpu) {
  std::vector<Settings> others;
  for (const std::string& isa : cpu.isa) {
    if (isa == "reference" || isa == now.isa || others.size() == kOtherKernelsMax) continue;
    others.push_back({now.threads, now.chunk, isa});
  }
  return with_others(now, std::move(others));
}

std::vector<Settings> thread_candidates(const Settings& now, const CpuInfo& cpu) {
  std::vector<Settings> others;
  if (cpu.cores > 1) others.push_back({static_cast<int>(cpu.cores) - 1, now.chunk, now.isa});
  if (cpu.threads > cpu.cores) others.push_back({static_cast<int>(cpu.threads), now.chunk, now.isa});
  return with_others(now, std::move(others));
}

std::vector<Settings> chunk_candidates(const Settings& now, uint32_t prompt) {
  std::vector<Settings> others;
  for (const uint32_t chunk : kChunks) {
    // A larger chunk than the prompt is the same as the prompt.
    if (chunk <= prompt) others.push_back({now.threads, chunk, now.isa});
  }
  return with_others(now, std::move(others));
}

TuneResult tune(const CpuInfo& cpu, const Settings& start, const Workload& workload, uint32_t rounds, const Measure& measure) {
  TuneResult result;
  result.best = start;
  const auto run_stage = [&](const char* name, const std::vector<Settings>& candidates) {
    if (candidates.size() < 2) return;
    Stage stage;
    stage.name = name;
    for (const Settings& settings : candidates) {
      Trial trial;
      trial.settings = settings;
      stage.trials.push_back(std::move(trial));
    }
    for (uint32_t round = 0; round < rounds; ++round) {
      // Each round begins with another candidate: none always follows the same one.
      for (size_t i = 0; i < candidates.size(); ++i) {
        Trial& trial = stage.trials[(i + round) % candidates.size()];
        trial.rounds.push_back(measure(trial.settings, workload));
      }
    }
    const Trial& best = decide(stage);
    result.best = best.settings;
    result.speed = best.median;
    result.stages.push_back(std::move(stage));
  };
  run_stage("kernels", kernel_candidates(result.best, cpu));
  run_stage("threads", thread_candidates(result.best, cpu));
  run_stage("chunk", chunk_candidates(result.best, workload.prompt));
  return result;
}

std::vector<uint32_t> fixed_tokens(size_t count, uint32_t vocab) {
  std::vector<uint32_t> tokens;
  uint64_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    tokens.push_back(static_cast<uint32_t>((state >> 33) % vocab));
  }
  return tokens;
}

Speed measure_session(Engine& engine, const Workload& workload) {
  const std::unique_ptr<Session> session = engine.new_session();
  const auto no_logits = [](uint32_t, std::span<const float>) {};
  const auto stop = [] { return interrupted(); };
  const std::span<const uint32_t> tokens(workload.tokens);
  session->append(tokens.first(std::min<size_t>(kWarmUpTokens, workload.prompt)), false, no_logits, stop);
  session->clear();
  const double start = now();
  session->append(tokens.first(workload.prompt), false, no_logits, stop);
  const double answered = now();
  for (uint32_t i = 0; i < workload.decode; ++i) {
    throw_if_interrupted();
    session->append(tokens.subspan(workload.prompt + i, 1), false, no_logits);
  }
  return {(answered - start) / workload.prompt, (now() - answered) / workload.decode};
}

}  // namespace tierpack::calibrate

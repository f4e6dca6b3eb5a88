// Which settings run a model fastest here: a few candidates at a time, measured in turns so that what changes on the machine
// meanwhile changes all of them, each compared with the present choice round by round. Another choice has to be better by
// more than the noise. Settings change speed, never an answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "formats/hardware.h"
#include "runtime/engine.h"

namespace tierpack::calibrate {

struct Settings {
  int threads = 0;
  uint32_t chunk = 0;
  std::string isa;
  bool operator==(const Settings&) const = default;
};

// Seconds a token.
struct Speed {
  double prefill = 0;
  double decode = 0;
};

// How a trial is measured: the prompt, then tokens one by one.
struct Workload {
  std::vector<uint32_t> tokens;  // prompt + decode of them
  uint32_t prompt = 0;
  uint32_t decode = 0;
};

struct Trial {
  Settings settings;
  std::vector<Speed> rounds;
  Speed median;       // of each on its own
  double gain = 0;    // against the choice before, in time for a request: median over the rounds; 0.05 = takes 5 % less
  bool chosen = false;
};

struct Stage {
  std::string name;  // "kernels", "threads", "chunk"
  std::vector<Trial> trials;  // the present choice first
};

struct TuneResult {
  Settings best;
  Speed speed;
  std::vector<Stage> stages;
};

// A request has a prompt of this many tokens for each token of its answer.
inline constexpr double kPromptPerAnswer = 4;
double request_seconds(const Speed& speed);

// The trial that a stage ends with: the present choice (the first) unless another one was faster in most rounds and by more
// than kGainMin at the median. Fills in median, gain and chosen.
inline constexpr double kGainMin = 0.02;
const Trial& decide(Stage& stage);

// Candidates of each stage, the present choice first. Reference kernels are never tried.
std::vector<Settings> kernel_candidates(const Settings& now, const CpuInfo& cpu);
std::vector<Settings> thread_candidates(const Settings& now, const CpuInfo& cpu);
std::vector<Settings> chunk_candidates(const Settings& now, uint32_t prompt);

// Measures settings with a workload; called candidate by candidate within a round. Throws kInterrupted.
using Measure = std::function<Speed(const Settings& settings, const Workload& workload)>;
// `workload`: of the first stages; `rounds` >= 1 of each stage.
TuneResult tune(const CpuInfo& cpu, const Settings& start, const Workload& workload, uint32_t rounds, const Measure& measure);

// Token ids that depend on the vocabulary alone.
std::vector<uint32_t> fixed_tokens(size_t count, uint32_t vocab);
// One measurement on a fresh session, after a warm-up.
Speed measure_session(Engine& engine, const Workload& workload);

}  // namespace tierpack::calibrate

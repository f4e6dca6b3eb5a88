// The measurement behind `bench`: runs an engine over prompts of several lengths, several times, and keeps every figure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/digest.h"
#include "runtime/bench_work.h"
#include "runtime/engine.h"
#include "runtime/machine_probe.h"

namespace tierpack {

struct BenchPlan {
  std::vector<uint32_t> lengths;  // of prompts, ascending
  uint32_t decode = 64;           // tokens decoded after each prompt
  uint32_t runs = 3;              // measured, after one warm-up
  std::vector<uint32_t> tokens;   // the timeline: at least lengths.back() + decode
  std::vector<uint32_t> second;   // of the second of two simultaneous requests: at least lengths.front() + decode
  uint64_t probe_bytes = 0;       // of the buffer that the read bandwidth is measured with

  uint64_t total_tokens() const;  // that run_bench computes
};

struct LengthResult {
  uint32_t tokens = 0;
  Samples prefill;      // tokens/s
  Samples first_token;  // seconds from the prompt to the choice of the first token
  Samples decode;       // tokens/s at this depth
  Samples decode_read;  // weight bytes/s in decode
  // Of the ceiling that the probes just before and after the run set, and for decode of their read bandwidth.
  Samples prefill_share, decode_share, decode_read_share;
  Xxh128 fingerprint;   // XXH3-128 of the logits of the prompt's last token and of every decoded token
  Ceiling prefill_ceiling, decode_ceiling;  // by the medians of all probes
};

struct BenchResult {
  MachineInfo machine;
  PassWork work;
  double load_s = 0;
  uint64_t load_bytes = 0;
  Samples read_bandwidth;  // bytes/s
  Samples int8_rate;       // multiply-adds/s
  std::vector<LengthResult> lengths;
  // Two sessions that decode in turn, a token each, at the depth of the shortest prompt: tokens/s together.
  Samples pair;
  Samples pair_share;       // of the ceiling by the probe before and after
  Ceiling pair_ceiling;     // if both tokens shared the reading of dense weights
  ExpertCounters experts;  // of all runs
  std::vector<ExpertLayerCounters> expert_layers;
  uint64_t peak_bytes = 0;  // resident, the probe's own buffer not counted
};

// Measures; `on_tokens` is told of computed tokens, `should_stop` is asked between chunks and tokens (kInterrupted). Throws
// kInternal if the logits of two runs differ in a bit.
BenchResult run_bench(Engine& engine, const BenchPlan& plan, const std::function<void(uint64_t)>& on_tokens,
                      const std::function<bool()>& should_stop);

}  // namespace tierpack

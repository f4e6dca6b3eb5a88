// From logits to a token. Deterministic: the same options, seed, history and logits give the same token on every
// machine. Order: repetition penalty, temperature, top-k, top-p, min-p, draw. temperature 0 is greedy (lowest id among
// ties).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tierpack::text {

struct SamplerOptions {
  float temperature = 0.7f;
  uint32_t top_k = 40;              // 0 = off
  float top_p = 0.95f;              // 1 = off
  float min_p = 0.0f;               // 0 = off
  float repetition_penalty = 1.0f;  // 1 = off; applied to tokens among the last `penalty_window`
  uint32_t penalty_window = 64;
  uint64_t seed = 0;
};

class Sampler {
 public:
  // Throws kUsage for options out of range, naming the option and its range.
  explicit Sampler(const SamplerOptions& options);
  uint32_t sample(std::span<const float> logits, std::span<const uint32_t> history);

 private:
  SamplerOptions options_;
  uint64_t random_state_[4];
  std::vector<std::pair<float, uint32_t>> candidates_;
};

}  // namespace tierpack::text

// From logits to a token. Deterministic: the same options, seed, history and logits give the same token on every
// machine. Order: repetition penalty, temperature, top-k, top-p, min-p, draw. temperature 0 is greedy (lowest id among
// ties).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
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
  // `logits` (n_vocab), minus infinity excluding a token; `history`: the tokens so far, oldest first. Throws kCorrupt
  // naming the token for a logit that is NaN or plus infinity, kInternal when every token is excluded.
  uint32_t sample(std::span<const float> logits, std::span<const uint32_t> history);

 private:
  // Leaves in candidates_ at least the `keep` best of the penalised logits; all of them, by id, when keep is their number.
  void collect(std::span<const float> logits, std::span<const uint32_t> history, uint32_t keep);
  void offer_all(std::span<const float> logits, uint32_t begin, uint32_t end);
  void offer(float logit, uint32_t id);

  SamplerOptions options_;
  uint64_t random_state_[4];
  std::vector<std::pair<float, uint32_t>> candidates_;  // logit and id
  uint32_t keep_ = 0;   // how many of the best are wanted
  float floor_ = 0;     // the smallest of that many seen so far; NaN before
  std::vector<double> weights_;                         // running sums
  std::vector<uint32_t> recent_;
};

}  // namespace tierpack::text

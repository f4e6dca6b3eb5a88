// The default cache policy: an expert is worth its expected uses per token.
//
// The expectation mixes two estimates of that rate. The long one starts at the profile's, which counts as a number of
// tokens seen, and follows use with a half-life of hundreds of tokens: it keeps the hot set, and moves it within 256 tokens
// when the work changes. The short one remembers the last few tokens, since tokens often choose their predecessor's
// experts. Both are rates, so a prompt chunk of n tokens adds shares of its tokens, never n uses at once, and counts for the
// long one as no more than a few tokens: a burst does not displace the hot set.
//
// Invariants: rates lie in [0, 1]; on_route costs O(experts of one layer) and allocates nothing; values depend on the calls
// alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/experts/cache_policy.h"

namespace tierpack::experts {

class AdaptivePolicy final : public CachePolicy {
 public:
  explicit AdaptivePolicy(const CacheShape& shape);
  void seed(std::span<const float> uses_per_token) override;
  void on_route(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> counts,
                uint32_t tokens) override;
  std::span<const double> values() const override { return values_; }

 private:
  CacheShape shape_;
  std::vector<double> long_rate_;
  std::vector<double> short_rate_;
  std::vector<double> values_;
  std::vector<double> seen_tokens_;  // by layer: what the long rate stands for
};

}  // namespace tierpack::experts

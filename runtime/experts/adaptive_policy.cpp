#include "runtime/experts/adaptive_policy.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tierpack::experts {

namespace {

constexpr double kSeedTokens = 128;     // what a profile counts as
constexpr double kUnseededTokens = 8;   // what knowing nothing counts as
constexpr double kLongTokens = 256;     // the long rate's time constant
constexpr double kShortTokens = 6;      // the short rate's
constexpr double kShortWeight = 0.3;
constexpr double kBurstTokensMax = 16;  // what a chunk counts as for the long rate

}  // namespace

AdaptivePolicy::AdaptivePolicy(const CacheShape& shape)
    : shape_(shape), long_rate_(shape.entries(), 0.0), short_rate_(shape.entries(), 0.0), values_(shape.entries(), 0.0),
      seen_tokens_(shape.layers, kUnseededTokens) {}

void AdaptivePolicy::seed(std::span<const float> uses_per_token) {
  TIERPACK_CHECK(uses_per_token.size() == values_.size());
  for (size_t i = 0; i < values_.size(); ++i) {
    const double rate = std::clamp(static_cast<double>(uses_per_token[i]), 0.0, 1.0);
    long_rate_[i] = short_rate_[i] = values_[i] = rate;
  }
  std::fill(seen_tokens_.begin(), seen_tokens_.end(), kSeedTokens);
}

void AdaptivePolicy::on_route(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> counts,
                              uint32_t tokens) {
  const size_t first = shape_.entry(layer, 0);
  const double counted = std::min(static_cast<double>(tokens), kBurstTokensMax);
  double& seen = seen_tokens_[layer];
  const double long_keep = seen / (seen + counted);
  seen = std::min(seen + counted, kLongTokens);
  const double short_keep = std::pow(1 - 1 / kShortTokens, tokens);

  double* const long_rate = long_rate_.data() + first;
  double* const short_rate = short_rate_.data() + first;
  double* const values = values_.data() + first;
  for (uint32_t e = 0; e < shape_.experts; ++e) {
    long_rate[e] *= long_keep;
    short_rate[e] *= short_keep;
  }
  for (size_t i = 0; i < experts.size(); ++i) {
    const double share = static_cast<double>(counts[i]) / tokens;
    long_rate[experts[i]] += (1 - long_keep) * share;
    short_rate[experts[i]] += (1 - short_keep) * share;
  }
  for (uint32_t e = 0; e < shape_.experts; ++e) {
    values[e] = (1 - kShortWeight) * long_rate[e] + kShortWeight * short_rate[e];
  }
}

}  // namespace tierpack::experts

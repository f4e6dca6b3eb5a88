#include "runtime/experts/adaptive_policy.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tierpack::experts {

namespace {

constexpr double kSeedTokens = 1024;    // what a profile counts as
constexpr double kUnseededTokens = 8;   // what knowing nothing counts as
constexpr double kLongTokens = 4096;    // the long rate's time constant
constexpr double kShortTokens = 6;      // the short rate's
constexpr double kShortWeight = 0.1;    // before anything is learned about it
constexpr double kFollowWeight = 1;
constexpr double kBlendTokens = 512;    // over which the weights are learned
constexpr double kBlendPrior = 1;
constexpr double kWitnessTokens = 128;  // the witness's time constant
constexpr double kErrorTokens = 64;     // over which errors are compared
constexpr double kAdvantage = 0.03;     // of the long rate's error, that says that the work has changed
constexpr double kChangedTokens = 64;   // what the long rate then still counts as
constexpr double kBurstTokensMax = 16;  // what a chunk counts as for the long rate
constexpr double kDiscount = 0.7;       // a token later, a use is worth this much of its worth now
constexpr double kLearningRate = 0.02;

double keep_of(double time_constant, double tokens) { return std::pow(1 - 1 / time_constant, tokens); }

// Of a rate per expert, for a token that chose `experts`.
double squared_error(const double* rate, uint32_t count, std::span<const uint32_t> experts) {
  double error = static_cast<double>(experts.size());
  for (uint32_t j = 0; j < count; ++j) error += rate[j] * rate[j];
  for (const uint32_t j : experts) error -= 2 * rate[j];
  return error;
}

}  // namespace

AdaptivePolicy::AdaptivePolicy(const CacheShape& shape)
    : shape_(shape), layers_(shape.layers), long_rate_(shape.entries(), 0.0), short_rate_(shape.entries(), 0.0),
      witness_rate_(shape.entries(), 0.0), values_(shape.entries(), 0.0), base_(shape.entries(), 0.0),
      departure_(shape.entries(), 0.0), followed_(shape.entries(), 0.0), base_now_(shape.experts, 0.0),
      departure_now_(shape.experts, 0.0), followed_now_(shape.experts, 0.0) {
  blend_.solve(kBlendPrior * shape.layers);
  for (Layer& layer : layers_) {
    layer.seen_tokens = kUnseededTokens;
    layer.chosen.reserve(shape.experts);
  }
  const uint64_t pairs = uint64_t{shape.entries()} * shape.experts;
  if (pairs * sizeof(float) <= kFollowBytesMax) follow_.resize(pairs);
}

void AdaptivePolicy::seed(std::span<const float> uses_per_token) {
  TIERPACK_CHECK(uses_per_token.size() == values_.size());
  for (size_t i = 0; i < values_.size(); ++i) {
    long_rate_[i] = short_rate_[i] = witness_rate_[i] = values_[i] =
        std::clamp(static_cast<double>(uses_per_token[i]), 0.0, 1.0);
  }
  for (Layer& layer : layers_) layer.seen_tokens = kSeedTokens;
}

void AdaptivePolicy::on_route(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> counts,
                              uint32_t tokens) {
  if (tokens == 1) notice_change(layer, experts);
  update_rates(layer, experts, counts, tokens);
  std::vector<uint32_t>& chosen = layers_[layer].chosen;
  std::fill(followed_now_.begin(), followed_now_.end(), 0.0);
  if (tokens == 1) {
    look_up_follow(layer, experts);
    if (!chosen.empty()) learn(layer, experts);
    chosen.assign(experts.begin(), experts.end());
  } else {
    chosen.clear();
  }
  set_values(layer);
}

void AdaptivePolicy::notice_change(uint32_t layer, std::span<const uint32_t> experts) {
  const size_t first = shape_.entry(layer, 0);
  const double error = squared_error(long_rate_.data() + first, shape_.experts, experts);
  const double witness_error = squared_error(witness_rate_.data() + first, shape_.experts, experts);
  const double part = 1 / (kErrorTokens * shape_.layers);
  advantage_ += part * (error - witness_error - advantage_);
  error_ += part * (error - error_);
  double& seen = layers_[layer].seen_tokens;
  if (advantage_ > kAdvantage * error_) seen = std::min(seen, kChangedTokens);
}

void AdaptivePolicy::update_rates(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> counts,
                                  uint32_t tokens) {
  double& seen = layers_[layer].seen_tokens;
  const double counted = std::min(static_cast<double>(tokens), kBurstTokensMax);
  const double long_keep = seen / (seen + counted);
  seen = std::min(seen + counted, kLongTokens);
  const double short_keep = keep_of(kShortTokens, 1);  // a chunk is one event to it
  const double witness_keep = keep_of(kWitnessTokens, counted);

  double* const long_rate = long_rate_.data() + shape_.entry(layer, 0);
  double* const short_rate = short_rate_.data() + shape_.entry(layer, 0);
  double* const witness_rate = witness_rate_.data() + shape_.entry(layer, 0);
  for (uint32_t j = 0; j < shape_.experts; ++j) {
    long_rate[j] *= long_keep;
    short_rate[j] *= short_keep;
    witness_rate[j] *= witness_keep;
  }
  for (size_t i = 0; i < experts.size(); ++i) {
    const double share = static_cast<double>(counts[i]) / tokens;
    long_rate[experts[i]] += (1 - long_keep) * share;
    short_rate[experts[i]] += (1 - short_keep) * share;
    witness_rate[experts[i]] += (1 - witness_keep) * share;
  }
  for (uint32_t j = 0; j < shape_.experts; ++j) {
    base_now_[j] = long_rate[j];
    departure_now_[j] = short_rate[j] - long_rate[j];
  }
}

void AdaptivePolicy::look_up_follow(uint32_t layer, std::span<const uint32_t> experts) {
  if (follow_.empty()) return;
  for (const uint32_t i : experts) {
    const float* const row = follow(layer, i);
    for (uint32_t j = 0; j < shape_.experts; ++j) followed_now_[j] += static_cast<double>(row[j]);
  }
}

void AdaptivePolicy::set_values(uint32_t layer) {
  const size_t first = shape_.entry(layer, 0);
  for (uint32_t j = 0; j < shape_.experts; ++j) {
    base_[first + j] = base_now_[j];
    departure_[first + j] = departure_now_[j];
    followed_[first + j] = followed_now_[j];
    values_[first + j] = base_now_[j] + blend_.departure * departure_now_[j] + blend_.follow * followed_now_[j];
  }
}

void AdaptivePolicy::Blend::solve(double prior) {
  const double a = dd + prior, b = df, c = ff + prior;
  const double x = dr + prior * kShortWeight, y = fr + prior * kFollowWeight;
  const double determinant = a * c - b * b;
  departure = std::clamp((c * x - b * y) / determinant, 0.0, 1.0);
  follow = std::clamp((a * y - b * x) / determinant, 0.0, 1.0);
}

// What the values of the token before should have been is known now, as far as this token tells.
void AdaptivePolicy::learn(uint32_t layer, std::span<const uint32_t> experts) {
  const size_t first = shape_.entry(layer, 0);
  const double* const base = base_.data() + first;
  const double* const departure = departure_.data() + first;
  const double* const followed = followed_.data() + first;
  double* const rest = values_.data() + first;  // set_values comes next
  for (uint32_t j = 0; j < shape_.experts; ++j) {
    rest[j] = kDiscount * (base_now_[j] + blend_.departure * departure_now_[j] + blend_.follow * followed_now_[j]) - base[j];
  }
  for (const uint32_t j : experts) rest[j] += 1 - kDiscount;
  const double keep = 1 - 1 / (kBlendTokens * shape_.layers);
  double dd = 0, df = 0, ff = 0, dr = 0, fr = 0;
  for (uint32_t j = 0; j < shape_.experts; ++j) {
    dd += departure[j] * departure[j];
    df += departure[j] * followed[j];
    ff += followed[j] * followed[j];
    dr += departure[j] * rest[j];
    fr += followed[j] * rest[j];
  }
  blend_.dd = keep * blend_.dd + dd;
  blend_.df = keep * blend_.df + df;
  blend_.ff = keep * blend_.ff + ff;
  blend_.dr = keep * blend_.dr + dr;
  blend_.fr = keep * blend_.fr + fr;
  if (!follow_.empty()) {
    const std::vector<uint32_t>& before = layers_[layer].chosen;
    for (uint32_t j = 0; j < shape_.experts; ++j) rest[j] -= blend_.departure * departure[j] + followed[j];
    const float step = static_cast<float>(kLearningRate / static_cast<double>(before.size()));
    for (const uint32_t i : before) {
      float* const row = follow(layer, i);
      for (uint32_t j = 0; j < shape_.experts; ++j) row[j] += step * static_cast<float>(rest[j]);
    }
  }
  blend_.solve(kBlendPrior * shape_.layers);
}

}  // namespace tierpack::experts

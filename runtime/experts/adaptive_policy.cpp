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

constexpr size_t kLanes = 8;

double keep_of(double time_constant, double tokens) { return std::pow(1 - 1 / time_constant, tokens); }

// Sums over a row in kLanes partial sums, so that compilers can use vectors without changing a result.
struct LaneSum {
  float lanes[kLanes] = {};
  double total() const {
    double sum = 0;
    for (const float lane : lanes) sum += static_cast<double>(lane);
    return sum;
  }
};

}  // namespace

AdaptivePolicy::AdaptivePolicy(const CacheShape& shape) : shape_(shape), layers_(shape.layers), values_(shape.entries(), 0.0) {
  const size_t width = (shape.experts + kLanes - 1) / kLanes * kLanes;
  for (Table* const table : {&long_, &short_, &witness_, &base_, &departure_, &followed_}) table->resize(shape.layers, width);
  if (uint64_t{shape.entries()} * width * sizeof(float) <= kFollowBytesMax) follow_.resize(shape.entries(), width);
  followed_now_.resize(width);
  rest_.resize(width);
  for (Layer& layer : layers_) {
    layer.seen_tokens = kUnseededTokens;
    layer.chosen.reserve(shape.experts);
  }
  blend_.solve(kBlendPrior * shape.layers);
}

uint64_t AdaptivePolicy::table_bytes(const CacheShape& shape) {
  const uint64_t width = (shape.experts + kLanes - 1) / kLanes * kLanes;
  const uint64_t follow = uint64_t{shape.entries()} * width * sizeof(float);
  return 6 * shape.layers * width * sizeof(float) + shape.entries() * sizeof(double) + (follow <= kFollowBytesMax ? follow : 0);
}

void AdaptivePolicy::seed(std::span<const float> uses_per_token) {
  TIERPACK_CHECK(uses_per_token.size() == values_.size());
  for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
    layers_[layer].seen_tokens = kSeedTokens;
    for (uint32_t j = 0; j < shape_.experts; ++j) {
      const uint32_t entry = shape_.entry(layer, j);
      const float rate = std::clamp(uses_per_token[entry], 0.f, 1.f);
      long_.row(layer)[j] = short_.row(layer)[j] = witness_.row(layer)[j] = rate;
      values_[entry] = static_cast<double>(rate);
    }
  }
}

void AdaptivePolicy::on_route(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> counts,
                              uint32_t tokens) {
  std::vector<uint32_t>& chosen = layers_[layer].chosen;
  update_rates(layer, experts, counts, tokens);
  std::fill(followed_now_.begin(), followed_now_.end(), 0.f);
  if (tokens == 1) {
    look_up_follow(layer, experts);
    if (!chosen.empty()) learn(layer, experts);
    chosen.assign(experts.begin(), experts.end());
  } else {
    chosen.clear();
  }
  set_values(layer);
}

void AdaptivePolicy::update_rates(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> counts,
                                  uint32_t tokens) {
  float* const long_rate = long_.row(layer);
  float* const short_rate = short_.row(layer);
  float* const witness_rate = witness_.row(layer);
  if (tokens == 1) {
    // Squared errors of both rates: sum of (rate - use)^2.
    LaneSum error;
    LaneSum witness_error;
    for (size_t j = 0; j < long_.stride; j += kLanes) {
      for (size_t k = 0; k < kLanes; ++k) {
        error.lanes[k] += long_rate[j + k] * long_rate[j + k];
        witness_error.lanes[k] += witness_rate[j + k] * witness_rate[j + k];
      }
    }
    double used = 0;
    double witness_used = 0;
    for (const uint32_t e : experts) {
      used += 1 - 2 * static_cast<double>(long_rate[e]);
      witness_used += 1 - 2 * static_cast<double>(witness_rate[e]);
    }
    notice_change(layers_[layer], error.total() + used, witness_error.total() + witness_used);
  }
  double& seen = layers_[layer].seen_tokens;
  const double counted = std::min(static_cast<double>(tokens), kBurstTokensMax);
  const float long_keep = static_cast<float>(seen / (seen + counted));
  seen = std::min(seen + counted, kLongTokens);
  const float short_keep = static_cast<float>(keep_of(kShortTokens, 1));  // a chunk is one event to it
  const float witness_keep = static_cast<float>(keep_of(kWitnessTokens, counted));
  for (size_t j = 0; j < long_.stride; ++j) {
    long_rate[j] *= long_keep;
    short_rate[j] *= short_keep;
    witness_rate[j] *= witness_keep;
  }
  for (size_t i = 0; i < experts.size(); ++i) {
    const float share = static_cast<float>(counts[i]) / static_cast<float>(tokens);
    long_rate[experts[i]] += (1 - long_keep) * share;
    short_rate[experts[i]] += (1 - short_keep) * share;
    witness_rate[experts[i]] += (1 - witness_keep) * share;
  }
}

void AdaptivePolicy::notice_change(Layer& layer, double error, double witness_error) {
  const double part = 1 / (kErrorTokens * shape_.layers);
  advantage_ += part * (error - witness_error - advantage_);
  error_ += part * (error - error_);
  if (advantage_ > kAdvantage * error_) layer.seen_tokens = std::min(layer.seen_tokens, kChangedTokens);
}

void AdaptivePolicy::look_up_follow(uint32_t layer, std::span<const uint32_t> experts) {
  if (follow_.cells.empty()) return;
  for (const uint32_t i : experts) {
    const float* const row = follow_.row(shape_.entry(layer, i));
    for (size_t j = 0; j < follow_.stride; ++j) followed_now_[j] += row[j];
  }
}

// What the values of the token before should have been is known now, as far as this token tells.
void AdaptivePolicy::learn(uint32_t layer, std::span<const uint32_t> experts) {
  const float* const base = base_.row(layer);
  const float* const departure = departure_.row(layer);
  const float* const followed = followed_.row(layer);
  const float* const long_rate = long_.row(layer);
  const float* const short_rate = short_.row(layer);
  const float* const now = followed_now_.data();
  float* const rest = rest_.data();
  const float discount = static_cast<float>(kDiscount);
  const float a = blend_.departure;
  const float b = blend_.follow;
  for (size_t j = 0; j < rest_.size(); ++j) {
    rest[j] = discount * (long_rate[j] + a * (short_rate[j] - long_rate[j]) + b * now[j]) - base[j];
  }
  for (const uint32_t e : experts) rest[e] += 1 - discount;
  LaneSum dd, df, ff, dr, fr;
  for (size_t j = 0; j < rest_.size(); j += kLanes) {
    for (size_t k = 0; k < kLanes; ++k) {
      const float d = departure[j + k];
      const float f = followed[j + k];
      dd.lanes[k] += d * d;
      df.lanes[k] += d * f;
      ff.lanes[k] += f * f;
      dr.lanes[k] += d * rest[j + k];
      fr.lanes[k] += f * rest[j + k];
    }
  }
  const double keep = 1 - 1 / (kBlendTokens * shape_.layers);
  blend_.dd = keep * blend_.dd + dd.total();
  blend_.df = keep * blend_.df + df.total();
  blend_.ff = keep * blend_.ff + ff.total();
  blend_.dr = keep * blend_.dr + dr.total();
  blend_.fr = keep * blend_.fr + fr.total();
  if (!follow_.cells.empty()) {
    const std::vector<uint32_t>& before = layers_[layer].chosen;
    const float step = static_cast<float>(kLearningRate / static_cast<double>(before.size()));
    for (size_t j = 0; j < rest_.size(); ++j) rest[j] = step * (rest[j] - a * departure[j] - followed[j]);
    for (const uint32_t i : before) {
      float* const row = follow_.row(shape_.entry(layer, i));
      for (size_t j = 0; j < follow_.stride; ++j) row[j] += rest[j];
    }
  }
  blend_.solve(kBlendPrior * shape_.layers);
}

void AdaptivePolicy::Blend::solve(double prior) {
  const double a = dd + prior, b = df, c = ff + prior;
  const double x = dr + prior * kShortWeight, y = fr + prior * kFollowWeight;
  const double determinant = a * c - b * b;  // positive: the products are a Gram matrix, and the prior is added
  departure = static_cast<float>(std::clamp((c * x - b * y) / determinant, 0.0, 1.0));
  follow = static_cast<float>(std::clamp((a * y - b * x) / determinant, 0.0, 1.0));
}

void AdaptivePolicy::set_values(uint32_t layer) {
  float* const base = base_.row(layer);
  float* const departure = departure_.row(layer);
  float* const followed = followed_.row(layer);
  const float* const long_rate = long_.row(layer);
  const float* const short_rate = short_.row(layer);
  for (size_t j = 0; j < base_.stride; ++j) {
    base[j] = long_rate[j];
    departure[j] = short_rate[j] - long_rate[j];
    followed[j] = followed_now_[j];
  }
  double* const values = values_.data() + shape_.entry(layer, 0);
  for (uint32_t j = 0; j < shape_.experts; ++j) {
    values[j] = static_cast<double>(base[j] + blend_.departure * departure[j] + blend_.follow * followed[j]);
  }
}

}  // namespace tierpack::experts

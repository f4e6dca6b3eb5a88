#include "runtime/experts/cache_policy.h"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "base/error.h"
#include "runtime/experts/adaptive_policy.h"

namespace tierpack::experts {

namespace {

constexpr std::array<std::string_view, 5> kNames = {"adaptive", "lru", "lfu", "lfru", "static"};

// A seed counts as this many tokens seen.
constexpr double kSeedTokens = 256;

// What the simple policies share: the shape, the values, and where a chunk begins.
class SimplePolicy : public CachePolicy {
 public:
  explicit SimplePolicy(const CacheShape& shape) : shape_(shape), values_(shape.entries(), 0.0) {}
  std::span<const double> values() const override { return values_; }

 protected:
  void require_seed(std::span<const float> seed) const { TIERPACK_CHECK(seed.size() == values_.size()); }
  CacheShape shape_;
  std::vector<double> values_;
};

// The profile alone.
class StaticPolicy final : public SimplePolicy {
 public:
  using SimplePolicy::SimplePolicy;
  void seed(std::span<const float> uses_per_token) override {
    require_seed(uses_per_token);
    std::copy(uses_per_token.begin(), uses_per_token.end(), values_.begin());
  }
  void on_route(uint32_t, std::span<const uint32_t>, std::span<const uint32_t>, uint32_t) override {}
};

// When an expert was last used. Those not yet used follow, in the order of the seed.
class LruPolicy final : public SimplePolicy {
 public:
  using SimplePolicy::SimplePolicy;
  void seed(std::span<const float> uses_per_token) override {
    require_seed(uses_per_token);
    const float top = *std::max_element(uses_per_token.begin(), uses_per_token.end());
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = top > 0 ? static_cast<double>(uses_per_token[i] / top) : 0;
  }
  void on_route(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t>, uint32_t) override {
    now_ += 1;
    for (const uint32_t expert : experts) values_[shape_.entry(layer, expert)] = now_;
  }

 private:
  double now_ = 1;  // routed layers so far
};

// How many tokens chose an expert since the start.
class LfuPolicy final : public SimplePolicy {
 public:
  using SimplePolicy::SimplePolicy;
  void seed(std::span<const float> uses_per_token) override {
    require_seed(uses_per_token);
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = kSeedTokens * static_cast<double>(uses_per_token[i]);
  }
  void on_route(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> counts, uint32_t) override {
    for (size_t i = 0; i < experts.size(); ++i) values_[shape_.entry(layer, experts[i])] += counts[i];
  }
};

// Frequency over recency: uses divided by the tokens since the last of them.
class LfruPolicy final : public SimplePolicy {
 public:
  explicit LfruPolicy(const CacheShape& shape)
      : SimplePolicy(shape), uses_(shape.entries(), 0.0), last_(shape.entries(), 0.0) {}
  void seed(std::span<const float> uses_per_token) override {
    require_seed(uses_per_token);
    for (size_t i = 0; i < uses_.size(); ++i) uses_[i] = kSeedTokens * static_cast<double>(uses_per_token[i]);
    values_ = uses_;
  }
  void on_route(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> counts,
                uint32_t tokens) override {
    if (layer <= layer_) {
      now_ += tokens;
      for (size_t i = 0; i < values_.size(); ++i) values_[i] = uses_[i] / (1 + now_ - last_[i]);
    }
    layer_ = layer;
    for (size_t i = 0; i < experts.size(); ++i) {
      const uint32_t entry = shape_.entry(layer, experts[i]);
      uses_[entry] += counts[i];
      last_[entry] = now_;
      values_[entry] = uses_[entry];
    }
  }

 private:
  std::vector<double> uses_;
  std::vector<double> last_;  // in tokens
  double now_ = 0;
  uint32_t layer_ = 0;
};

}  // namespace

std::span<const std::string_view> policy_names() { return kNames; }

std::unique_ptr<CachePolicy> make_policy(std::string_view name, const CacheShape& shape) {
  if (name == "adaptive") return std::make_unique<AdaptivePolicy>(shape);
  if (name == "lru") return std::make_unique<LruPolicy>(shape);
  if (name == "lfu") return std::make_unique<LfuPolicy>(shape);
  if (name == "lfru") return std::make_unique<LfruPolicy>(shape);
  if (name == "static") return std::make_unique<StaticPolicy>(shape);
  fail(ErrorKind::kUsage, "there is no cache policy \"{}\"; known: {}", name, fmt::join(kNames, ", "));
}

}  // namespace tierpack::experts

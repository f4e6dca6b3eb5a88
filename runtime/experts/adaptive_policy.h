// The default cache policy: an expert is worth the uses it is expected to have soon, per token.
//
// The expectation starts from the long rate. It begins as the profile's, which counts as a number of tokens seen, and
// remembers thousands of tokens. Beside it runs a witness that remembers a hundred or so: when that has foretold the last
// tokens better, the work has changed, and the long rate forgets all but some tens of tokens, so that it follows within 256.
//
// Two corrections are added. The first is how far the rate of the last few tokens departs from the long one. The second is
// what the experts of the current token say about the next ones: for every layer a table `follow` of how much more often
// than its rate an expert is used after another, learned from its own errors by temporal differences (Sutton 1988):
//
//   value(t)[j]   = long(t)[j] + a * (short(t)[j] - long(t)[j]) + b * (sum over experts i of token t of follow[i][j])
//   target(t)[j]  = (1 - kDiscount) * (1 if token t+1 uses j, else 0) + kDiscount * value(t+1)[j]
//
// The weights a and b are the least squares fit of values to their targets over the last hundreds of tokens: where recent
// use says nothing, they go to zero and the policy is a plain count of use; where tokens repeat their experts, it leans on
// that.
//
// Rates and values are per token, so a prompt chunk of n tokens adds shares of its tokens, never n uses at once, and counts
// for the long rate as no more than a few tokens, for the short one as one: a burst does not displace the hot set. A chunk does not say which token was
// its last, so nothing follows from it.
//
// Invariants: rates lie in [0, 1]; on_route costs O(used * experts of a layer) and allocates nothing; values depend on the
// calls alone. Memory: 4 bytes for every pair of experts of a layer, none when that is more than kFollowBytesMax.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/experts/cache_policy.h"

namespace tierpack::experts {

class AdaptivePolicy final : public CachePolicy {
 public:
  static constexpr uint64_t kFollowBytesMax = uint64_t{128} << 20;

  explicit AdaptivePolicy(const CacheShape& shape);
  // What its tables take.
  static uint64_t table_bytes(const CacheShape& shape);
  void seed(std::span<const float> uses_per_token) override;
  void on_route(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> counts,
                uint32_t tokens) override;
  std::span<const double> values() const override { return values_; }

 private:
  struct Layer {
    double seen_tokens = 0;        // what the long rate stands for
    std::vector<uint32_t> chosen;  // by the last token, where it came alone
  };
  // One float per expert of every layer, rows padded with zeros to whole lanes.
  struct Table {
    std::vector<float> cells;
    size_t stride = 0;
    void resize(size_t rows, size_t width) { cells.assign(rows * (stride = width), 0.f); }
    float* row(size_t i) { return cells.data() + i * stride; }
  };
  // Least squares for the weights of the two corrections, over the last hundreds of tokens.
  struct Blend {
    double dd = 0, df = 0, ff = 0;  // summed products of departure and follow
    double dr = 0, fr = 0;          // and of each with what the long rate left unexplained
    float departure = 0;            // the weights
    float follow = 0;
    void solve(double prior);
  };

  void update_rates(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> counts, uint32_t tokens);
  void notice_change(Layer& layer, double error, double witness_error);
  void look_up_follow(uint32_t layer, std::span<const uint32_t> experts);
  void learn(uint32_t layer, std::span<const uint32_t> experts);
  void set_values(uint32_t layer);

  CacheShape shape_;
  std::vector<Layer> layers_;
  Table long_, short_, witness_;  // rates
  Table follow_;                  // a row for every entry; no cells when they would be too many
  double advantage_ = 0;  // of the witness: by how much the long rate's squared error is larger, over the last tokens
  double error_ = 0;      // the long rate's
  Blend blend_;
  // What a layer's values were made of at its last token; followed_now_ and rest_ are of the layer being routed.
  Table base_, departure_, followed_;
  std::vector<float> followed_now_, rest_;
  std::vector<double> values_;
};

}  // namespace tierpack::experts

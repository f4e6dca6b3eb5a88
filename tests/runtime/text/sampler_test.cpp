#include "runtime/text/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "base/error.h"

namespace tierpack::text {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplerOptions plain(uint64_t seed = 1) {
  SamplerOptions options;
  options.temperature = 1;
  options.top_k = 0;
  options.top_p = 1;
  options.seed = seed;
  return options;
}

std::map<uint32_t, int> draw(const SamplerOptions& options, const std::vector<float>& logits, int times,
                             const std::vector<uint32_t>& history = {}) {
  Sampler sampler(options);
  std::map<uint32_t, int> counts;
  for (int i = 0; i < times; ++i) ++counts[sampler.sample(logits, history)];
  return counts;
}

std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> out;
  for (const double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

// Whether counts fit probabilities: chi-square below its 99.9 % point for these degrees of freedom.
void expect_fits(const std::map<uint32_t, int>& counts, const std::map<uint32_t, double>& probabilities, int times) {
  static const std::map<size_t, double> kLimit = {{0, 1e-9},  {1, 10.83}, {2, 13.82},
                                                  {3, 16.27}, {4, 18.47}, {9, 27.88}};
  double chi = 0;
  for (const auto& [id, count] : counts) EXPECT_TRUE(probabilities.count(id)) << "token " << id << " must not be drawn";
  for (const auto& [id, p] : probabilities) {
    const auto at = counts.find(id);
    const double count = at == counts.end() ? 0 : at->second;
    chi += (count - p * times) * (count - p * times) / (p * times);
  }
  EXPECT_LT(chi, kLimit.at(probabilities.size() - 1));
}

TEST(Sampler, GreedyTakesTheLowestIdAmongTies) {
  SamplerOptions options;
  options.temperature = 0;
  Sampler sampler(options);
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 2, 3}, {}), 1u);
  EXPECT_EQ(sampler.sample(std::vector<float>{-kInfinity, -5}, {}), 1u);
  options.temperature = 1;
  options.top_k = 1;
  EXPECT_EQ(Sampler(options).sample(std::vector<float>{1, 3, 2, 3}, {}), 1u);
}

TEST(Sampler, DrawsByProbability) {
  const std::vector<double> p = {0.1, 0.2, 0.3, 0.4};
  for (const uint64_t seed : {1, 2, 3}) {
    expect_fits(draw(plain(seed), logits_of(p), 20000), {{0, 0.1}, {1, 0.2}, {2, 0.3}, {3, 0.4}}, 20000);
  }
}

TEST(Sampler, TemperatureSharpens) {
  SamplerOptions options = plain();
  options.temperature = 0.5f;  // p^2, normalised
  expect_fits(draw(options, logits_of({0.2, 0.8}), 20000), {{0, 0.04 / 0.68}, {1, 0.64 / 0.68}}, 20000);
  options.temperature = 2;
  expect_fits(draw(options, logits_of({0.2, 0.8}), 20000), {{0, 1 / 3.0}, {1, 2 / 3.0}}, 20000);
}

TEST(Sampler, TopKKeepsTheBestAndLowestIds) {
  SamplerOptions options = plain();
  options.top_k = 2;
  expect_fits(draw(options, logits_of({0.1, 0.2, 0.3, 0.4}), 20000), {{2, 3 / 7.0}, {3, 4 / 7.0}}, 20000);
  expect_fits(draw(options, {1, 1, 1, 1}, 20000), {{0, 0.5}, {1, 0.5}}, 20000);
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  SamplerOptions options = plain();
  options.top_p = 0.6f;
  expect_fits(draw(options, logits_of({0.1, 0.2, 0.3, 0.4}), 20000), {{2, 3 / 7.0}, {3, 4 / 7.0}}, 20000);
  options.top_p = 0.3f;
  expect_fits(draw(options, logits_of({0.1, 0.2, 0.3, 0.4}), 1000), {{3, 1.0}}, 1000 /* one outcome */);
}

TEST(Sampler, TopPCountsWithinTopK) {
  SamplerOptions options = plain();
  options.top_k = 2;      // 3/7 and 4/7 remain
  options.top_p = 0.55f;  // 4/7 is enough
  const auto counts = draw(options, logits_of({0.1, 0.2, 0.3, 0.4}), 1000);
  EXPECT_EQ(counts.size(), 1u);
  EXPECT_EQ(counts.begin()->first, 3u);
}

TEST(Sampler, MinPIsRelativeToTheBest) {
  SamplerOptions options = plain();
  options.min_p = 0.6f;  // of 0.4: 0.24
  expect_fits(draw(options, logits_of({0.1, 0.2, 0.3, 0.4}), 20000), {{2, 3 / 7.0}, {3, 4 / 7.0}}, 20000);
}

TEST(Sampler, RepetitionPenaltyOnceForEachRecentToken) {
  SamplerOptions options;
  options.temperature = 0;
  options.repetition_penalty = 2;
  options.penalty_window = 3;
  Sampler sampler(options);
  const std::vector<float> logits = {4, 3, -1, 2.5f};
  EXPECT_EQ(sampler.sample(logits, {}), 0u);
  EXPECT_EQ(sampler.sample(logits, std::vector<uint32_t>{0, 0}), 1u);                      // 2, 3: once, not twice
  EXPECT_EQ(sampler.sample(logits, std::vector<uint32_t>{0, 1, 0}), 3u);                   // 2, 1.5, 2.5
  EXPECT_EQ(sampler.sample(logits, std::vector<uint32_t>{0, 2, 2, 2}), 0u);                // out of the window
  EXPECT_EQ(sampler.sample(std::vector<float>{-1, -1.5f}, std::vector<uint32_t>{0}), 1u);  // negative: multiplied
  EXPECT_EQ(sampler.sample(logits, std::vector<uint32_t>{4000000000u}), 0u);               // not of this vocabulary
}

TEST(Sampler, ExcludedTokensAreNeverDrawn) {
  const auto counts = draw(plain(), {0, -kInfinity, 0, -1000}, 5000);
  EXPECT_EQ(counts.count(1), 0u);
  EXPECT_EQ(counts.count(3), 0u);
}

TEST(Sampler, TheSameSeedGivesTheSameTokens) {
  std::mt19937 random(5);
  std::vector<float> logits(1000);
  for (float& logit : logits) logit = static_cast<float>(random() % 1000) / 100;
  SamplerOptions options;
  options.seed = 42;
  Sampler a(options), b(options);
  options.seed = 43;
  Sampler c(options);
  int different = 0;
  for (int i = 0; i < 100; ++i) {
    const uint32_t token = a.sample(logits, {});
    EXPECT_EQ(token, b.sample(logits, {}));
    different += token != c.sample(logits, {});
  }
  EXPECT_GT(different, 10);
}

// Computed by a separate program. Part of the contract: these tokens must not change with the compiler, the C library
// or the machine.
TEST(Sampler, KnownTokens) {
  std::vector<float> logits(50);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 37 % 50) / 10;
  SamplerOptions options;
  options.temperature = 1.5f;
  options.min_p = 0.05f;
  options.seed = 7;
  Sampler sampler(options);
  std::vector<uint32_t> tokens;
  for (int i = 0; i < 12; ++i) tokens.push_back(sampler.sample(logits, {}));
  EXPECT_EQ(tokens, (std::vector<uint32_t>{32, 12, 39, 47, 48, 40, 4, 4, 20, 6, 27, 35}));
}

TEST(Sampler, SelectionAgreesWithSorting) {
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    const size_t n = 2 + random() % 200;
    std::vector<float> logits(n);
    for (float& logit : logits) logit = static_cast<float>(random() % 40) / 8;  // with ties
    SamplerOptions options = plain(round);
    options.top_k = random() % 3 == 0 ? 0 : 1 + random() % n;
    options.top_p = static_cast<float>(1 + random() % 100) / 100;
    // The definition, in plain form: sort, cut to k, cut to p.
    std::vector<uint32_t> order(n);
    for (uint32_t i = 0; i < n; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
    if (options.top_k > 0) order.resize(std::min<size_t>(n, options.top_k));
    double total = 0;
    for (const uint32_t id : order) total += std::exp(static_cast<double>(logits[id]));
    std::vector<uint32_t> allowed;
    double sum = 0;
    for (const uint32_t id : order) {
      if (sum > (options.top_p + 1e-9) * total) break;  // a set that ends just there may have one more
      allowed.push_back(id);
      sum += std::exp(static_cast<double>(logits[id]));
    }
    Sampler sampler(options);
    for (int i = 0; i < 50; ++i) {
      const uint32_t token = sampler.sample(logits, {});
      ASSERT_TRUE(std::find(allowed.begin(), allowed.end(), token) != allowed.end()) << "round " << round;
    }
  }
}

// Excluding by hand everything that a full sort puts after the k best leaves nothing to select and must draw the same.
TEST(Sampler, SelectingTheBestDrawsAsIfAllHadBeenSorted) {
  std::mt19937 random(11);
  for (int round = 0; round < 120; ++round) {
    const size_t n = 1 + random() % 3000;
    std::vector<float> logits(n);
    for (float& logit : logits) logit = static_cast<float>(random() % 97) / 8 - 6;  // with ties
    if (round % 4 == 1) std::sort(logits.begin(), logits.end());
    if (round % 4 == 2) std::sort(logits.rbegin(), logits.rend());
    for (size_t i = 0; i < n / 8; ++i) logits[random() % n] = -kInfinity;
    logits[random() % n] = 7;
    std::vector<uint32_t> history(random() % 80);
    for (uint32_t& id : history) id = static_cast<uint32_t>(random() % (n + 3));
    SamplerOptions options = plain(round);
    options.top_k = 1 + random() % (round % 3 == 0 ? n + 5 : 60);
    options.top_p = round % 2 ? 1.0f : static_cast<float>(1 + random() % 100) / 100;
    options.min_p = round % 5 == 0 ? 0.02f : 0.0f;
    options.repetition_penalty = round % 3 == 1 ? 1.3f : 1.0f;

    std::vector<float> penalised = logits;
    if (options.repetition_penalty != 1) {
      const size_t window = std::min<size_t>(history.size(), options.penalty_window);
      for (const uint32_t id : std::set<uint32_t>(history.end() - static_cast<ptrdiff_t>(window), history.end())) {
        if (id >= n) continue;
        float& logit = penalised[id];
        logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
      }
    }
    std::vector<uint32_t> order(n);
    for (uint32_t i = 0; i < n; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return penalised[a] > penalised[b]; });
    for (size_t i = options.top_k; i < n; ++i) penalised[order[i]] = -kInfinity;

    Sampler selecting(options);
    SamplerOptions rest = options;
    rest.top_k = options.top_k == 1 ? 1 : 0;  // greedy draws nothing
    rest.repetition_penalty = 1;
    Sampler sorted(rest);
    for (int i = 0; i < 10; ++i) ASSERT_EQ(selecting.sample(logits, history), sorted.sample(penalised, {})) << "round " << round;
  }
}

TEST(Sampler, BrokenLogitsAreNamedWhereverTheyAre) {
  for (const uint32_t top_k : {1u, 40u, 0u}) {
    for (const uint32_t at : {0u, 31u, 32u, 999u}) {
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
        SamplerOptions options = plain();
        options.top_k = top_k;
        options.repetition_penalty = 2;
        std::vector<float> logits(1000);
        for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 37 % 1000);
        logits[at] = bad;
        EXPECT_THROW(Sampler(options).sample(logits, std::vector<uint32_t>{31, 500}), Error) << top_k << " " << at;
      }
    }
  }
}

TEST(Sampler, BrokenLogitsAreNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {nan, kInfinity}) {
    try {
      Sampler(plain()).sample(std::vector<float>{0, bad}, {});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCorrupt);
      EXPECT_NE(std::string(error.what()).find("token 1"), std::string::npos);
    }
  }
  EXPECT_THROW(Sampler(plain()).sample(std::vector<float>{-kInfinity, -kInfinity}, {}), Error);
  EXPECT_THROW(Sampler(plain()).sample({}, {}), Error);
}

TEST(Sampler, OptionsOutOfRangeAreRefusedByName) {
  const auto message = [](auto change) -> std::string {
    SamplerOptions options;
    change(options);
    try {
      Sampler sampler(options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return error.what();
    }
    return "";
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(message([](auto& o) { o.temperature = -0.1f; }).find("temperature"), std::string::npos);
  EXPECT_NE(message([&](auto& o) { o.temperature = nan; }).find("temperature"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.top_p = 1.5f; }).find("top_p"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.min_p = -1; }).find("min_p"), std::string::npos);
  EXPECT_NE(message([](auto& o) { o.repetition_penalty = 0; }).find("repetition_penalty"), std::string::npos);
  EXPECT_EQ(message([](auto& o) { o.temperature = 0; }), "");
}

}  // namespace
}  // namespace tierpack::text

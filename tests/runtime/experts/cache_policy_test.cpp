#include "runtime/experts/cache_policy.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tierpack::experts {
namespace {

constexpr CacheShape kShape{2, 8};

void route(CachePolicy& policy, uint32_t layer, const std::vector<uint32_t>& experts) {
  policy.on_route(layer, experts, std::vector<uint32_t>(experts.size(), 1), 1);
}

// `tokens` tokens that choose the same experts in every layer, decoded one by one.
void decode(CachePolicy& policy, const CacheShape& shape, const std::vector<uint32_t>& experts, int tokens) {
  for (int t = 0; t < tokens; ++t) {
    for (uint32_t layer = 0; layer < shape.layers; ++layer) route(policy, layer, experts);
  }
}

// The experts of `layer`, most valuable first.
std::vector<uint32_t> ranking(const CachePolicy& policy, const CacheShape& shape, uint32_t layer) {
  std::vector<uint32_t> order(shape.experts);
  std::iota(order.begin(), order.end(), 0u);
  const auto values = policy.values();
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return values[shape.entry(layer, a)] > values[shape.entry(layer, b)];
  });
  return order;
}

std::vector<float> seed_of(const CacheShape& shape) {
  std::vector<float> seed(shape.entries());
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (uint32_t e = 0; e < shape.experts; ++e) {
      seed[shape.entry(layer, e)] = 0.5f / static_cast<float>(1 + (e + layer) % shape.experts);
    }
  }
  return seed;
}

class EveryPolicy : public testing::TestWithParam<std::string_view> {};

TEST_P(EveryPolicy, BeginsInTheOrderOfItsSeed) {
  const auto policy = make_policy(GetParam(), kShape);
  ASSERT_EQ(policy->values().size(), kShape.entries());
  policy->seed(seed_of(kShape));
  EXPECT_EQ(ranking(*policy, kShape, 0), (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(ranking(*policy, kShape, 1), (std::vector<uint32_t>{7, 0, 1, 2, 3, 4, 5, 6}));
}

TEST_P(EveryPolicy, GivesTheSameValuesForTheSameCalls) {
  const auto a = make_policy(GetParam(), kShape);
  const auto b = make_policy(GetParam(), kShape);
  std::mt19937 random(7);
  for (int t = 0; t < 500; ++t) {
    const uint32_t tokens = 1 + static_cast<uint32_t>(random() % 4);
    for (uint32_t layer = 0; layer < kShape.layers; ++layer) {
      std::vector<uint32_t> experts;
      std::vector<uint32_t> counts;
      for (uint32_t e = 0; e < kShape.experts; ++e) {
        if (random() % 3 != 0) continue;
        experts.push_back(e);
        counts.push_back(1 + static_cast<uint32_t>(random() % tokens));
      }
      a->on_route(layer, experts, counts, tokens);
      b->on_route(layer, experts, counts, tokens);
    }
  }
  EXPECT_TRUE(std::equal(a->values().begin(), a->values().end(), b->values().begin()));
  for (const double value : a->values()) EXPECT_TRUE(value == value && value >= 0);
}

INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicy, testing::ValuesIn(policy_names().begin(), policy_names().end()),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(CachePolicies, TheFirstIsAdaptiveAndAnUnknownNameIsRefused) {
  EXPECT_EQ(policy_names().front(), "adaptive");
  try {
    make_policy("clock", kShape);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(e.what()).find("lfru"), std::string::npos);
  }
}

TEST(LruPolicy, TheLastUsedIsWorthMost) {
  const auto policy = make_policy("lru", kShape);
  for (const uint32_t e : {3u, 5u, 3u, 1u}) route(*policy, 0, {e});
  const auto order = ranking(*policy, kShape, 0);
  EXPECT_EQ(std::vector(order.begin(), order.begin() + 3), (std::vector<uint32_t>{1, 3, 5}));
}

TEST(LfuPolicy, TheMostUsedIsWorthMostHoweverLongAgo) {
  const auto policy = make_policy("lfu", kShape);
  decode(*policy, kShape, {2}, 10);
  decode(*policy, kShape, {6}, 9);
  EXPECT_EQ(ranking(*policy, kShape, 1)[0], 2u);
  policy->on_route(0, std::vector<uint32_t>{6}, std::vector<uint32_t>{5}, 5);
  EXPECT_EQ(ranking(*policy, kShape, 0)[0], 6u);
}

TEST(LfruPolicy, FrequencyFadesWithTheTimeSinceTheLastUse) {
  const auto policy = make_policy("lfru", kShape);
  decode(*policy, kShape, {2}, 10);
  decode(*policy, kShape, {6}, 2);
  EXPECT_EQ(ranking(*policy, kShape, 0)[0], 2u);  // 10 / 3 against 2 / 1
  decode(*policy, kShape, {6}, 2);
  EXPECT_EQ(ranking(*policy, kShape, 0)[0], 6u);  // 10 / 5 against 4 / 1
}

TEST(StaticPolicy, NeverLearns) {
  const auto policy = make_policy("static", kShape);
  policy->seed(seed_of(kShape));
  decode(*policy, kShape, {7}, 1000);
  EXPECT_EQ(ranking(*policy, kShape, 0).back(), 7u);
}

TEST(AdaptivePolicy, WorksWithoutASeed) {
  const auto policy = make_policy("adaptive", kShape);
  decode(*policy, kShape, {1, 4}, 3);
  const auto order = ranking(*policy, kShape, 1);
  EXPECT_EQ(std::vector(order.begin(), order.begin() + 2), (std::vector<uint32_t>{1, 4}));
}

TEST(AdaptivePolicy, TheSeedOutweighsTheFirstTokens) {
  const auto policy = make_policy("adaptive", kShape);
  policy->seed(seed_of(kShape));
  decode(*policy, kShape, {6}, 1);
  decode(*policy, kShape, {5}, 1);
  const auto order = ranking(*policy, kShape, 0);
  EXPECT_EQ(order[0], 0u);
}

TEST(AdaptivePolicy, AChangeOfWorkIsLearnedWithin256Tokens) {
  const CacheShape shape{1, 16};
  const auto policy = make_policy("adaptive", shape);
  std::mt19937 random(1);
  const auto work = [&](uint32_t from, int tokens) {
    for (int t = 0; t < tokens; ++t) {
      const uint32_t a = from + static_cast<uint32_t>(random() % 4);
      const uint32_t b = from + (a - from + 1 + static_cast<uint32_t>(random() % 3)) % 4;
      route(*policy, 0, {a, b});
    }
  };
  work(0, 2000);
  work(8, 256);
  auto order = ranking(*policy, shape, 0);
  order.resize(4);
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, (std::vector<uint32_t>{8, 9, 10, 11}));
}

TEST(AdaptivePolicy, LearnsWhichExpertsFollowEachOther) {
  const CacheShape shape{2, 16};
  const auto policy = make_policy("adaptive", shape);
  std::mt19937 random(2);
  // 0 is followed by 1, 2 by 3, and so on; all are used equally often.
  for (int t = 0; t < 4000; ++t) {
    const auto pair = static_cast<uint32_t>(random() % 8);
    decode(*policy, shape, {2 * pair}, 1);
    decode(*policy, shape, {2 * pair + 1}, 1);
  }
  decode(*policy, shape, {6}, 1);
  const auto values = policy->values();
  for (uint32_t e = 1; e < 16; e += 2) {
    if (e != 7) { EXPECT_GT(values[shape.entry(1, 7)], 1.5 * values[shape.entry(1, e)]) << e; }
  }
}

TEST(AdaptivePolicy, AModelTooLargeForPairsStillHasRates) {
  const CacheShape shape{40, 1024};  // 160 MiB of pairs
  const auto policy = make_policy("adaptive", shape);
  route(*policy, 39, {1023, 5});
  EXPECT_GT(policy->values()[shape.entry(39, 1023)], 0);
  EXPECT_EQ(ranking(*policy, shape, 39)[1], 1023u);
}

TEST(AdaptivePolicy, APromptDoesNotDisplaceTheHotSet) {
  const CacheShape shape{1, 32};
  const auto policy = make_policy("adaptive", shape);
  decode(*policy, shape, {0, 1, 2, 3}, 300);
  // A prompt of 512 tokens that uses every other expert a little.
  std::vector<uint32_t> experts(28);
  std::iota(experts.begin(), experts.end(), 4u);
  policy->on_route(0, experts, std::vector<uint32_t>(28, 512 * 4 / 28), 512);
  auto order = ranking(*policy, shape, 0);
  order.resize(4);
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, (std::vector<uint32_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace tierpack::experts

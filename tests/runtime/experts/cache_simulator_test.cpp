#include "runtime/experts/cache_simulator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tierpack::experts {
namespace {

constexpr uint64_t kRecord = 4096;

// A recording of `tokens` decoded tokens from `ids(token, layer)`.
template <typename Ids>
std::vector<std::byte> record(const RouteTraceHeader& header, uint32_t tokens, const Ids& ids) {
  std::vector<std::byte> out;
  RouteTraceWriter writer(header, [&](Bytes bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); });
  for (uint32_t t = 0; t < tokens; ++t) {
    std::vector<uint16_t> chunk;
    for (uint32_t layer = 0; layer < header.layers.size(); ++layer) {
      for (const uint16_t id : ids(t, layer)) chunk.push_back(id);
    }
    writer.add({1, t == 0, chunk});
  }
  writer.finish();
  return out;
}

RouteTraceHeader shape_of(uint32_t layers, uint32_t experts, uint32_t used) {
  RouteTraceHeader header;
  header.experts = experts;
  header.used = used;
  for (uint32_t i = 0; i < layers; ++i) header.layers.push_back({i, experts, kRecord});
  return header;
}

RouteSequence sequence_of(const std::vector<std::vector<std::byte>>& recordings) {
  RouteSequence routes;
  for (const auto& bytes : recordings) {
    const MemorySource source(bytes, "t.trace");
    RouteTraceReader reader(source);
    routes.append(reader, "t.trace");
  }
  return routes;
}

SimulationResult run(const RouteSequence& routes, std::string_view policy, uint64_t slots, std::span<const float> seed = {}) {
  SimulationOptions options;
  options.capacity_bytes = slots * kRecord;
  options.seed = seed;
  return simulate(routes, policy, options);
}

std::vector<uint16_t> choose(std::mt19937& random, uint32_t experts, uint32_t used) {
  std::vector<uint16_t> ids;
  while (ids.size() < used) {
    // Low numbers are likelier.
    const auto id = static_cast<uint16_t>(std::min(random() % experts, random() % experts));
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

// The most hits that any choice of residents gives: every set of residents after every request. One layer.
uint64_t most_hits(const RouteSequence& routes, uint32_t slots) {
  std::map<uint32_t, uint64_t> best = {{0u, 0}};  // by set of residents
  for (size_t chunk = 0; chunk < routes.chunk_tokens().size(); ++chunk) {
    uint32_t asked = 0;
    for (const uint32_t e : routes.request(chunk, 0).experts) asked |= 1u << e;
    std::map<uint32_t, uint64_t> next;
    for (const auto& [held, hits] : best) {
      const uint64_t now = hits + static_cast<uint64_t>(std::popcount(held & asked));
      const uint32_t all = held | asked;
      for (uint32_t kept = all;; kept = (kept - 1) & all) {
        if (std::popcount(kept) <= static_cast<int>(slots)) {
          uint64_t& entry = next[kept];
          entry = std::max(entry, now);
        }
        if (kept == 0) break;
      }
    }
    best = std::move(next);
  }
  uint64_t most = 0;
  for (const auto& [held, hits] : best) most = std::max(most, hits);
  return most;
}

TEST(CacheSimulator, BeladyIsTheBestThereIs) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const RouteSequence routes = sequence_of({record(shape_of(1, 8, 2), 40, [&](uint32_t, uint32_t) { return choose(random, 8, 2); })});
    for (uint32_t slots = 1; slots <= 6; ++slots) {
      EXPECT_EQ(run(routes, kBelady, slots).hits, most_hits(routes, slots)) << "seed " << seed << ", " << slots << " slots";
    }
  }
}

TEST(CacheSimulator, NoPolicyBeatsBeladyAndAllOfThemHitOnceEverythingFits) {
  std::mt19937 random(5);
  const RouteSequence routes = sequence_of({record(shape_of(3, 16, 3), 200, [&](uint32_t, uint32_t) { return choose(random, 16, 3); })});
  std::vector<float> seed(48);
  for (size_t i = 0; i < seed.size(); ++i) seed[i] = 1 / static_cast<float>(1 + i % 16);
  for (const uint64_t slots : {3u, 9u, 20u, 40u, 48u}) {
    for (const bool seeded : {false, true}) {
      const std::span<const float> given = seeded ? std::span<const float>(seed) : std::span<const float>();
      const SimulationResult bound = run(routes, kBelady, slots, given);
      for (const std::string_view policy : policy_names()) {
        const SimulationResult found = run(routes, policy, slots, given);
        EXPECT_EQ(found.requests, 200u * 3 * 3);
        EXPECT_LE(found.hits, bound.hits) << policy << ", " << slots << " slots";
        EXPECT_EQ(found.bytes_read, (found.requests - found.hits) * kRecord);
        EXPECT_EQ(found.slots, slots);
        if (slots == 48 && seeded) { EXPECT_EQ(found.hits, found.requests) << policy; }
        if (slots == 48) { EXPECT_EQ(found.moves, 0u) << policy; }
      }
    }
  }
}

TEST(CacheSimulator, ForesightLiesBetweenAdaptiveAndBelady) {
  std::mt19937 random(6);
  const RouteSequence routes = sequence_of({record(shape_of(4, 16, 2), 400, [&](uint32_t, uint32_t) { return choose(random, 16, 2); })});
  for (const uint64_t slots : {16u, 32u}) {
    const uint64_t known = run(routes, kForesight, slots).hits;
    EXPECT_GT(known, run(routes, "adaptive", slots).hits);
    EXPECT_LT(known, run(routes, kBelady, slots).hits);
  }
}

// Draws by popularity (Zipf), keeps each expert of the last token with probability `kept`, and lets pairs of experts change
// places every `period` tokens.
class SyntheticRouting {
 public:
  SyntheticRouting(double kept, uint32_t period) : kept_(kept), period_(period), rank_(kLayers, std::vector<uint32_t>(kExperts)), last_(kLayers) {
    for (auto& rank : rank_) {
      std::iota(rank.begin(), rank.end(), 0u);
      shuffle(rank, kExperts);
    }
  }
  RouteSequence sequence(uint32_t tokens) {
    return sequence_of({record(shape_of(kLayers, kExperts, kUsed), tokens, [&](uint32_t t, uint32_t layer) {
      if (period_ > 0 && t > 0 && t % period_ == 0) shuffle(rank_[layer], kExperts / 4);
      return next(layer);
    })});
  }
  static constexpr uint32_t kLayers = 4, kExperts = 64, kUsed = 4;

 private:
  double uniform() { return static_cast<double>(random_() >> 8) / static_cast<double>(1 << 24); }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(uniform() * n); }
  void shuffle(std::vector<uint32_t>& rank, uint32_t swaps) {
    for (uint32_t i = 0; i < swaps; ++i) std::swap(rank[below(kExperts)], rank[below(kExperts)]);
  }
  std::vector<uint16_t> next(uint32_t layer) {
    std::vector<uint16_t> ids;
    for (const uint16_t e : last_[layer]) {
      if (uniform() < kept_) ids.push_back(e);
    }
    while (ids.size() < kUsed) {
      // Density 1 / rank.
      const auto at = static_cast<uint32_t>(std::exp(uniform() * std::log(kExperts + 1.0))) - 1;
      const auto id = static_cast<uint16_t>(rank_[layer][std::min(at, kExperts - 1)]);
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
    return last_[layer] = ids;
  }
  std::mt19937 random_{11};
  double kept_;
  uint32_t period_;
  std::vector<std::vector<uint32_t>> rank_;
  std::vector<std::vector<uint16_t>> last_;
};

TEST(CacheSimulator, AdaptiveHoldsItsOwnOnEveryKindOfRouting) {
  struct Kind {
    double kept;
    uint32_t period;
    double lead;  // over the better of lru and lfu, in hits per request
  };
  for (const Kind& kind : {Kind{0, 0, -0.005}, Kind{0.4, 0, 0.02}, Kind{0, 400, 0.02}, Kind{0.4, 400, 0.01}}) {
    SyntheticRouting routing(kind.kept, kind.period);
    const RouteSequence routes = routing.sequence(3000);
    for (const uint64_t slots : {64u, 128u}) {
      const double best = std::max(run(routes, "lru", slots).hit_rate(), run(routes, "lfu", slots).hit_rate());
      EXPECT_GT(run(routes, "adaptive", slots).hit_rate(), best + kind.lead)
          << "kept " << kind.kept << ", period " << kind.period << ", " << slots << " slots";
    }
  }
}

TEST(CacheSimulator, LruByHand) {
  const std::vector<uint16_t> order = {0, 1, 0, 2, 0, 1, 1};  // two slots: m m h m h m h
  const RouteSequence routes = sequence_of({record(shape_of(1, 4, 1), 7, [&](uint32_t t, uint32_t) { return std::vector{order[t]}; })});
  const SimulationResult found = run(routes, "lru", 2);
  EXPECT_EQ(found.hits, 3u);
  EXPECT_EQ(found.moves, 2u);
  EXPECT_EQ(found.bytes_read, 4 * kRecord);
}

TEST(CacheSimulator, ALayersOwnRequestIsHeldWhileItRuns) {
  // Both experts of token 0 stay for token 1, though each was worth least when the other came.
  const RouteSequence routes = sequence_of({record(shape_of(1, 8, 2), 2, [&](uint32_t, uint32_t) { return std::vector<uint16_t>{6, 7}; })});
  std::vector<float> seed = {0.9f, 0.8f, 0.7f, 0.6f, 0.5f, 0.4f, 0.f, 0.f};
  EXPECT_EQ(run(routes, "static", 2, seed).hits, 2u);
}

TEST(CacheSimulator, AChunkLargerThanTheCacheStreamsThrough) {
  const RouteTraceHeader header = shape_of(1, 8, 2);
  std::vector<std::byte> bytes;
  RouteTraceWriter writer(header, [&](Bytes b) { bytes.insert(bytes.end(), b.begin(), b.end()); });
  const std::vector<uint16_t> prompt = {0, 1, 2, 3, 4, 5, 0, 1};
  writer.add({4, true, prompt});
  writer.finish();
  const RouteSequence routes = sequence_of({bytes});
  const SimulationResult found = run(routes, "adaptive", 2);
  EXPECT_EQ(found.requests, 6u);
  EXPECT_EQ(found.hits, 0u);
  EXPECT_EQ(found.moves, 4u);
  EXPECT_EQ(routes.request(0, 0).counts[0], 2u);
  EXPECT_EQ(run(routes, "lru", 0).moves, 0u);
}

TEST(CacheSimulator, WindowsStartAnewWithEveryRecording) {
  const RouteTraceHeader header = shape_of(1, 8, 1);
  const auto one = record(header, 100, [](uint32_t, uint32_t) { return std::vector<uint16_t>{1}; });
  const auto other = record(header, 70, [](uint32_t, uint32_t) { return std::vector<uint16_t>{2}; });
  const SimulationResult found = run(sequence_of({one, other}), "adaptive", 1);
  ASSERT_EQ(found.windows.size(), 4u);
  EXPECT_EQ(found.windows[1].first_token, 64u);
  EXPECT_EQ(found.windows[1].tokens, 36u);
  EXPECT_EQ(found.windows[2].recording, 1u);
  EXPECT_EQ(found.windows[2].first_token, 0u);
  EXPECT_EQ(found.windows[2].hits, 63u);
  EXPECT_EQ(found.windows[3].hits, 6u);
}

TEST(CacheSimulator, RecordingsOfAnotherPackAreRefused) {
  const auto ids = [](uint32_t, uint32_t) { return std::vector<uint16_t>{1}; };
  const auto one = record(shape_of(1, 8, 1), 3, ids);
  const auto other = record(shape_of(1, 9, 1), 3, ids);
  try {
    sequence_of({one, other});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUsage);
  }
  EXPECT_THROW(sequence_of({record(shape_of(1, 8, 1), 0, ids)}), Error);
}

}  // namespace
}  // namespace tierpack::experts

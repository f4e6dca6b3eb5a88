#include "calibrate/expert_counts.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "tests/support/fake_engine.h"

namespace tierpack::calibrate {
namespace {

using testing_support::FakeEngine;
using testing_support::FakeOptions;

const ModelIdentity kIdentity{Sha256::of(as_bytes("routers")), "test"};

Profile profile_of(FakeEngine& engine, const std::vector<Corpus>& corpora, uint32_t window = 0) {
  CountOptions options;
  options.window = window;
  return count_experts(engine, kIdentity, corpora, tokenize(engine, corpora), options);
}

uint64_t layer_sum(const Profile& p, uint32_t layer) {
  uint64_t sum = 0;
  for (uint32_t e = 0; e < p.experts; ++e) sum += p.count(layer, e);
  return sum;
}

TEST(ExpertCounts, EveryTokenCountsItsExperts) {
  FakeEngine engine;
  const Profile p = profile_of(engine, {{"a.txt", std::string(100, 'a')}, {"b.txt", "hello"}});
  EXPECT_EQ(p.layers, 3u);
  EXPECT_EQ(p.experts, 8u);
  EXPECT_EQ(p.used, 2u);
  EXPECT_EQ(p.tokens(), 105u);
  ASSERT_EQ(p.corpora.size(), 2u);
  EXPECT_EQ(p.corpora[0].name, "a.txt");
  EXPECT_EQ(p.corpora[1].tokens, 5u);
  EXPECT_EQ(p.corpora[1].sha256, Sha256::of(as_bytes("hello")));
  EXPECT_EQ(p.routing_id, kIdentity.routing_id);
  EXPECT_EQ(p.tool_version, "test");
  for (uint32_t layer = 0; layer < 3; ++layer) EXPECT_EQ(layer_sum(p, layer), 105u * 2);
  EXPECT_DOUBLE_EQ(std::accumulate(p.weights.begin(), p.weights.end(), 0.0), 3 * 105.0);
  EXPECT_EQ(parse_profile(encode_profile(p), "round trip").counts, p.counts);
}

TEST(ExpertCounts, DeterministicForAnyChunk) {
  const std::vector<Corpus> corpora = {{"a.txt", "The quick brown fox jumps over the lazy dog. 0123456789"}};
  FakeEngine small(FakeOptions{.chunk = 1}), large(FakeOptions{.chunk = 64});
  EXPECT_EQ(encode_profile(profile_of(small, corpora)), encode_profile(profile_of(large, corpora)));
  EXPECT_EQ(encode_profile(profile_of(small, corpora, 10)), encode_profile(profile_of(large, corpora, 10)));
}

TEST(ExpertCounts, WindowsBeginAfresh) {
  FakeEngine engine(FakeOptions{.context = 32});
  // Two windows of the same text are the same text twice.
  const Profile once = profile_of(engine, {{"a", "0123456789"}});
  const Profile twice = profile_of(engine, {{"a", "01234567890123456789"}}, 10);
  for (size_t i = 0; i < once.counts.size(); ++i) EXPECT_EQ(twice.counts[i], 2 * once.counts[i]);
  // Longer than the context: in windows of it.
  EXPECT_EQ(profile_of(engine, {{"a", std::string(100, 'x')}}).tokens(), 100u);
  EXPECT_THROW(profile_of(engine, {{"a", "x"}}, 33), Error);
}

TEST(ExpertCounts, EachWindowGetsTheBeginningToken) {
  FakeEngine engine(FakeOptions{.context = 32, .bos = true});
  const Profile p = profile_of(engine, {{"a", std::string(20, 'x')}}, 11);
  EXPECT_EQ(p.tokens(), 22u);
  for (uint32_t layer = 0; layer < 3; ++layer) EXPECT_EQ(layer_sum(p, layer), 44u);
  EXPECT_THROW(profile_of(engine, {{"a", "x"}}, 1), Error);
}

TEST(ExpertCounts, ProgressAndInterruption) {
  FakeEngine engine(FakeOptions{.chunk = 8});
  const std::vector<Corpus> corpora = {{"a", std::string(100, 'x')}};
  CountOptions options;
  uint64_t seen = 0;
  options.on_tokens = [&](uint64_t n) { seen += n; };
  count_experts(engine, kIdentity, corpora, tokenize(engine, corpora), options);
  EXPECT_EQ(seen, 100u);
  options.should_stop = [&] { return seen >= 150; };
  try {
    count_experts(engine, kIdentity, corpora, tokenize(engine, corpora), options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInterrupted);
  }
}

TEST(ExpertCounts, EmptyCorporaAreRefused) {
  FakeEngine engine;
  EXPECT_THROW(profile_of(engine, {{"empty.txt", ""}}), Error);
}

TEST(ExpertCounts, MergingIsCountingTogether) {
  FakeEngine engine;
  const Corpus a{"a", "some text"}, b{"b", "another text, longer"};
  const Profile both = profile_of(engine, {a, b});
  const Profile merged = merge_profiles(profile_of(engine, {a}), profile_of(engine, {b}));
  EXPECT_EQ(merged.counts, both.counts);
  EXPECT_EQ(merged.tokens(), both.tokens());
}

TEST(ExpertCounts, Coverage) {
  Profile p;
  p.layers = 2;
  p.experts = 8;
  p.counts = {50, 0, 30, 5, 5, 5, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  const auto layers = coverage(p);
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].routed, 100u);
  EXPECT_DOUBLE_EQ(layers[0].top_quarter, 0.8);
  EXPECT_EQ(layers[0].unused, 2u);
  EXPECT_EQ(layers[1].routed, 0u);
  EXPECT_EQ(layers[1].top_quarter, 0);
  EXPECT_EQ(layers[1].unused, 8u);
}

}  // namespace
}  // namespace tierpack::calibrate

#include "formats/profile.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tierpack {
namespace {

Profile example() {
  Profile p;
  p.architecture = "qwen4exp";
  p.routing_id = Sha256::of(as_bytes("routers"));
  p.layers = 2;
  p.experts = 3;
  p.used = 2;
  p.tool_version = "0.1.0";
  p.corpora.push_back({"sto\"ries\n", Sha256::of(as_bytes("text")), 12});
  p.counts = {1, 2, 3, 4, 5, uint64_t{1} << 60};
  p.weights = {0.1, 0, 1e-300, 3, 1.0 / 3, 1e20};
  return p;
}

template <typename Action>
ErrorKind kind_of(Action action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_GT(std::string(e.what()).size(), 20u);
    return e.kind();
  }
  return ErrorKind::kInternal;
}

TEST(Profile, WrittenAndReadBackExactly) {
  const std::string text = encode_profile(example());
  const Profile read = parse_profile(text, "test");
  EXPECT_EQ(read.architecture, "qwen4exp");
  EXPECT_EQ(read.routing_id, example().routing_id);
  EXPECT_EQ(read.layers, 2u);
  EXPECT_EQ(read.experts, 3u);
  EXPECT_EQ(read.used, 2u);
  EXPECT_EQ(read.tool_version, "0.1.0");
  ASSERT_EQ(read.corpora.size(), 1u);
  EXPECT_EQ(read.corpora[0].name, "sto\"ries\n");
  EXPECT_EQ(read.corpora[0].sha256, example().corpora[0].sha256);
  EXPECT_EQ(read.tokens(), 12u);
  EXPECT_EQ(read.counts, example().counts);
  EXPECT_EQ(read.weights, example().weights);
  EXPECT_EQ(read.count(1, 0), 4u);
  EXPECT_EQ(encode_profile(read), text);
  EXPECT_EQ(read.id(), example().id());
}

TEST(Profile, IdNamesTheContent) {
  Profile other = example();
  other.counts[0] += 1;
  EXPECT_NE(other.id(), example().id());
}

TEST(Profile, SavedAndRead) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "test.profile.json";
  write_profile(path, example());
  EXPECT_EQ(read_profile(path).id(), example().id());
  std::filesystem::remove(path);
}

TEST(Profile, BadContentIsCorrupt) {
  const std::string good = encode_profile(example());
  const auto edited = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::string bad[] = {
      edited("tierpack-profile", "tierpack-lock"),
      edited("\"layers\": 2", "\"layers\": 3"),
      edited("\"layers\": 2", "\"layers\": 0"),
      edited("\"layers\": 2", "\"layers\": 18446744073709551615"),
      edited("\"experts\": 3", "\"experts\": 4"),
      edited("\"experts\": 3", "\"experts\": 65537"),
      edited("\"used\": 2", "\"used\": 4"),
      edited("\"tokens\": 12", "\"tokens\": 1.5"),
      edited("[1,2,3]", "[1,-2,3]"),
      edited("[1,2,3]", "[1,2.5,3]"),
      edited("[1,2,3]", "[1,2]"),
      edited("[1,2,3]", "{}"),
      edited("[0.1,", "[-0.1,"),
      edited("[0.1,", "[1e999,"),
      edited("[0.1,", "[\"a\","),
      edited(example().routing_id.hex(), "abc"),
      good.substr(0, good.size() - 3),
      "null",
  };
  for (const std::string& text : bad) {
    EXPECT_EQ(kind_of([&] { parse_profile(text, "test.json"); }), ErrorKind::kCorrupt) << text;
  }
  EXPECT_EQ(kind_of([&] { parse_profile(edited("\"version\": 1,", "\"version\": 9,"), "t"); }),
            ErrorKind::kUnsupported);
  // Sizes are refused before anything of that size is made.
  EXPECT_EQ(kind_of([&] {
              parse_profile(edited("\"layers\": 2, \"experts\": 3", "\"layers\": 4096, \"experts\": 65536"), "t");
            }),
            ErrorKind::kCorrupt);
}

TEST(Profile, MixTakesSharesWhateverTheLengths) {
  Profile a = example(), b = example();
  a.counts = {20, 4, 0, 24, 0, 0};  // 12 tokens
  b.counts = {0, 0, 72, 0, 0, 72};
  b.corpora[0].tokens = 36;
  b.corpora[0].name = "code";
  a.weights = b.weights = {1, 0, 0, 0, 0, 0};
  const Profile mixed = mix_profiles({{a, 3}, {b, 1}});
  // 48 tokens: a stands for 36 of them and b for 12.
  EXPECT_EQ(mixed.counts, (std::vector<uint64_t>{60, 12, 24, 72, 0, 24}));
  EXPECT_DOUBLE_EQ(mixed.weights[0], 3 + 1.0 / 3);
  EXPECT_EQ(mixed.tokens(), 48u);
  ASSERT_EQ(mixed.corpora.size(), 2u);
  EXPECT_EQ(mixed.corpora[1].name, "code (weight 1)");
  // What was used stays used.
  EXPECT_EQ(mix_profiles({{a, 1e-9}, {b, 1}}).counts[1], 1u);
}

TEST(Profile, MixRefusesOthers) {
  Profile other = example();
  other.routing_id = Sha256::of(as_bytes("x"));
  EXPECT_EQ(kind_of([&] { mix_profiles({{example(), 2}, {other, 1}}); }), ErrorKind::kUsage);
  Profile empty = example();
  empty.corpora.clear();
  EXPECT_EQ(kind_of([&] { mix_profiles({{example(), 2}, {empty, 1}}); }), ErrorKind::kUsage);
  EXPECT_EQ(kind_of([&] { mix_profiles({}); }), ErrorKind::kUsage);
}

TEST(Profile, MergeSums) {
  Profile b = example();
  b.corpora[0].name = "code";
  const Profile merged = merge_profiles(example(), b);
  EXPECT_EQ(merged.counts[5], uint64_t{1} << 61);
  EXPECT_EQ(merged.weights[3], 6);
  EXPECT_EQ(merged.tokens(), 24u);
  ASSERT_EQ(merged.corpora.size(), 2u);
  EXPECT_EQ(merged.corpora[1].name, "code");
}

TEST(Profile, MergeOfDifferentModelsIsRefused) {
  Profile b = example();
  b.routing_id = Sha256::of(as_bytes("other routers"));
  EXPECT_EQ(kind_of([&] { merge_profiles(example(), b); }), ErrorKind::kUsage);
  b = example();
  b.used = 1;
  EXPECT_EQ(kind_of([&] { merge_profiles(example(), b); }), ErrorKind::kUsage);
  b = example();
  b.counts[0] = ~uint64_t{0};
  EXPECT_EQ(kind_of([&] { merge_profiles(example(), b); }), ErrorKind::kUsage);
}

TEST(Profile, MustMatchTheModel) {
  const Profile p = example();
  require_profile_matches(p, p.routing_id, 2, 3, "p.json");
  EXPECT_EQ(kind_of([&] { require_profile_matches(p, p.routing_id, 3, 3, "p.json"); }), ErrorKind::kUsage);
  EXPECT_EQ(kind_of([&] { require_profile_matches(p, Sha256Digest{}, 2, 3, "p.json"); }), ErrorKind::kUsage);
}

}  // namespace
}  // namespace tierpack

#include "formats/imatrix.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/gguf_builder.h"

namespace tierpack {
namespace {

using testing_support::GgufBuilder;
using testing_support::thrown_by;

const std::string kDense = "blk.0.attn_q.weight";
const std::string kStack = "blk.0.ffn_gate_exps.weight";

struct Content {
  std::vector<float> dense_sums = {2, 4, 6, 0};
  std::vector<float> stack_sums = {1, 2, 3, 4, 0, 0, 0, 0, 10, 20, 30, 40};
  std::vector<float> stack_counts = {2, 0, 10};
  std::string type = "imatrix";
};

GgufBuilder builder(const Content& c) {
  GgufBuilder b;
  b.string("general.type", c.type).strings("imatrix.datasets", {"a.txt", "b.txt"});
  b.u32("imatrix.chunk_count", 3).u32("imatrix.chunk_size", 4);
  b.add_f32(kDense + ".in_sum2", {4, 1}, c.dense_sums).add_f32(kDense + ".counts", {1, 1}, {2});
  b.add_f32(kStack + ".in_sum2", {4, 3}, c.stack_sums).add_f32(kStack + ".counts", {1, 3}, c.stack_counts);
  return b;
}

Imatrix parse(const std::vector<std::byte>& bytes) { return read_imatrix(MemorySource(bytes, "test.gguf")); }

class Older {
 public:
  template <typename T>
  Older& put(const T& value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), first, first + sizeof value);
    return *this;
  }
  Older& text(std::string_view value) {
    put(static_cast<int32_t>(value.size()));
    const Bytes raw = as_bytes(value);
    bytes.insert(bytes.end(), raw.begin(), raw.end());
    return *this;
  }
  Older& entry(std::string_view name, int32_t calls, const std::vector<float>& values) {
    text(name).put(calls).put(static_cast<int32_t>(values.size()));
    for (const float v : values) put(v);
    return *this;
  }
  std::vector<std::byte> bytes;
};

std::vector<std::byte> older_file() {
  return Older()
      .put(int32_t{2})
      .entry(kStack, 2, {2, 4, 6, 8})
      .entry(kDense, 4, {4, 8})
      .put(int32_t{7})
      .text("c.txt")
      .bytes;
}

TEST(Imatrix, GgufForm) {
  const Imatrix m = parse(builder({}).build());
  EXPECT_EQ(m.datasets, (std::vector<std::string>{"a.txt", "b.txt"}));
  EXPECT_EQ(m.chunks, 3u);
  EXPECT_EQ(m.chunk_tokens, 4u);
  EXPECT_TRUE(m.has_expert_counts);
  ASSERT_EQ(m.entries.size(), 2u);
  const Imatrix::Entry* const stack = m.find(kStack);
  ASSERT_NE(stack, nullptr);
  EXPECT_EQ(stack->columns, 4u);
  EXPECT_EQ(stack->matrices, 3u);
  EXPECT_EQ(stack->counts, (std::vector<double>{2, 0, 10}));
  EXPECT_EQ(m.find("blk.0.ffn_gate"), nullptr);
  EXPECT_EQ(m.find(""), nullptr);
}

TEST(Imatrix, ImportanceIsTheMeanSquare) {
  const Imatrix m = parse(builder({}).build());
  EXPECT_EQ(m.importance(kDense, 4, 1, 0), (std::vector<float>{1, 2, 3, 0}));
  EXPECT_EQ(m.importance(kStack, 4, 3, 0), (std::vector<float>{0.5f, 1, 1.5f, 2}));
  EXPECT_EQ(m.importance(kStack, 4, 3, 1), (std::vector<float>{1, 1, 1, 1}));  // never reached
  EXPECT_EQ(m.importance(kStack, 4, 3, 2), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_TRUE(m.importance("output.weight", 4, 1, 0).empty());
  EXPECT_EQ(thrown_by([&] { m.importance(kDense, 8, 1, 0); }).kind, ErrorKind::kUsage);
  EXPECT_EQ(thrown_by([&] { m.importance(kStack, 4, 4, 3); }).kind, ErrorKind::kUsage);
  EXPECT_EQ(thrown_by([&] { m.importance(kStack, 2, 6, 5); }).kind, ErrorKind::kUsage);
}

TEST(Imatrix, AllZeroSumsCountAsUnknown) {
  Content c;
  c.dense_sums = {0, 0, 0, 0};
  EXPECT_EQ(parse(builder(c).build()).importance(kDense, 4, 1, 0), (std::vector<float>{1, 1, 1, 1}));
}

TEST(Imatrix, OlderForm) {
  const Imatrix m = parse(older_file());
  EXPECT_FALSE(m.has_expert_counts);
  EXPECT_EQ(m.chunks, 7u);
  EXPECT_EQ(m.datasets, std::vector<std::string>{"c.txt"});
  EXPECT_EQ(m.importance(kDense, 2, 1, 0), (std::vector<float>{1, 2}));
  EXPECT_EQ(m.importance(kStack, 2, 2, 0), (std::vector<float>{1, 2}));
  EXPECT_EQ(m.importance(kStack, 2, 2, 1), (std::vector<float>{3, 4}));
  EXPECT_EQ(thrown_by([&] { m.importance(kStack, 3, 2, 1); }).kind, ErrorKind::kUsage);
  // Without what follows the entries.
  const Imatrix bare = parse(Older().put(int32_t{1}).entry(kDense, 0, {4, 8}).bytes);
  EXPECT_EQ(bare.chunks, 0u);
  EXPECT_TRUE(bare.datasets.empty());
  EXPECT_EQ(bare.importance(kDense, 2, 1, 0), (std::vector<float>{1, 1}));
}

TEST(Imatrix, OtherGgufsAreUnsupported) {
  Content c;
  c.type = "model";
  EXPECT_EQ(thrown_by([&] { parse(builder(c).build()); }).kind, ErrorKind::kUnsupported);
  EXPECT_EQ(thrown_by([&] { parse(GgufBuilder().string("general.architecture", "qwen3moe").build()); }).kind,
            ErrorKind::kUnsupported);
}

TEST(Imatrix, BadGgufContentIsCorrupt) {
  const float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  const auto kind_of = [](const GgufBuilder& b) { return thrown_by([&] { parse(b.build()); }).kind; };
  for (const float bad : {-1.0f, kNan, kInf}) {
    Content c;
    c.stack_counts[1] = bad;
    EXPECT_EQ(kind_of(builder(c)), ErrorKind::kCorrupt) << bad;
    c = {};
    c.dense_sums[2] = bad;
    EXPECT_EQ(kind_of(builder(c)), ErrorKind::kCorrupt) << bad;
  }
  GgufBuilder alone;
  alone.string("general.type", "imatrix").add_f32(kDense + ".in_sum2", {4}, {1, 2, 3, 4});
  EXPECT_EQ(kind_of(alone), ErrorKind::kCorrupt);
  GgufBuilder other_type = alone;
  other_type.add_tensor(kDense + ".counts", DType::kF16, {1});
  EXPECT_EQ(kind_of(other_type), ErrorKind::kCorrupt);
  GgufBuilder other_shape = alone;
  other_shape.add_f32(kDense + ".counts", {1, 2}, {1, 2});
  EXPECT_EQ(kind_of(other_shape), ErrorKind::kCorrupt);
  GgufBuilder good = alone;
  good.add_f32(kDense + ".counts", {1}, {1});
  EXPECT_EQ(kind_of(good), std::nullopt);
  EXPECT_EQ(kind_of(GgufBuilder().string("general.type", "imatrix")), ErrorKind::kCorrupt);
}

TEST(Imatrix, EveryPrefixIsRefusedOrRead) {
  for (const std::vector<std::byte>& file : {builder({}).build(), older_file()}) {
    for (size_t length = 0; length < file.size(); ++length) {
      const auto kind = thrown_by([&] { parse({file.begin(), file.begin() + static_cast<ptrdiff_t>(length)}); }).kind;
      ASSERT_TRUE(!kind || kind == ErrorKind::kCorrupt) << length;
    }
  }
}

TEST(Imatrix, BadOlderContentIsCorrupt) {
  const std::vector<std::vector<std::byte>> bad = {
      {},
      Older().put(int32_t{0}).bytes,
      Older().put(int32_t{-1}).entry(kDense, 1, {1}).bytes,
      Older().put(int32_t{0x7FFFFFFF}).entry(kDense, 1, {1}).bytes,
      Older().put(int32_t{2}).entry(kDense, 1, {1}).bytes,
      Older().put(int32_t{1}).entry("", 1, {1}).bytes,
      Older().put(int32_t{1}).entry("a\x1b[1m", 1, {1}).bytes,
      Older().put(int32_t{1}).entry(kDense, -1, {1}).bytes,
      Older().put(int32_t{1}).entry(kDense, 1, {}).bytes,
      Older().put(int32_t{1}).entry(kDense, 1, {-1}).bytes,
      Older().put(int32_t{1}).entry(kDense, 1, {NAN}).bytes,
      Older().put(int32_t{2}).entry(kDense, 1, {1}).entry(kDense, 1, {1}).bytes,
      Older().put(int32_t{1}).put(int32_t{0x40000000}).put(int64_t{0}).put(int64_t{0}).bytes,
      Older().put(int32_t{1}).text(kDense).put(int32_t{1}).put(int32_t{0x7FFFFFFF}).put(1.0f).put(1.0f).bytes,
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(thrown_by([&] { parse(bad[i]); }).kind, ErrorKind::kCorrupt) << i;
  }
}

}  // namespace
}  // namespace tierpack

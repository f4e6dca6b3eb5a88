// Attention over the cache, bit for bit against the reference: in order and split over the context, dense and listed.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/kernels.h"
#include "tests/support/device_arrays.h"

namespace tierpack::kernels::cuda {
namespace {

using device::OnDevice;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Case {
  KvType type = KvType::kF16;
  uint32_t heads = 8, kv_heads = 2, dim = 64, tokens = 1, first = 0;
  bool gated = false;
  std::vector<uint32_t> counts = {};  // of visible positions, one a token; empty: dense
  uint32_t hostile = 0;          // one key or value in so many has an infinity or NaN; 0: none

  std::string text() const {
    return fmt::format("{} heads {}/{} dim {} tokens {} first {}{}{}", kv_type_name(type), heads, kv_heads, dim, tokens, first,
                       gated ? " gated" : "", counts.empty() ? "" : " listed");
  }
};

std::vector<float> normal_values(std::mt19937& random, size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// A case's numbers and its result by the reference.
struct Example {
  explicit Example(const Case& c) : of(c), context(c.counts.empty() ? c.first + c.tokens : c.first), capacity(context + 3) {
    std::mt19937 random(c.dim * 1000 + c.tokens * 100 + c.first);
    q_stride = c.gated ? 2 * c.dim : c.dim;
    q = normal_values(random, size_t{c.tokens} * c.heads * q_stride);
    const uint64_t row_bytes = kv_row_bytes(c.type, c.dim);
    for (std::vector<std::byte>* cache : {&keys, &values}) {
      cache->resize(c.kv_heads * capacity * row_bytes);
      for (size_t row = 0; row < size_t{c.kv_heads} * capacity; ++row) {
        std::vector<float> x = normal_values(random, c.dim);
        if (c.hostile != 0 && random() % c.hostile == 0) {
          x[random() % c.dim] = random() % 3 == 0 ? kNaN : random() % 2 == 0 ? kInfinity : -kInfinity;
        }
        reference().store_kv(x.data(), c.dim, c.type, cache->data() + row * row_bytes);
      }
    }
    for (const uint32_t count : c.counts) {
      std::vector<uint32_t> all(context);
      std::iota(all.begin(), all.end(), 0u);
      std::sample(all.begin(), all.end(), std::back_inserter(visible), count, random);
      most = std::max(most, count);
      visible.resize(visible.size() + stride() - count, UINT32_MAX);
    }
    calculate();
  }

  size_t stride() const { return context + 1; }  // of visible

  void calculate() {
    const uint64_t row_bytes = kv_row_bytes(of.type, of.dim);
    out.resize(size_t{of.tokens} * of.heads * of.dim);
    for (uint32_t t = 0; t < of.tokens; ++t) {
      for (uint32_t h = 0; h < of.heads; ++h) {
        const size_t head = size_t{t} * of.heads + h;
        const uint64_t at = uint64_t{h / (of.heads / of.kv_heads)} * capacity * row_bytes;
        const uint32_t count = of.counts.empty() ? of.first + t + 1 : of.counts[t];
        const AttentionQuery query{q.data() + head * q_stride, out.data() + head * of.dim, count};
        const KvView view{of.type, keys.data() + at, values.data() + at, row_bytes, of.dim};
        reference().attention(&query, 1, view, of.counts.empty() ? nullptr : visible.data() + t * stride(), scale());
        if (of.gated) reference().sigmoid_mul(query.q + of.dim, query.out, of.dim, query.out);
      }
    }
  }
  float scale() const { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(of.dim))); }

  const Case& of;
  uint32_t context, capacity, most = 0;
  size_t q_stride;
  std::vector<float> q, out;
  std::vector<std::byte> keys, values;
  std::vector<uint32_t> visible;
};

void expect_same(const std::vector<float>& found, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected[i]))
        << what << ", element " << i << ": " << found[i] << ", expected " << expected[i];
  }
}

// With scratch for all tokens, without, and token by token.
void check(const Case& c, bool one_by_one = false) {
  const Example example(c);
  Stream stream;
  const OnDevice<float> q(stream, example.q), out(stream, example.out.size());
  const OnDevice<std::byte> keys(stream, example.keys), values(stream, example.values);
  const OnDevice<uint32_t> visible(stream, example.visible.empty() ? std::vector<uint32_t>{0} : example.visible);
  const OnDevice<uint32_t> counts(stream, c.counts.empty() ? std::vector<uint32_t>{0} : c.counts);
  AttentionArgs args;
  args.q = q.data();
  args.q_stride = example.q_stride;
  args.gate = c.gated ? q.data() + c.dim : nullptr;
  args.out = out.data();
  args.tokens = c.tokens;
  args.heads = c.heads;
  args.kv_heads = c.kv_heads;
  args.dim = c.dim;
  args.type = c.type;
  args.keys = keys.data();
  args.values = values.data();
  args.capacity = example.capacity;
  args.first = c.counts.empty() ? c.first : 0;
  if (!c.counts.empty()) {
    args.visible = visible.data();
    args.visible_stride = example.stride();
    args.visible_count = counts.data();
    args.visible_most = example.most;
  }
  args.scale = example.scale();
  attention(stream, args);
  expect_same(out.get(), example.out, c.text() + " in order");

  const OnDevice<float> scratch(stream, c.tokens * attention_scratch_bytes(c.heads, c.dim, example.context) / sizeof(float) + 1);
  args.scratch = scratch.data();
  args.scratch_bytes = c.tokens * attention_scratch_bytes(c.heads, c.dim, example.context);
  stream.clear(out.data(), out.size() * sizeof(float));
  attention(stream, args);
  expect_same(out.get(), example.out, c.text() + " split");
  if (!one_by_one) return;

  stream.clear(out.data(), out.size() * sizeof(float));
  args.tokens = 1;
  for (uint32_t t = 0; t < c.tokens; ++t) {
    attention(stream, args);
    args.q += c.heads * args.q_stride;
    if (c.gated) args.gate += c.heads * args.q_stride;
    args.out += size_t{c.heads} * c.dim;
    ++args.first;
    if (args.visible != nullptr) args.visible += args.visible_stride;
    if (args.visible_count != nullptr) ++args.visible_count;
  }
  expect_same(out.get(), example.out, c.text() + " one by one");
}

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kQ8};

TEST(CudaAttention, Contexts) {
  for (const KvType type : kTypes) {
    for (const uint32_t context : {1u, 63u, 64u, 65u, 200u, 1000u}) check({.type = type, .heads = 4, .kv_heads = 2, .first = context - 1});
  }
}

TEST(CudaAttention, Shapes) {
  for (const KvType type : kTypes) {
    for (const uint32_t dim : {32u, 128u, 256u}) {
      for (const uint32_t group : {1u, 4u, 8u, 12u}) check({.type = type, .heads = group, .kv_heads = 1, .dim = dim, .first = 99});
    }
    check({.type = type, .heads = 2, .kv_heads = 1, .dim = 64, .first = 70});
    check({.type = type, .heads = 16, .kv_heads = 1, .dim = 64, .first = 70});
    check({.type = type, .heads = 40, .kv_heads = 2, .dim = 32, .first = 70});
    check({.type = type, .heads = 5, .kv_heads = 1, .dim = 1024, .first = 66});
  }
}

// Rows of the cache that are not made of aligned 16 bytes, and dimensions that are no multiple of 4.
TEST(CudaAttention, OddSizes) {
  check({.type = KvType::kF16, .heads = 6, .kv_heads = 2, .dim = 80, .tokens = 3, .first = 64, .gated = true}, true);
  check({.type = KvType::kF16, .heads = 6, .kv_heads = 2, .dim = 36, .first = 64});
  check({.type = KvType::kF16, .heads = 6, .kv_heads = 2, .dim = 35, .tokens = 2, .first = 64, .gated = true}, true);
  check({.type = KvType::kF32, .heads = 3, .kv_heads = 1, .dim = 35, .tokens = 2, .first = 64, .gated = true});
  check({.type = KvType::kF32, .heads = 3, .kv_heads = 1, .dim = 1, .tokens = 2, .first = 64});
  check({.type = KvType::kF32, .heads = 3, .kv_heads = 3, .dim = 1000, .first = 64});
  check({.type = KvType::kQ8, .heads = 3, .kv_heads = 3, .dim = 96, .first = 64, .gated = true});
}

// Tokens of one block see differently much, over the end of a chunk as well.
TEST(CudaAttention, Prompts) {
  for (const KvType type : kTypes) {
    check({.type = type, .heads = 2, .kv_heads = 2, .dim = 32, .tokens = 70, .first = 0}, true);
    check({.type = type, .heads = 4, .kv_heads = 2, .dim = 64, .tokens = 9, .first = 122, .gated = true}, true);
    check({.type = type, .heads = 12, .kv_heads = 1, .dim = 64, .tokens = 5, .first = 61}, true);
  }
  check({.type = KvType::kF16, .heads = 8, .kv_heads = 2, .dim = 128, .tokens = 40, .first = 100, .gated = true});
}

TEST(CudaAttention, Lists) {
  for (const KvType type : kTypes) {
    check({.type = type, .heads = 8, .kv_heads = 2, .dim = 64, .tokens = 6, .first = 300, .gated = true,
           .counts = {64, 0, 1, 65, 300, 129}}, true);
    check({.type = type, .heads = 1, .kv_heads = 1, .dim = 32, .tokens = 2, .first = 50, .counts = {0, 0}}, true);
    check({.type = type, .heads = 24, .kv_heads = 1, .dim = 256, .tokens = 2, .first = 150, .counts = {100, 7}});
  }
  check({.heads = 2, .kv_heads = 1, .dim = 32, .tokens = 66, .first = 100, .counts = std::vector<uint32_t>(66, 67)});
}

// More chunks than the second kernel takes at a time.
TEST(CudaAttention, LongContext) { check({.type = KvType::kQ8, .heads = 2, .kv_heads = 1, .dim = 32, .first = 9000}); }

TEST(CudaAttention, InfinityAndNaN) {
  for (const KvType type : kTypes) {
    check({.type = type, .heads = 4, .kv_heads = 2, .dim = 32, .tokens = 40, .first = 100, .hostile = 100});
    check({.type = type, .heads = 4, .kv_heads = 4, .dim = 32, .tokens = 2, .first = 200, .gated = true, .hostile = 30});
  }
}

// Scores of -inf alone: of some tokens, of a whole chunk, of all.
TEST(CudaAttention, MinusInfinity) {
  const Case c{.type = KvType::kF32, .heads = 1, .kv_heads = 1, .dim = 4, .first = 140};
  for (const auto& [begin, end] : {std::pair{3u, 9u}, {64u, 70u}, {64u, 128u}, {0u, 64u}, {0u, 141u}}) {
    Example example(c);
    example.q = {1, 0, 0, 0};
    for (uint32_t p = begin; p < end; ++p) reinterpret_cast<float*>(example.keys.data())[4 * p] = -kInfinity;
    example.calculate();
    Stream stream;
    const OnDevice<float> q(stream, example.q), out(stream, example.out.size());
    const OnDevice<float> scratch(stream, attention_scratch_bytes(1, 4, 141) / sizeof(float));
    const OnDevice<std::byte> keys(stream, example.keys), values(stream, example.values);
    AttentionArgs args{.q = q.data(), .q_stride = 4, .out = out.data(), .tokens = 1, .heads = 1, .kv_heads = 1, .dim = 4,
                       .type = c.type, .keys = keys.data(), .values = values.data(), .capacity = example.capacity, .first = c.first, .scale = example.scale()};
    attention(stream, args);
    expect_same(out.get(), example.out, "in order");
    args.scratch = scratch.data();
    args.scratch_bytes = attention_scratch_bytes(1, 4, 141);
    attention(stream, args);
    expect_same(out.get(), example.out, "split");
  }
}

}  // namespace
}  // namespace tierpack::kernels::cuda

// Products: every table against the reference bit for bit, the reference against double precision, and the promise that
// a (row, token) pair has one result.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "base/error.h"
#include "formats/dequant.h"
#include "formats/row_groups.h"
#include "runtime/kernels/block_decoder.h"
#include "tests/runtime/kernels/guarded.h"
#include "tests/runtime/kernels/kernel_inputs.h"

namespace tierpack::kernels {
namespace {

// Weights as a pack holds them.
std::vector<std::byte> in_groups(DType type, const std::vector<std::byte>& weights, uint32_t rows, uint32_t cols) {
  std::vector<std::byte> grouped(weights.size());
  to_row_groups(type, rows, cols, weights, grouped);
  return grouped;
}

std::vector<float> product(const KernelTable& table, DType type, const std::vector<std::byte>& weights, uint32_t rows,
                           uint32_t cols, const ActivationView& x) {
  const size_t elements = size_t{x.tokens} * x.n, blocks = x.n % 32 == 0 ? elements / 32 : 0;
  const Guarded<float> y(std::vector<float>(size_t{rows} * x.tokens, -7.0f)), values(listed(x.x, elements)), scale(listed(x.scale, blocks));
  const Guarded<int8_t> q(listed(x.q, blocks * 32));
  const Guarded<int32_t> sum(listed(x.sum, blocks));
  const Guarded<std::byte> grouped(in_groups(type, weights, rows, cols));
  table.matmul({type, grouped.data(), rows, cols}, 0, rows, {x.tokens, x.n, values.data(), q.data(), scale.data(), sum.data()}, y.data(), rows);
  return listed(y.data(), size_t{rows} * x.tokens);
}

// Column counts near the small and odd shapes of real models, rounded up to the type's block.
std::vector<uint32_t> column_counts(DType type) {
  std::vector<uint32_t> counts;
  const uint32_t block = traits(type).quantised ? std::max(32u, traits(type).block_elements) : 1;
  for (const uint32_t cols : {32u, 64u, 96u, 256u, 288u, 512u, 640u, 1408u, 2048u, 2560u, 7168u}) {
    counts.push_back((cols + block - 1) / block * block);
  }
  if (block == 1) counts.insert(counts.end(), {1u, 7u, 31u, 33u, 100u});
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

class EveryType : public testing::TestWithParam<DType> {};

TEST_P(EveryType, EqualsTheReference) {
  const DType type = GetParam();
  Random random = seeded(static_cast<uint64_t>(type) + 1);
  for (const uint32_t cols : column_counts(type)) {
    // Around the tiles of the vector tables, and rows below, at and above whole groups.
    for (const uint32_t tokens : {1u, 2u, 3u, 4u, 7u, 31u + static_cast<uint32_t>(random() % 3), 97u}) {
      if (cols > 2560 && tokens > 4) continue;
      const uint32_t rows = tokens > 8 ? 16 + random() % 3 : 1 + random() % 40;
      const Weights kind = static_cast<Weights>(random() % 3);
      const std::vector<std::byte> weights = random_weights(random, type, rows, cols, kind);
      const size_t count = size_t{tokens} * cols;
      const Activations x = quantized(random() % 2 ? uniform_vector(random, count) : adversarial_vector(random, count), cols);
      const std::vector<float> expected = product(reference(), type, weights, rows, cols, x.view());
      for (const KernelTable* table : tables_with_twin()) {
        EXPECT_TRUE(same_bits(expected, product(*table, type, weights, rows, cols, x.view())))
            << table->name << " " << dtype_name(type) << " cols " << cols << " tokens " << tokens << " rows " << rows
            << " weights " << static_cast<int>(kind);
      }
    }
  }
}

TEST_P(EveryType, ExtremesEqualTheReference) {
  const DType type = GetParam();
  Random random = seeded(static_cast<uint64_t>(type) + 1000);
  const uint32_t cols = traits(type).quantised ? 768 : 200;
  const uint32_t rows = 24;
  for (const Weights kind : {Weights::kSane, Weights::kExtreme, Weights::kRawBytes}) {
    for (int round = 0; round < 4; ++round) {
      const std::vector<std::byte> weights = random_weights(random, type, rows, cols, kind);
      // Every activation at the largest code: the sums of a block reach their bounds.
      std::vector<float> values(size_t{5} * cols);
      for (size_t i = 0; i < values.size(); ++i) values[i] = round == 0 ? 1.0f : round == 1 ? -1.0f : i % 2 ? 1.0f : -1.0f;
      if (round == 3) values = adversarial_vector(random, values.size());
      if (round == 2 && kind == Weights::kSane) values[cols + 3] = std::numeric_limits<float>::quiet_NaN();
      const Activations x = quantized(values, cols);
      const std::vector<float> expected = product(reference(), type, weights, rows, cols, x.view());
      for (const KernelTable* table : tables_with_twin()) {
        EXPECT_TRUE(same_bits(expected, product(*table, type, weights, rows, cols, x.view())))
            << table->name << " " << dtype_name(type) << " weights " << static_cast<int>(kind) << " round " << round;
      }
    }
  }
}

TEST_P(EveryType, ATokenAloneEqualsTheTokenInABatch) {
  const DType type = GetParam();
  Random random = seeded(static_cast<uint64_t>(type) + 77);
  const uint32_t cols = traits(type).quantised ? 768 : 100;
  const uint32_t rows = 37;
  const uint32_t tokens = 37;
  const std::vector<std::byte> weights = random_weights(random, type, rows, cols, Weights::kSane);
  const Activations x = quantized(uniform_vector(random, size_t{tokens} * cols), cols);
  for (const KernelTable* table : tables_with_twin()) {
    const std::vector<float> batch = product(*table, type, weights, rows, cols, x.view());
    for (uint32_t t = 0; t < tokens; ++t) {
      const std::vector<float> alone = product(*table, type, weights, rows, cols, x.one(t));
      const std::vector<float> there(batch.begin() + t * rows, batch.begin() + (t + 1) * rows);
      EXPECT_TRUE(same_bits(alone, there)) << table->name << " " << dtype_name(type) << " token " << t;
    }
  }
}

TEST_P(EveryType, RowRangesWriteTheirRowsOnly) {
  const DType type = GetParam();
  Random random = seeded(static_cast<uint64_t>(type) + 99);
  const uint32_t cols = traits(type).quantised ? 512 : 64;
  const uint32_t rows = 55;
  const std::vector<std::byte> weights =
      in_groups(type, random_weights(random, type, rows, cols, Weights::kSane), rows, cols);
  for (const uint32_t tokens : {1u, 5u, 16u}) {
    const Activations x = quantized(uniform_vector(random, size_t{tokens} * cols), cols);
    std::vector<float> whole(size_t{rows} * tokens);
    reference().matmul({type, weights.data(), rows, cols}, 0, rows, x.view(), whole.data(), rows);
    const size_t stride = rows + 3;
    for (const KernelTable* table : tables_with_twin()) {
      for (const auto& [begin, end] : {std::pair{0u, 16u}, {16u, 48u}, {32u, 55u}, {48u, 55u}, {16u, 16u}, {0u, 55u}}) {
        std::vector<float> y(stride * tokens, -7.0f);
        table->matmul({type, weights.data(), rows, cols}, begin, end, x.view(), y.data(), stride);
        std::vector<float> expected(stride * tokens, -7.0f);
        for (uint32_t t = 0; t < tokens; ++t) {
          for (uint32_t r = begin; r < end; ++r) expected[t * stride + r] = whole[t * rows + r];
        }
        EXPECT_TRUE(same_bits(expected, y)) << table->name << " " << dtype_name(type) << " rows " << begin << ".." << end;
      }
    }
  }
}

// The second scale of a quantised matrix: every result of the product without it, times the scale.
TEST_P(EveryType, AScaleMultipliesTheResults) {
  const DType type = GetParam();
  if (!traits(type).quantised) return;  // plain_matmul_test.cpp
  Random random = seeded(static_cast<uint64_t>(type) + 500);
  const uint32_t cols = 512;
  for (const uint32_t tokens : {1u, 2u, 5u, 33u}) {
    for (const uint32_t rows : {7u, 16u, 37u}) {
      const std::vector<std::byte> weights = random_weights(random, type, rows, cols, Weights::kSane);
      const std::vector<std::byte> stored = in_groups(type, weights, rows, cols);
      const Activations x = quantized(uniform_vector(random, size_t{tokens} * cols), cols);
      for (const float scale : {uniform(random, -2.0f, 2.0f), 0x1.234568p-9f, 0x1p-140f, 0x1.8p127f}) {
        std::vector<float> expected = product(reference(), type, weights, rows, cols, x.view());
        for (float& y : expected) y *= scale;
        const Guarded<float> factor(std::vector<float>{scale});
        for (const KernelTable* table : tables_with_twin()) {
          std::vector<float> y(expected.size(), -7.0f);
          const MatrixView w{type, stored.data(), rows, cols, factor.data(), rows, cols};
          for (uint32_t r = 0; r < rows; r += 16) table->matmul(w, r, std::min(r + 16, rows), x.view(), y.data(), rows);
          EXPECT_TRUE(same_bits(expected, y)) << table->name << " " << dtype_name(type) << " rows " << rows
                                              << " tokens " << tokens << " scale " << scale;
        }
      }
    }
  }
}

// The product with the quantised activations, computed in double from formats/dequant alone.
TEST_P(EveryType, ReferenceIsCloseToDoublePrecision) {
  const DType type = GetParam();
  Random random = seeded(static_cast<uint64_t>(type) + 5);
  const bool quantised = traits(type).quantised;
  for (const uint32_t cols : column_counts(type)) {
    const uint32_t rows = 5;
    const std::vector<std::byte> weights = random_weights(random, type, rows, cols, Weights::kSane);
    const Activations x = quantized(uniform_vector(random, size_t{3} * cols), cols);
    const std::vector<float> y = product(reference(), type, weights, rows, cols, x.view());
    std::vector<float> w(cols);
    for (uint32_t r = 0; r < rows; ++r) {
      dequantize_row(type, weights.data() + r * row_bytes(type, cols), w.data(), cols);
      for (uint32_t t = 0; t < 3; ++t) {
        double exact = 0;
        double magnitude = 0;
        double rounding = 0;  // largest effect of rounding the activations to codes
        double plain = 0;
        for (uint32_t e = 0; e < cols; ++e) {
          const size_t at = size_t{t} * cols + e;
          const double value = quantised ? double{x.scale[at / 32]} * x.q[at] : double{x.x[at]};
          exact += w[e] * value;
          magnitude += std::abs(w[e] * value);
          plain += double{w[e]} * x.x[at];
          if (quantised) rounding += std::abs(w[e]) * x.scale[at / 32] * 0.5;
        }
        // Types with an offset cancel it against the codes: its own size counts too.
        const double tolerance = 1e-6 * magnitude + 1e-6 * rounding + 1e-30;
        const float found = y[t * rows + r];
        EXPECT_NEAR(found, exact, tolerance) << dtype_name(type) << " cols " << cols;
        EXPECT_NEAR(found, plain, rounding * 1.0001 + tolerance) << dtype_name(type) << " cols " << cols;
      }
    }
  }
}

std::string type_name(const testing::TestParamInfo<DType>& info) { return dtype_name(info.param); }
INSTANTIATE_TEST_SUITE_P(Quantised, EveryType, testing::ValuesIn(quantised_types()), type_name);
INSTANTIATE_TEST_SUITE_P(Plain, EveryType, testing::ValuesIn(plain_types()), type_name);

// The decoder of the kernels against the decoder of formats: the same values up to the rounding of the scale product.
TEST(BlockDecoder, ValuesEqualDequantisedRows) {
  Random random = seeded(3);
  for (const DType type : quantised_types()) {
    const BlockFormat* format = block_format(type);
    ASSERT_NE(format, nullptr) << dtype_name(type);
    EXPECT_EQ(format->bytes, traits(type).block_bytes);
    EXPECT_EQ(format->blocks * 32u, std::max(32u, traits(type).block_elements));
    for (int round = 0; round < 50; ++round) {
      const uint32_t n = format->blocks * 32u;
      const std::vector<std::byte> packed = random_weights(random, type, 1, n, Weights::kSane);
      std::vector<float> values(n);
      dequantize_row(type, packed.data(), values.data(), n);
      Block blocks[kBlocksMax] = {};
      format->decode(packed.data(), blocks);
      for (uint32_t e = 0; e < n; ++e) {
        const Block& b = blocks[e / 32];
        const int h = e % 32 / 16;
        EXPECT_LE(std::abs(b.code[e % 32]), format->code_max) << dtype_name(type);
        double value = b.code[e % 32];
        double size = 0;
        switch (format->form) {
          case BlockForm::kScale: value *= b.scale; break;
          case BlockForm::kScaleOffset: value *= b.scale; size = b.offset; value += b.offset; break;
          case BlockForm::kSubScale: value *= double{b.scale} * b.sub_scale[h]; break;
          case BlockForm::kSubScaleOffset:
            value *= double{b.scale} * b.sub_scale[h];
            size = double{b.offset} * b.sub_offset[h];
            value += size;
            break;
          case BlockForm::kTwoScales: value *= h ? b.scale_high : b.scale; break;
        }
        EXPECT_NEAR(value, values[e], 2e-7 * (std::abs(value) + std::abs(size))) << dtype_name(type) << " element " << e;
      }
    }
  }
  for (const DType type : plain_types()) EXPECT_EQ(block_format(type), nullptr);
}

TEST(Quantize, EqualsTheReference) {
  Random random = seeded(11);
  for (const uint32_t n : {32u, 64u, 96u, 2560u}) {
    for (int round = 0; round < 200; ++round) {
      std::vector<float> x = round % 2 ? adversarial_vector(random, n) : uniform_vector(random, n, -5.0f, 5.0f);
      if (round % 10 == 9) x[random() % n] = round % 20 == 9 ? std::numeric_limits<float>::infinity() : -std::nanf("");
      if (round == 0) std::fill(x.begin(), x.end(), std::numeric_limits<float>::max());
      const Activations expected = quantized(x, n);
      for (const KernelTable* table : tables_with_twin()) {
        Activations found = expected;
        std::fill(found.q.begin(), found.q.end(), int8_t{55});
        table->quantize(x.data(), n, found.q.data(), found.scale.data(), found.sum.data());
        EXPECT_EQ(found.q, expected.q) << table->name;
        EXPECT_EQ(found.sum, expected.sum) << table->name;
        EXPECT_TRUE(same_bits(expected.scale, found.scale)) << table->name;
      }
    }
  }
}

TEST(Quantize, CodesAreTheNearestIntegers) {
  Random random = seeded(12);
  for (int round = 0; round < 500; ++round) {
    const std::vector<float> x = uniform_vector(random, 32, -3.0f, 3.0f);
    const Activations a = quantized(x, 32);
    int32_t sum[2] = {0, 0};
    int largest = 0;
    for (int e = 0; e < 32; ++e) {
      EXPECT_LE(std::abs(x[e] - double{a.scale[0]} * a.q[e]), a.scale[0] * 0.50001);
      largest = std::max(largest, std::abs(a.q[e]));
      sum[e / 16] += a.q[e];
    }
    EXPECT_EQ(largest, 127);
    EXPECT_EQ(first_half_sum(a.sum[0]), sum[0]);
    EXPECT_EQ(second_half_sum(a.sum[0]), sum[1]);
  }
}

TEST(Quantize, TiesGoToEven) {
  std::vector<float> x(32, 0.0f);
  const float values[] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f};
  const int codes[] = {127, 0, 2, 2, 0, -2, -2, 126};
  std::copy(std::begin(values), std::end(values), x.begin());
  const Activations a = quantized(x, 32);
  EXPECT_EQ(a.scale[0], 1.0f);
  for (int e = 0; e < 8; ++e) EXPECT_EQ(a.q[e], codes[e]);
}

TEST(Quantize, TinyBlocksAreZeroAndBadOnesAreNaN) {
  std::vector<float> x(96, 0.0f);
  x[0] = std::nextafter(0x1p-100f, 0.0f);
  x[32] = 0x1p-100f;
  x[70] = -std::numeric_limits<float>::infinity();
  x[71] = 3.0f;
  const Activations a = quantized(x, 96);
  EXPECT_EQ(a.scale[0], 0.0f);
  EXPECT_EQ(a.q[0], 0);
  EXPECT_GT(a.scale[1], 0.0f);
  EXPECT_EQ(a.q[32], 127);
  EXPECT_TRUE(std::isnan(a.scale[2]));
  EXPECT_EQ(a.sum[2], 0);
  Random random = seeded(1);
  for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ5_1, DType::kIQ4_NL}) {
    const std::vector<std::byte> weights = random_weights(random, type, 3, 96, Weights::kSane);
    for (const float y : product(reference(), type, weights, 3, 96, a.view())) EXPECT_TRUE(std::isnan(y)) << dtype_name(type);
  }
}

TEST(Matmul, ShapesThatDisagreeAreRefused) {
  Random random = seeded(2);
  const std::vector<std::byte> weights = random_weights(random, DType::kQ8_0, 4, 64, Weights::kSane);
  const Activations x = quantized(uniform_vector(random, 32), 32);
  float y[4];
  for (const KernelTable* table : tables_with_twin()) {
    EXPECT_THROW(table->matmul({DType::kQ8_0, weights.data(), 4, 64}, 0, 4, x.view(), y, 4), Error) << table->name;
    EXPECT_THROW(table->matmul({DType::kQ8_0, weights.data(), 1, 32}, 0, 2, x.view(), y, 4), Error) << table->name;
    // One scale a quantised matrix.
    const float scales[4] = {1, 1, 1, 1};
    EXPECT_THROW(table->matmul({DType::kQ8_0, weights.data(), 4, 32, scales, 1, 32}, 0, 4, x.view(), y, 4), Error)
        << table->name;
  }
}

TEST(Dot, EqualsAFloatingPointMatmulRow) {
  Random random = seeded(8);
  for (const uint32_t n : {1u, 5u, 31u, 32u, 33u, 64u, 128u, 200u, 2560u}) {
    const std::vector<float> a = adversarial_vector(random, n);
    const std::vector<float> b = uniform_vector(random, n);
    const float expected = reference().dot(a.data(), b.data(), n);
    Activations x;
    x.x = b;
    x.tokens = 1;
    x.n = n;
    for (const KernelTable* table : tables_with_twin()) {
      EXPECT_TRUE(same_bits({expected}, {table->dot(a.data(), b.data(), n)})) << table->name << " n " << n;
      float y = 0;
      table->matmul({DType::kF32, reinterpret_cast<const std::byte*>(a.data()), 1, n}, 0, 1, x.view(), &y, 1);
      EXPECT_TRUE(same_bits({expected}, {y})) << table->name << " n " << n;
    }
  }
}

TEST(DecodeRow, EqualsFormats) {
  Random random = seeded(21);
  for (const DTypeTraits& t : all_dtypes()) {
    const uint32_t n = t.quantised ? 512 : 67;
    const std::vector<std::byte> row = random_weights(random, t.type, 1, n, Weights::kRawBytes);
    std::vector<float> expected(n);
    dequantize_row(t.type, row.data(), expected.data(), n);
    for (const KernelTable* table : tables_with_twin()) {
      std::vector<float> found(n);
      table->decode_row(t.type, row.data(), n, found.data());
      EXPECT_TRUE(same_bits(expected, found)) << table->name << " " << t.name;
    }
  }
}

// Vectors so long that a tile holds few tokens, or that tables leave them to the reference; tails too large to be padded.
TEST(Matmul, LongVectorsEqualTheReference) {
  Random random = seeded(77);
  struct Shape {
    uint32_t cols, tokens, rows;
  };
  for (const DType type : {DType::kQ8_0, DType::kQ4_K, DType::kQ6_K, DType::kIQ2_XS, DType::kNVFP4}) {
    for (const Shape& shape : {Shape{16640, 41, 19}, Shape{66560, 7, 17}, Shape{395264, 2, 17}}) {
      const std::vector<std::byte> weights = random_weights(random, type, shape.rows, shape.cols, Weights::kSane);
      const Activations x = quantized(uniform_vector(random, size_t{shape.tokens} * shape.cols), shape.cols);
      const std::vector<float> expected = product(reference(), type, weights, shape.rows, shape.cols, x.view());
      for (const KernelTable* table : tables_with_twin()) {
        EXPECT_TRUE(same_bits(expected, product(*table, type, weights, shape.rows, shape.cols, x.view())))
            << table->name << " " << dtype_name(type) << " cols " << shape.cols;
      }
    }
  }
}

}  // namespace
}  // namespace tierpack::kernels

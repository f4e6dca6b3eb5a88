// Products of plain numbers with scales beside them, and of FP8: every table against the reference bit for bit, the
// reference against its definition in other words.
#include <algorithm>
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "base/error.h"
#include "formats/dequant.h"
#include "tests/runtime/kernels/guarded.h"
#include "tests/runtime/kernels/kernel_inputs.h"

namespace tierpack::kernels {
namespace {

// Block sizes of scales: small blocks, blocks of FP8 checkpoints, more than a conversion holds, a row, the matrix.
struct ScaleShape {
  uint32_t rows, cols;
};
std::vector<ScaleShape> scale_shapes(uint32_t rows, uint32_t cols) {
  std::vector<ScaleShape> shapes{{1, cols}, {rows, cols}, {128, 4000000000u}, {3, 32}, {1, 96}, {128, 128}, {2, 512}, {5, 544}, {7, 1024}};
  std::erase_if(shapes, [&](const ScaleShape& s) { return s.cols % 32 != 0 && s.cols < cols; });
  return shapes;
}

enum class Scales { kSane, kExtreme, kAnyBits };

std::vector<float> random_scales(Random& random, size_t count, Scales kind) {
  std::vector<float> scales(count);
  const float extremes[] = {0x1p-149f, -0x1.8p-130f, 0.0f, -0.0f, 0x1.fffffep127f, -0x1p100f, 1.0f, 0x1p-126f};
  for (float& s : scales) {
    s = kind == Scales::kSane      ? uniform(random, -1.0f, 1.0f) / 64.0f
        : kind == Scales::kExtreme ? extremes[random() % 8]
                                   : std::bit_cast<float>(static_cast<uint32_t>(random()));
  }
  return scales;
}

std::vector<float> scaled_product(const KernelTable& table, DType type, const std::vector<std::byte>& weights, uint32_t rows,
                                  uint32_t cols, const std::vector<float>& scales, ScaleShape shape, const ActivationView& x) {
  const Guarded<float> y(std::vector<float>(size_t{rows} * x.tokens, -7.0f)), values(listed(x.x, size_t{x.tokens} * x.n)), factors(scales);
  const Guarded<std::byte> guarded(weights);
  table.matmul({type, guarded.data(), rows, cols, factors.data(), shape.rows, shape.cols}, 0, rows,
               {x.tokens, x.n, values.data(), nullptr, nullptr, nullptr}, y.data(), rows);
  return listed(y.data(), size_t{rows} * x.tokens);
}

size_t scale_count(uint32_t rows, uint32_t cols, ScaleShape s) {
  return (size_t{rows} + s.rows - 1) / s.rows * ((size_t{cols} + s.cols - 1) / s.cols);
}

class PlainType : public testing::TestWithParam<DType> {};

TEST_P(PlainType, ScaledProductsEqualTheReference) {
  const DType type = GetParam();
  Random random = seeded(static_cast<uint64_t>(type) + 2000);
  for (const uint32_t cols : {1u, 31u, 32u, 100u, 128u, 509u, 512u, 640u, 1000u, 1408u, 2570u}) {
    for (const uint32_t tokens : {1u, 2u, 3u, 5u, 16u, 64u}) {
      if (tokens == 64 && cols > 700) continue;
      const uint32_t rows = 1 + static_cast<uint32_t>(random() % 11);
      const Weights kind = static_cast<Weights>(random() % 3);
      const std::vector<std::byte> weights = random_weights(random, type, rows, cols, kind);
      const size_t count = size_t{tokens} * cols;
      const Activations x = quantized(random() % 2 ? uniform_vector(random, count) : adversarial_vector(random, count), cols);
      for (const ScaleShape shape : scale_shapes(rows, cols)) {
        const Scales scales_are = static_cast<Scales>(random() % 3);
        const std::vector<float> scales = random_scales(random, scale_count(rows, cols, shape), scales_are);
        const std::vector<float> expected = scaled_product(reference(), type, weights, rows, cols, scales, shape, x.view());
        for (const KernelTable* table : available()) {
          EXPECT_TRUE(same_bits(expected, scaled_product(*table, type, weights, rows, cols, scales, shape, x.view())))
              << table->name << " " << dtype_name(type) << " cols " << cols << " tokens " << tokens << " rows " << rows << " weights "
              << static_cast<int>(kind) << " scales " << shape.rows << " x " << shape.cols << " kind " << static_cast<int>(scales_are);
        }
      }
    }
  }
}

// The definition in other words: the partial sums of a block, each times the scale, added block by block.
TEST_P(PlainType, ScaledReferenceIsTheSumOverBlocks) {
  const DType type = GetParam();
  Random random = seeded(static_cast<uint64_t>(type) + 3000);
  const uint32_t rows = 5, cols = 450;
  const std::vector<std::byte> weights = random_weights(random, type, rows, cols, Weights::kSane);
  const Activations x = quantized(uniform_vector(random, cols), cols);
  for (const ScaleShape shape : scale_shapes(rows, cols)) {
    const std::vector<float> scales = random_scales(random, scale_count(rows, cols, shape), Scales::kSane);
    const std::vector<float> y = scaled_product(reference(), type, weights, rows, cols, scales, shape, x.view());
    const uint32_t across = (cols - 1) / shape.cols + 1;
    std::vector<float> w(cols);
    for (uint32_t r = 0; r < rows; ++r) {
      dequantize_row(type, weights.data() + r * row_bytes(type, cols), w.data(), cols);
      float s[32] = {};
      double exact = 0, magnitude = 0;
      for (uint32_t b = 0; b < across; ++b) {
        const float scale = scales[r / shape.rows * across + b];
        for (uint32_t l = 0; l < 32; ++l) {
          float t = 0;
          for (uint32_t e = l; e < cols; e += 32) {
            if (e / shape.cols != b) continue;
            t = std::fma(w[e], x.x[e], t);
            exact += double{w[e]} * x.x[e] * scale;
            magnitude += std::abs(double{w[e]} * x.x[e] * scale);
          }
          s[l] = std::fma(t, scale, s[l]);
        }
      }
      for (uint32_t half = 16; half > 0; half /= 2) {
        for (uint32_t i = 0; i < half; ++i) s[i] += s[i + half];
      }
      EXPECT_TRUE(same_bits({s[0]}, {y[r]})) << dtype_name(type) << " " << shape.rows << " x " << shape.cols << " row " << r;
      EXPECT_NEAR(y[r], exact, 1e-6 * magnitude) << dtype_name(type);
    }
  }
}

// Rows anywhere in the matrix use their own line of scales.
TEST_P(PlainType, ScaledRowRangesAreThoseOfTheWholeProduct) {
  const DType type = GetParam();
  Random random = seeded(static_cast<uint64_t>(type) + 4000);
  const uint32_t rows = 300, cols = 192;
  const std::vector<std::byte> weights = random_weights(random, type, rows, cols, Weights::kSane);
  for (const uint32_t tokens : {1u, 7u}) {
    const Activations x = quantized(uniform_vector(random, size_t{tokens} * cols), cols);
    for (const ScaleShape shape : {ScaleShape{128, 128}, {1, cols}, {300, cols}}) {
      const std::vector<float> scales = random_scales(random, scale_count(rows, cols, shape), Scales::kSane);
      const std::vector<float> whole = scaled_product(reference(), type, weights, rows, cols, scales, shape, x.view());
      const MatrixView w{type, weights.data(), rows, cols, scales.data(), shape.rows, shape.cols};
      for (const KernelTable* table : available()) {
        for (const auto& [begin, end] : {std::pair{0u, 16u}, {112u, 272u}, {256u, 300u}, {128u, 128u}}) {
          std::vector<float> y(size_t{rows} * tokens, -7.0f), expected = y;
          table->matmul(w, begin, end, x.view(), y.data(), rows);
          for (uint32_t t = 0; t < tokens; ++t) {
            for (uint32_t r = begin; r < end; ++r) expected[t * rows + r] = whole[t * rows + r];
          }
          EXPECT_TRUE(same_bits(expected, y)) << table->name << " " << dtype_name(type) << " rows " << begin << ".." << end;
        }
      }
    }
  }
}

// Row c holds code c + e in column e, zeros in place of NaN codes; one activation of a token is 1, the others are 0. So every
// code is multiplied in every place of a stretch of 32, alone.
TEST(Fp8, EveryCodeIsExactInEveryPlace) {
  constexpr uint32_t kCodes = 256, kCols = 64;
  std::vector<std::byte> weights(size_t{kCodes} * kCols);
  std::vector<float> exact(weights.size());
  for (uint32_t c = 0; c < kCodes; ++c) {
    for (uint32_t e = 0; e < kCols; ++e) {
      const uint32_t code = (c + e) & 0xFF;
      weights[c * kCols + e] = static_cast<std::byte>((code & 0x7F) == 0x7F ? 0 : code);
    }
  }
  dequantize_row(DType::kF8_E4M3, weights.data(), exact.data(), exact.size());
  std::vector<float> values(size_t{kCols} * kCols, 0.0f);
  for (uint32_t t = 0; t < kCols; ++t) values[t * kCols + t] = 1.0f;
  const Activations x = quantized(values, kCols);
  for (const KernelTable* table : available()) {
    for (const uint32_t tokens : {1u, 2u, 3u, 64u}) {
      for (uint32_t first = 0; first + tokens <= kCols; first += tokens) {
        ActivationView some = x.view();
        some.tokens = tokens;
        some.x += size_t{first} * kCols;
        std::vector<float> y(size_t{kCodes} * tokens);
        table->matmul({DType::kF8_E4M3, weights.data(), kCodes, kCols}, 0, kCodes, some, y.data(), kCodes);
        for (uint32_t t = 0; t < tokens; ++t) {
          for (uint32_t c = 0; c < kCodes; ++c) {
            ASSERT_EQ(y[t * kCodes + c], exact[c * kCols + first + t]) << table->name << " row " << c << " column " << first + t;
          }
        }
      }
    }
  }
}

// Also where the activation is 0.
TEST(Fp8, ANaNCodeAnywhereMakesTheResultNaN) {
  constexpr uint32_t kCols = 77;
  const Activations x = quantized(std::vector<float>(size_t{4} * kCols, 0.0f), kCols);
  for (const int nan : {0x7F, 0xFF}) {
    std::vector<std::byte> weights(size_t{kCols} * kCols);  // in column r of row r
    for (uint32_t r = 0; r < kCols; ++r) weights[r * kCols + r] = static_cast<std::byte>(nan);
    for (const KernelTable* table : available()) {
      for (const uint32_t tokens : {1u, 4u}) {
        ActivationView some = x.view();
        some.tokens = tokens;
        std::vector<float> y(size_t{kCols} * tokens);
        table->matmul({DType::kF8_E4M3, weights.data(), kCols, kCols}, 0, kCols, some, y.data(), kCols);
        for (const float value : y) EXPECT_TRUE(std::isnan(value)) << table->name;
      }
    }
  }
}

TEST(Matmul, ScalesThatDoNotFitAreRefused) {
  Random random = seeded(31);
  const Activations x = quantized(uniform_vector(random, 128), 64);
  const std::vector<std::byte> weights = random_weights(random, DType::kBF16, 16, 64, Weights::kSane);
  const std::vector<float> scales(64, 1.0f);
  float y[32];
  for (const KernelTable* table : available()) {
    for (const ScaleShape shape : {ScaleShape{0, 64}, {1, 0}, {1, 33}, {1, 63}}) {
      const MatrixView w{DType::kBF16, weights.data(), 16, 64, scales.data(), shape.rows, shape.cols};
      EXPECT_THROW(table->matmul(w, 0, 16, x.view(), y, 16), Error) << table->name << " " << shape.rows << " x " << shape.cols;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plain, PlainType, testing::ValuesIn(plain_types()),
                         [](const auto& name) { return std::string(dtype_name(name.param)); });

}  // namespace
}  // namespace tierpack::kernels

// Products: every table against the reference bit for bit, the reference against double precision, and the promise that
// a (row, token) pair has one result.
#include <sys/mman.h>
#include <unistd.h>

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
#include "tests/runtime/kernels/kernel_inputs.h"

namespace tierpack::kernels {
namespace {

// A copy that ends where memory may not be touched: reading or writing one byte too many ends the test.
template <typename T>
class Guarded {
 public:
  explicit Guarded(const std::vector<T>& values) {
    const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE)), bytes = values.size() * sizeof(T);
    const size_t body = (bytes + page - 1) / page * page;
    bytes_ = body + page;
    map_ = static_cast<std::byte*>(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    TIERPACK_CHECK(map_ != MAP_FAILED && ::mprotect(map_ + body, page, PROT_NONE) == 0);
    data_ = reinterpret_cast<T*>(map_ + body - bytes);
    std::copy(values.begin(), values.end(), data_);
  }
  ~Guarded() { ::munmap(map_, bytes_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  T* data() const { return data_; }

 private:
  std::byte* map_;
  size_t bytes_;
  T* data_;
};

template <typename T>
std::vector<T> listed(const T* values, size_t count) {
  return values == nullptr ? std::vector<T>{} : std::vector<T>(values, values + count);
}

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

// --- Scales beside plain numbers

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

std::string type_name(const testing::TestParamInfo<DType>& info) { return dtype_name(info.param); }
INSTANTIATE_TEST_SUITE_P(Quantised, EveryType, testing::ValuesIn(quantised_types()), type_name);
INSTANTIATE_TEST_SUITE_P(Plain, EveryType, testing::ValuesIn(plain_types()), type_name);
INSTANTIATE_TEST_SUITE_P(Scaled, PlainType, testing::ValuesIn(plain_types()), type_name);

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

}  // namespace
}  // namespace tierpack::kernels

#include "formats/quantize.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/digest.h"
#include "formats/dequant.h"
#include "formats/dtype_blocks.h"
#include "formats/small_floats.h"
#include "tests/support/errors.h"

namespace tierpack {
namespace {

using testing_support::Thrown;
using testing_support::thrown_by;

constexpr DType kBlockTypes[] = {DType::kQ8_0, DType::kQ6_K, DType::kQ5_K, DType::kQ4_K, DType::kIQ4_NL, DType::kNVFP4};

// Numbers made without libm, so that they are the same everywhere.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  uint32_t bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 32);
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((uint64_t{bits()} * n) >> 32); }
  float uniform() { return static_cast<float>(bits() >> 8) * 0x1p-24f; }
  float gaussian() {  // close to one: the sum of twelve
    float sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }

 private:
  uint64_t state_;
};

std::vector<float> gaussian_row(size_t count, uint64_t seed) {
  Numbers numbers(seed);
  std::vector<float> row(count);
  for (float& x : row) x = numbers.gaussian();
  return row;
}

// One value in 32 lies far out.
std::vector<float> heavy_row(size_t count, uint64_t seed) {
  Numbers numbers(seed);
  std::vector<float> row(count);
  for (float& x : row) x = numbers.gaussian() * (numbers.below(32) == 0 ? 6.0f : 1.0f);
  return row;
}

std::vector<std::byte> quantised(DType type, std::span<const float> values, std::span<const float> importance = {}) {
  std::vector<std::byte> out(row_bytes(type, values.size()), std::byte{0xEE});
  quantize_rows(type, 1, values.size(), values, importance, out);
  return out;
}

std::vector<float> decoded(DType type, const std::vector<std::byte>& bytes, size_t count) {
  std::vector<float> out(count);
  dequantize_row(type, bytes.data(), out.data(), count);
  return out;
}

std::vector<float> there_and_back(DType type, std::span<const float> values, std::span<const float> importance = {}) {
  return decoded(type, quantised(type, values, importance), values.size());
}

// Squared error relative to the squared values, each column weighted.
double relative_error(std::span<const float> values, std::span<const float> found,
                      std::span<const float> weights = {}) {
  double error = 0, whole = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double w = weights.empty() ? 1 : weights[i];
    const double off = double{values[i]} - found[i];
    error += w * off * off;
    whole += w * values[i] * values[i];
  }
  return error / whole;
}

TEST(Quantize, Targets) {
  for (const DType type : kBlockTypes) EXPECT_TRUE(is_quantize_target(type)) << dtype_name(type);
  EXPECT_TRUE(is_quantize_target(DType::kF16) && is_quantize_target(DType::kBF16) && is_quantize_target(DType::kF32));
  EXPECT_FALSE(is_quantize_target(DType::kQ4_0));
  EXPECT_FALSE(is_quantize_target(DType::kIQ2_XS));
  EXPECT_FALSE(is_quantize_target(DType::kI32));
}

// The limits are what the search reaches on these rows, and 2 % more. NVFP4's are of values within its scales' range.
TEST(Quantize, ErrorIsSmall) {
  struct Limit {
    DType type;
    double gaussian, heavy;
  };
  const Limit limits[] = {
      {DType::kQ8_0, 2.45e-5, 7.9e-5},  {DType::kQ6_K, 2.76e-4, 6.55e-4},    {DType::kQ5_K, 1.15e-3, 2.09e-3},
      {DType::kQ4_K, 4.69e-3, 8.56e-3}, {DType::kIQ4_NL, 5.27e-3, 1.162e-2}, {DType::kNVFP4, 6.77e-3, 7.54e-3},
      {DType::kF16, 3e-7, 3e-7},        {DType::kBF16, 3e-6, 3e-6},          {DType::kF32, 0, 0},
  };
  const std::vector<float> gaussian = gaussian_row(16384, 1), heavy = heavy_row(16384, 2);
  for (const Limit& limit : limits) {
    EXPECT_LE(relative_error(gaussian, there_and_back(limit.type, gaussian)), limit.gaussian) << dtype_name(limit.type);
    EXPECT_LE(relative_error(heavy, there_and_back(limit.type, heavy)), limit.heavy) << dtype_name(limit.type);
  }
}

// A uniform quantiser with n steps over a range r makes errors of r^2 / (12 n^2): the search may not do worse on
// uniform values, whose range no cut improves.
TEST(Quantize, UniformValuesReachTheUniformError) {
  Numbers numbers(3);
  std::vector<float> row(8192);
  for (float& x : row) x = 2 * numbers.uniform() - 1;
  const std::map<DType, double> steps = {
      {DType::kQ8_0, 254}, {DType::kQ6_K, 63}, {DType::kQ5_K, 31}, {DType::kQ4_K, 15}};
  for (const auto& [type, n] : steps) {
    const double bound = 4 / (12 * n * n) * 3;  // relative to the mean square of 1/3
    EXPECT_LE(relative_error(row, there_and_back(type, row)), bound) << dtype_name(type);
  }
}

TEST(Quantize, ScaleDoesNotMatter) {
  const std::vector<float> row = gaussian_row(1024, 4);
  for (const DType type : kBlockTypes) {
    if (type == DType::kNVFP4) continue;
    const std::vector<float> plain = there_and_back(type, row);
    for (const float factor : {0x1p-10f, 0x1p10f}) {
      std::vector<float> scaled = row;
      for (float& x : scaled) x *= factor;
      const std::vector<float> found = there_and_back(type, scaled);
      if (factor > 1) {  // the f16 scales are normal: the same codes
        for (size_t i = 0; i < row.size(); ++i) ASSERT_EQ(found[i], plain[i] * factor) << dtype_name(type);
      }
      EXPECT_LE(relative_error(scaled, found), 2 * relative_error(row, plain)) << dtype_name(type);
    }
  }
}

TEST(Quantize, ZerosAndVanishingValuesAreZeroBytes) {
  for (const DType type : kBlockTypes) {
    for (const float value : {0.0f, -0.0f, 1e-12f, -1e-40f, std::numeric_limits<float>::denorm_min()}) {
      const std::vector<float> row(256, value);
      for (const std::byte b : quantised(type, row)) ASSERT_EQ(b, std::byte{0}) << dtype_name(type) << " " << value;
    }
  }
}

TEST(Quantize, SmallestScales) {
  for (const DType type : kBlockTypes) {
    for (int exponent = -29; exponent <= -8; ++exponent) {
      std::vector<float> row = gaussian_row(256, 5);
      for (float& x : row) x = std::ldexp(x, exponent);
      const std::vector<float> found = there_and_back(type, row);
      EXPECT_LE(relative_error(row, found), 1.0001) << dtype_name(type) << " " << exponent;
    }
  }
}

TEST(Quantize, OneValueComesBackExactly) {
  const std::map<DType, std::vector<float>> values = {
      {DType::kQ8_0, {127 * 0.25f, -127 * 0.75f}},  {DType::kQ6_K, {32 * 128 * 0.125f, -32 * 128 * 0.125f}},
      {DType::kQ5_K, {31 * 63 * 0.5f, -63 * 0.5f}}, {DType::kQ4_K, {15 * 63 * 0.5f, -63 * 0.5f}},
      {DType::kIQ4_NL, {127 * 0.5f, -127 * 0.5f}},  {DType::kNVFP4, {6.0f, -3.0f, 0.5f, 0.0029296875f, 2688.0f}},
  };
  for (const auto& [type, list] : values) {
    for (const float value : list) {
      const std::vector<float> row(256, value);
      EXPECT_EQ(there_and_back(type, row), row) << dtype_name(type) << " " << value;
    }
  }
}

// Random codes over the whole range in every sub-block, and scales that reach their largest value.
template <typename Block>
Block random_block(Numbers& numbers) {
  Block b{};
  auto* const bytes = reinterpret_cast<uint8_t*>(&b);
  for (size_t i = 0; i < sizeof b; ++i) bytes[i] = static_cast<uint8_t>(numbers.bits());
  return b;
}

constexpr uint16_t kHalf = 0x3800;  // 0.5 as f16

void whole_range(BlockQ8_0& b) {
  b.d = kHalf;
  for (auto& q : b.qs) q = q == -128 ? 3 : q;
  b.qs[5] = -127, b.qs[31] = 127;
}
void whole_range(BlockIQ4_NL& b) {
  b.d = kHalf;
  b.qs[3] = 0xF0;
}
void whole_range(BlockNVFP4& b) {
  for (uint8_t& d : b.d) d = static_cast<uint8_t>(40 + d % 64);
  for (uint8_t& q : b.qs) q = static_cast<uint8_t>((q & 15) == 8 ? q - 8 : q), q = q >> 4 == 8 ? q & 15 : q;
  for (int s = 0; s < 4; ++s) b.qs[8 * s] = 0x7F;
}
template <typename Block>
void whole_range_affine(Block& b) {
  b.d = kHalf, b.dmin = 0x4100;
  for (uint8_t& s : b.scales) s = static_cast<uint8_t>(s | 0x21);  // none small
  b.scales[0] |= 63, b.scales[5] |= 63;
  for (int g = 0; g < 4; ++g) b.qs[32 * g] = 0, b.qs[32 * g + 1] = 0xFF;
}
void whole_range(BlockQ4_K& b) { whole_range_affine(b); }
void whole_range(BlockQ5_K& b) {
  whole_range_affine(b);
  b.qh[0] = 0, b.qh[1] = 0xFF;
}
void whole_range(BlockQ6_K& b) {
  b.d = kHalf;
  for (int8_t& s : b.scales) s = static_cast<int8_t>(s | 0x11);
  b.scales[9] = -128;
  for (int h = 0; h < 2; ++h) {  // code -32 in every 16
    for (const int l : {0, 16}) b.ql[64 * h + l] = b.ql[64 * h + l + 32] = 0, b.qh[32 * h + l] = 0;
  }
}

template <typename Block>
void expect_exact(DType type, uint64_t seed) {
  Numbers numbers(seed);
  for (int round = 0; round < 50; ++round) {
    Block block = random_block<Block>(numbers);
    whole_range(block);
    const size_t count = traits(type).block_elements;
    std::vector<std::byte> bytes(sizeof block);
    std::memcpy(bytes.data(), &block, sizeof block);
    const std::vector<float> values = decoded(type, bytes, count);
    ASSERT_EQ(there_and_back(type, values), values) << dtype_name(type) << " round " << round;
  }
}

TEST(Quantize, BlocksOfWholeRangeComeBackExactly) {
  expect_exact<BlockQ8_0>(DType::kQ8_0, 10);
  expect_exact<BlockIQ4_NL>(DType::kIQ4_NL, 11);
  expect_exact<BlockNVFP4>(DType::kNVFP4, 12);
  expect_exact<BlockQ4_K>(DType::kQ4_K, 13);
  expect_exact<BlockQ5_K>(DType::kQ5_K, 14);
  expect_exact<BlockQ6_K>(DType::kQ6_K, 15);
}

TEST(Quantize, ImportanceLowersTheWeightedError) {
  const std::vector<float> row = gaussian_row(4096, 20);
  Numbers numbers(21);
  std::vector<float> importance(row.size());
  for (float& w : importance) {
    const float u = numbers.uniform();
    w = 0.001f + u * u * u * u * u * u * 50;
  }
  for (const DType type : kBlockTypes) {
    const double plain = relative_error(row, there_and_back(type, row), importance);
    const double weighted = relative_error(row, there_and_back(type, row, importance), importance);
    EXPECT_LT(weighted, (type == DType::kQ8_0 ? 0.9 : 0.8) * plain) << dtype_name(type);
  }
}

TEST(Quantize, EqualOrMissingImportanceIsTheSame) {
  const std::vector<float> row = heavy_row(512, 22);
  for (const DType type : kBlockTypes) {
    const std::vector<std::byte> plain = quantised(type, row);
    EXPECT_EQ(quantised(type, row, std::vector<float>(row.size(), 3e-9f)), plain) << dtype_name(type);
    EXPECT_EQ(quantised(type, row, std::vector<float>(row.size(), 0.0f)), plain) << dtype_name(type);
  }
}

TEST(Quantize, ColumnsThatNobodyUsesDoNotCount) {
  std::vector<float> row = gaussian_row(256, 23);
  std::vector<float> importance(row.size(), 1.0f);
  for (size_t i = 0; i < row.size(); i += 32) row[i] = 8, importance[i] = 0;
  for (const DType type : kBlockTypes) {
    const double plain = relative_error(row, there_and_back(type, row), importance);
    EXPECT_LT(relative_error(row, there_and_back(type, row, importance), importance), plain) << dtype_name(type);
  }
}

// A row's bytes depend on the row alone.
TEST(Quantize, RowsAreIndependent) {
  const std::vector<float> values = gaussian_row(4 * 512, 24);
  std::vector<float> importance(512);
  Numbers numbers(25);
  for (float& w : importance) w = numbers.uniform();
  for (const DType type : kBlockTypes) {
    std::vector<std::byte> together(4 * row_bytes(type, 512)), apart;
    quantize_rows(type, 4, 512, values, importance, together);
    for (size_t row = 0; row < 4; ++row) {
      const auto one = quantised(type, std::span(values).subspan(row * 512, 512), importance);
      apart.insert(apart.end(), one.begin(), one.end());
    }
    EXPECT_EQ(together, apart) << dtype_name(type);
  }
}

// The same bytes on every machine and with every compiler.
TEST(Quantize, BytesAreRecorded) {
  const std::vector<float> gaussian = gaussian_row(8192, 30), heavy = heavy_row(8192, 31);
  std::vector<float> importance(8192);
  Numbers numbers(32);
  for (float& w : importance) w = numbers.uniform() * numbers.uniform();
  const std::map<DType, std::string> recorded = {
      {DType::kF32, "d79200cd31908e0692d57ca0f41acd04"},   {DType::kF16, "10dd61c6369b8de826a8fc00a486f41a"},
      {DType::kBF16, "8103a0b9c7aca029e8d96d1cd80524e9"},  {DType::kQ8_0, "b63d9e374e3364b3e4c49e9cb3e79c86"},
      {DType::kQ6_K, "ef1f91132bed3a9cd88bc3805d47d4b7"},  {DType::kQ5_K, "541e2d4b5cc939703b5cc43b3af5a874"},
      {DType::kQ4_K, "7988ed9a80927bbd64cad33ad0645834"},  {DType::kIQ4_NL, "27ef08317404a240cd1c092d84a31615"},
      {DType::kNVFP4, "87c631f5c862782552a447cae0ca22ee"},
  };
  for (const auto& [type, hash] : recorded) {
    Xxh3Stream stream;
    stream.update(quantised(type, gaussian));
    stream.update(quantised(type, heavy));
    stream.update(quantised(type, heavy, importance));
    EXPECT_EQ(stream.digest().hex(), hash) << dtype_name(type);
  }
}

TEST(Quantize, PlainTypesRoundToNearestEven) {
  const std::vector<float> values = {1 + 0x1p-11f, 1 + 0x1.8p-10f, 1 + 0x1p-8f, 1 + 0x1.8p-7f,
                                     -0.0f,        65504,          0x1p-24f,    0};
  EXPECT_EQ(there_and_back(DType::kF16, values),
            (std::vector<float>{1, 1 + 0x1p-9f, 1 + 0x1p-8f, 1 + 0x1.8p-7f, -0.0f, 65504, 0x1p-24f, 0}));
  EXPECT_EQ(there_and_back(DType::kBF16, values),
            (std::vector<float>{1, 1, 1, 1 + 0x1p-6f, -0.0f, 65536, 0x1p-24f, 0}));
  EXPECT_EQ(there_and_back(DType::kF32, values), values);
}

TEST(Quantize, ValuesAtTheLimitFit) {
  for (const DType type : kBlockTypes) {
    std::vector<float> row = gaussian_row(256, 40);
    for (float& x : row) x *= quantize_limit(type) / 8;
    row[7] = quantize_limit(type);
    row[200] = -quantize_limit(type);
    const std::vector<float> found = there_and_back(type, row);
    for (const float y : found) ASSERT_TRUE(std::isfinite(y)) << dtype_name(type);
    EXPECT_LT(relative_error(row, found), 0.02) << dtype_name(type);
  }
}

TEST(Quantize, BadInput) {
  const float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ6_K, DType::kQ5_K,
                           DType::kQ4_K, DType::kIQ4_NL, DType::kNVFP4}) {
    for (const float bad : {kNan, -kNan, kInf, -kInf}) {
      std::vector<float> values(3 * 256, 1.0f);
      values[2 * 256 + 17] = bad;
      std::vector<std::byte> out(3 * row_bytes(type, 256));
      const Thrown thrown = thrown_by([&] { quantize_rows(type, 3, 256, values, {}, out); });
      EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt) << dtype_name(type);
      EXPECT_NE(thrown.message.find("row 2: column 17"), std::string::npos) << thrown.message;
    }
    if (type == DType::kF32) continue;
    std::vector<float> values(256, 1.0f);
    values[3] = -std::numeric_limits<float>::max();
    EXPECT_EQ(thrown_by([&] { quantised(type, values); }).kind, ErrorKind::kUnsupported) << dtype_name(type);
  }
  const std::vector<float> row(256, 1.0f);
  std::vector<std::byte> out(4096);
  EXPECT_EQ(thrown_by([&] { quantize_rows(DType::kQ4_0, 1, 256, row, {}, out); }).kind, ErrorKind::kUnsupported);
  EXPECT_EQ(thrown_by([&] { quantize_rows(DType::kQ4_K, 2, 128, row, {}, out); }).kind, ErrorKind::kUnsupported);
  for (const float bad : {-1.0f, kNan, kInf}) {
    std::vector<float> importance(256, 1.0f);
    importance[9] = bad;
    const Thrown thrown = thrown_by([&] { quantised(DType::kQ4_K, row, importance); });
    EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt);
    EXPECT_NE(thrown.message.find("column 9"), std::string::npos) << thrown.message;
  }
}

TEST(Quantize, SecondScaleOfNvfp4) {
  EXPECT_EQ(nvfp4_tensor_scale(0), 1);
  EXPECT_EQ(nvfp4_tensor_scale(2688), 1);
  std::vector<float> row = gaussian_row(1024, 50);
  float largest = 0;
  for (float& x : row) x *= 0.01f, largest = std::max(largest, std::fabs(x));
  std::vector<float> scaled = row;
  for (float& x : scaled) x /= nvfp4_tensor_scale(largest);
  EXPECT_LT(relative_error(scaled, there_and_back(DType::kNVFP4, scaled)), 0.0075);
  EXPECT_GT(relative_error(row, there_and_back(DType::kNVFP4, row)), 0.0075);
}

}  // namespace
}  // namespace tierpack

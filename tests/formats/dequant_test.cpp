#include "formats/dequant.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "formats/iq_grids.h"

namespace tierpack {
namespace {

// One block of a golden file: lines "B <hex bytes>" and "V <f32 bits in hex> ...".
struct GoldenBlock {
  std::vector<std::byte> bytes;
  std::vector<uint32_t> values;
};

std::vector<GoldenBlock> read_golden(const std::string& name) {
  std::ifstream in(std::string(TIERPACK_SOURCE_DIR "/tests/data/golden/") + name + ".txt");
  EXPECT_TRUE(in) << name;
  std::vector<GoldenBlock> blocks;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string tag, word;
    words >> tag;
    if (tag == "B") {
      words >> word;
      std::vector<std::byte> bytes(word.size() / 2);
      EXPECT_TRUE(from_hex(word, bytes));
      blocks.push_back({bytes, {}});
    } else if (tag == "V") {
      while (words >> word) blocks.back().values.push_back(static_cast<uint32_t>(std::stoul(word, nullptr, 16)));
    }
  }
  return blocks;
}

class GoldenTypes : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTypes, EqualBitForBit) {
  const DType type = dtype_from_name(GetParam()).value();
  std::vector<std::byte> row{std::byte{0xaa}};  // begins at an odd address
  std::vector<uint32_t> expected;
  for (const GoldenBlock& block : read_golden(GetParam())) {
    row.insert(row.end(), block.bytes.begin(), block.bytes.end());
    expected.insert(expected.end(), block.values.begin(), block.values.end());
  }
  ASSERT_EQ(expected.size(), 512u);
  ASSERT_EQ(row.size() - 1, row_bytes(type, expected.size()));
  std::vector<float> decoded(expected.size());
  dequantize_row(type, row.data() + 1, decoded.data(), decoded.size());
  for (size_t e = 0; e < expected.size(); ++e) {
    ASSERT_EQ(std::bit_cast<uint32_t>(decoded[e]), expected[e]) << "element " << e;
  }
}

INSTANTIATE_TEST_SUITE_P(Dequant, GoldenTypes,
                         testing::Values("f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K",
                                         "q5_K", "q6_K", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s",
                                         "iq1_m", "iq4_nl", "iq4_xs", "tq1_0", "tq2_0", "mxfp4", "nvfp4", "q1_0",
                                         "q2_0"),
                         [](const auto& param) { return std::string(param.param); });

template <typename Number>
std::vector<float> decode_numbers(DType type, std::vector<Number> numbers) {
  std::vector<float> out(numbers.size());
  dequantize_row(type, reinterpret_cast<const std::byte*>(numbers.data()), out.data(), out.size());
  return out;
}

TEST(Dequant, PlainNumbersConvert) {
  EXPECT_EQ(decode_numbers<float>(DType::kF32, {1.5f, -0.25f}), (std::vector<float>{1.5f, -0.25f}));
  EXPECT_EQ(decode_numbers<double>(DType::kF64, {1.0 / 3, -2}), (std::vector<float>{1.0f / 3, -2}));
  EXPECT_EQ(decode_numbers<int8_t>(DType::kI8, {-128, 127}), (std::vector<float>{-128, 127}));
  EXPECT_EQ(decode_numbers<int16_t>(DType::kI16, {-32768, 7}), (std::vector<float>{-32768, 7}));
  EXPECT_EQ(decode_numbers<int32_t>(DType::kI32, {-2147483647 - 1, 16777216}),
            (std::vector<float>{-2147483648.0f, 16777216}));
  EXPECT_EQ(decode_numbers<int64_t>(DType::kI64, {int64_t{1} << 40, -1}), (std::vector<float>{1099511627776.0f, -1}));
}

// Every code, against the values of the format's table.
TEST(Dequant, EveryFp8CodeDecodes) {
  std::ifstream in(TIERPACK_SOURCE_DIR "/tests/data/e4m3fn_values.txt");
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  const std::vector<float> values = decode_numbers(DType::kF8_E4M3, codes);
  size_t code = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    ASSERT_LT(code, codes.size());
    const float expected = std::stof(line);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(values[code])) << code;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(values[code]), std::bit_cast<uint32_t>(expected)) << code;
    }
    ++code;
  }
  EXPECT_EQ(code, codes.size());
}

TEST(Dequant, ActivationBlocksDecode) {
  std::vector<std::byte> q8_1(36);
  store(q8_1.data(), f32_to_f16(0.5f));
  for (int j = 0; j < 32; ++j) q8_1[static_cast<size_t>(4 + j)] = static_cast<std::byte>(j - 16);
  std::vector<float> out(256);
  dequantize_row(DType::kQ8_1, q8_1.data(), out.data(), 32);
  for (int j = 0; j < 32; ++j) EXPECT_EQ(out[static_cast<size_t>(j)], 0.5f * static_cast<float>(j - 16));

  std::vector<std::byte> q8_k(292);
  store(q8_k.data(), -0.25f);
  for (int e = 0; e < 256; ++e) q8_k[static_cast<size_t>(4 + e)] = static_cast<std::byte>(e - 128);
  dequantize_row(DType::kQ8_K, q8_k.data(), out.data(), 256);
  for (int e = 0; e < 256; ++e) EXPECT_EQ(out[static_cast<size_t>(e)], -0.25f * static_cast<float>(e - 128));
}

// No block is invalid: whatever the bytes, indices stay inside the tables (the sanitizer builds watch).
TEST(Dequant, AnyBytesDecode) {
  uint32_t state = 1;
  for (const DTypeTraits& t : all_dtypes()) {
    std::vector<std::byte> row(size_t{t.block_bytes} * 64);
    std::vector<float> out(size_t{t.block_elements} * 64);
    for (int fill = 0; fill < 3; ++fill) {
      for (std::byte& b : row) {
        state = state * 1664525 + 1013904223;
        b = fill == 0 ? static_cast<std::byte>(state >> 24) : fill == 1 ? std::byte{0xff} : std::byte{0};
      }
      dequantize_row(t.type, row.data(), out.data(), out.size());
      if (fill == 2 && t.type != DType::kQ1_0) {
        EXPECT_EQ(std::count(out.begin(), out.end(), 0.0f), static_cast<ptrdiff_t>(out.size())) << t.name;
      }
    }
  }
}

TEST(Dequant, PartialBlockIsRefused) {
  std::vector<std::byte> row(18);
  std::vector<float> out(32);
  EXPECT_THROW(dequantize_row(DType::kQ4_0, row.data(), out.data(), 31), Error);
}

TEST(Dequant, HalfPrecisionRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_f32(half);
    if (std::isnan(value)) {
      EXPECT_EQ(bits & 0x7c00, 0x7c00u);
      EXPECT_NE(bits & 0x3ff, 0u);
      EXPECT_EQ(f32_to_f16(value), (bits & 0x8000) | 0x7e00);
      continue;
    }
    ASSERT_EQ(f32_to_f16(value), half) << bits;
    // Between two neighbours: the midpoint goes to the even one, anything beyond it to the nearer one.
    if ((bits & 0x7fff) < 0x7bff) {
      const float next = f16_to_f32(static_cast<uint16_t>(bits + 1));
      const float middle = (value + next) / 2;
      ASSERT_EQ(f32_to_f16(middle), half & 1 ? half + 1 : half) << bits;
      ASSERT_EQ(f32_to_f16(std::nextafter(middle, value)), half) << bits;
      ASSERT_EQ(f32_to_f16(std::nextafter(middle, next)), half + 1) << bits;
    }
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-INFINITY), 0xfc00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);
  EXPECT_EQ(f32_to_f16(0x1.8p-25f), 1);
}

TEST(Dequant, Bfloat16RoundsToNearestEven) {
  EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie, to even
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x00000001u)), 0);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7f7fffffu)), 0x7f80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7f800001u)), 0x7fc0);  // a NaN stays one
  EXPECT_EQ(bf16_to_f32(0xc040), -3.0f);
}

TEST(Dequant, BlockScales) {
  EXPECT_EQ(e8m0_half_to_f32(0), std::ldexp(1.0f, -128));
  EXPECT_EQ(e8m0_half_to_f32(1), std::ldexp(1.0f, -127));
  for (int code = 2; code < 256; ++code)
    EXPECT_EQ(e8m0_half_to_f32(static_cast<uint8_t>(code)), std::ldexp(1.0f, code - 128));
  EXPECT_EQ(ue4m3_half_to_f32(0x7f), 0.0f);
  EXPECT_EQ(ue4m3_half_to_f32(0x7e), 224.0f);
  EXPECT_EQ(ue4m3_half_to_f32(0x38), 0.5f);
  EXPECT_EQ(ue4m3_half_to_f32(0x01), 0x1p-10f);
}

TEST(Dequant, SignTableHasEvenParity) {
  for (uint32_t i = 0; i < 128; ++i) {
    EXPECT_EQ(iq_signs(i) & 127u, i);
    EXPECT_EQ(std::popcount(iq_signs(i)) % 2, 0);
  }
}

// The code books hold only the magnitudes that their types define.
TEST(Dequant, GridsHoldKnownMagnitudes) {
  const auto check = [](const auto& grid, std::initializer_list<int> allowed) {
    for (const auto entry : grid) {
      for (size_t k = 0; k < sizeof entry; ++k) {
        const int value = static_cast<int>((entry >> (8 * k)) & 255);
        EXPECT_NE(std::find(allowed.begin(), allowed.end(), value), allowed.end()) << value;
      }
    }
  };
  check(kIq2xxsGrid, {8, 25, 43});
  check(kIq2xsGrid, {8, 25, 43});
  check(kIq2sGrid, {8, 25, 43});
  check(kIq3xxsGrid, {4, 12, 20, 28, 36, 44, 52, 62});
  check(kIq3sGrid, {1, 3, 5, 7, 9, 11, 13, 15});
  check(kIq1sGrid, {0, 1, 255});
}

}  // namespace
}  // namespace tierpack

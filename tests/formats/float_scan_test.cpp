#include "formats/float_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>

#include "formats/dequant.h"
#include "formats/dtype_blocks.h"
#include "formats/quant_decode.h"

namespace tierpack {
namespace {

// Counted on decoded values, one by one.
FloatScan by_value(HfType type, const std::vector<std::byte>& data) {
  const uint64_t count = data.size() * 8 / hf_traits(type).bits;
  std::vector<float> values(count);
  decode_plain(type, data.data(), values.data(), count);
  FloatScan found;
  for (const float value : values) {
    found.nan += std::isnan(value);
    found.inf += std::isinf(value);
  }
  return found;
}

TEST(FloatScan, CountsWhatDecodingShows) {
  std::mt19937_64 random(7);
  for (const HfType type : {HfType::kF16, HfType::kBF16, HfType::kF32, HfType::kF8E4M3, HfType::kF8E5M2,
                            HfType::kF8E8M0, HfType::kU8, HfType::kI32}) {
    FloatScan total;
    for (const size_t count : {0, 1, 7, 255, 256, 257, 70'000}) {
      std::vector<std::byte> data(count * hf_traits(type).bits / 8);
      for (std::byte& byte : data) {
        // Many all-ones exponents, so that the wide types meet their special codes as well.
        byte = static_cast<std::byte>(random() % 4 == 0 ? 0x7F + random() % 2 * 0x80 : random());
        if (random() % 8 == 0) byte = std::byte{0x80};
        if (random() % 8 == 0) byte = std::byte{0};
      }
      const FloatScan found = scan_floats(type, data), expected = by_value(type, data);
      EXPECT_EQ(found.nan, expected.nan) << hf_type_name(type) << " x " << count;
      EXPECT_EQ(found.inf, expected.inf) << hf_type_name(type) << " x " << count;
      total += found;
    }
    EXPECT_EQ(!total.clean(), has_nonfinite_codes(type)) << hf_type_name(type);
  }
}

TEST(FloatScan, FindsASingleSpecialValueAtAnyPlaceAndAlignment) {
  for (size_t at = 0; at < 600; ++at) {
    std::vector<std::byte> data(600 * 4 + 1);
    store(data.data() + 1 + at * 4, at % 2 == 0 ? INFINITY : -INFINITY);
    FloatScan found = scan_floats(HfType::kF32, Bytes(data).subspan(1));
    EXPECT_EQ(found.inf, 1u) << at;
    EXPECT_EQ(found.nan, 0u) << at;
    store(data.data() + 1 + at * 4, uint32_t{0xFF800001});
    found = scan_floats(HfType::kF32, Bytes(data).subspan(1));
    EXPECT_EQ(found.nan, 1u) << at;
  }
}

TEST(FloatScan, WideAndRareTypes) {
  std::vector<std::byte> data(8 * 300);
  store(data.data() + 8 * 299, std::nan(""));
  store(data.data() + 8 * 5, -HUGE_VAL);
  EXPECT_EQ(scan_floats(HfType::kF64, data).nan, 1u);
  EXPECT_EQ(scan_floats(HfType::kF64, data).inf, 1u);
  std::vector<std::byte> complex(16);
  store(complex.data() + 4, INFINITY);
  store(complex.data() + 8, NAN);
  EXPECT_EQ(scan_floats(HfType::kC64, complex).nan, 1u);
  EXPECT_EQ(scan_floats(HfType::kC64, complex).inf, 1u);
  const std::vector<std::byte> negative_zero(3, std::byte{0x80});
  EXPECT_EQ(scan_floats(HfType::kF8E4M3Fnuz, negative_zero).nan, 3u);
  EXPECT_EQ(scan_floats(HfType::kF8E4M3, negative_zero).nan, 0u);
  EXPECT_TRUE(scan_floats(HfType::kF4, std::vector<std::byte>(3, std::byte{0xFF})).clean());
}

// A quantised block has a bad scale exactly when decoding it gives a value that is not finite.
TEST(FloatScan, BlockScalesAreWhatDecodingShows) {
  std::mt19937_64 random(8);
  for (const DTypeTraits& type : all_dtypes()) {
    // Not decoded, with scales that decoding ignores or reads as numbers, or beyond f32.
    if (type.type == DType::kQ8_1 || type.type == DType::kQ8_K || type.type == DType::kMXFP4 || type.type == DType::kNVFP4 ||
        type.type == DType::kF64) {
      continue;
    }
    size_t bad = 0, good = 0;
    for (int round = 0; round < 3000; ++round) {
      std::vector<std::byte> block(type.block_bytes);
      for (std::byte& byte : block) byte = static_cast<std::byte>(random() % 3 == 0 ? 0x7C | (random() & 0x83) : random());
      if (type.type == DType::kIQ1_M) {  // the scale's nibbles, all ones in its exponent now and then
        if (random() % 2 == 0) block[55] = static_cast<std::byte>(0x7F), block[53] = static_cast<std::byte>(random() | 0xC0);
      }
      std::vector<float> values(type.block_elements);
      dequantize_row(type.type, block.data(), values.data(), values.size());
      const bool finite = std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
      ASSERT_EQ(scan_floats(type.type, block).clean(), finite) << type.name << " round " << round;
      ++(finite ? good : bad);
    }
    EXPECT_GT(good, 50u) << type.name;
    EXPECT_EQ(bad > 50, has_nonfinite_codes(type.type)) << type.name;
  }
}

TEST(FloatScan, ByteScalesAndUnusedSumsCount) {
  BlockMXFP4 mx{};
  BlockNVFP4 nv{};
  BlockQ8_1 q8_1{};
  BlockQ8_K q8_k{};
  const auto scan = [](DType type, const auto& block) { return scan_floats(type, std::as_bytes(std::span(&block, 1))); };
  EXPECT_TRUE(scan(DType::kMXFP4, mx).clean());
  mx.e = 0xFF;
  EXPECT_EQ(scan(DType::kMXFP4, mx).nan, 1u);
  EXPECT_TRUE(scan(DType::kNVFP4, nv).clean());
  nv.d[3] = 0x7F;
  EXPECT_EQ(scan(DType::kNVFP4, nv).nan, 1u);
  q8_1.s = 0x7C00;
  EXPECT_EQ(scan(DType::kQ8_1, q8_1).inf, 1u);
  q8_k.d = std::nanf("");
  EXPECT_EQ(scan(DType::kQ8_K, q8_k).nan, 1u);
}

}  // namespace
}  // namespace tierpack

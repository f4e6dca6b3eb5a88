#include "formats/small_floats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>

#include "formats/dequant.h"

namespace tierpack {
namespace {

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

// The value of an IEEE-like code by its definition, in double.
double by_definition(int code, int exponent_bits, int mantissa_bits, int bias) {
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  const int exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double fraction = mantissa / std::ldexp(1.0, mantissa_bits);
  const double size = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return (code >> (exponent_bits + mantissa_bits)) & 1 ? -size : size;
}

TEST(SmallFloats, E2m1HasTheEightMagnitudesOfTheStandard) {
  const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int code = 0; code < 8; ++code) {
    EXPECT_EQ(bits(kE2m1Values[code]), bits(magnitudes[code])) << code;
    EXPECT_EQ(bits(kE2m1Values[code + 8]), bits(-magnitudes[code])) << code;
    EXPECT_EQ(bits(e2m1_to_f32(static_cast<uint8_t>(0xF0 | code))), bits(magnitudes[code])) << "high bits are ignored";
  }
}

TEST(SmallFloats, E4m3EqualsThePublishedTable) {
  std::ifstream in(TIERPACK_SOURCE_DIR "/tests/data/e4m3fn_values.txt");
  std::string line;
  int code = 0;
  while (std::getline(in, line)) {
    if (line.empty() || line[0] == '#') continue;
    ASSERT_LT(code, 256);
    if (line == "nan" || line == "-nan") {
      EXPECT_TRUE(std::isnan(kE4m3Values[code])) << code;
    } else {
      EXPECT_EQ(bits(kE4m3Values[code]), bits(std::stof(line))) << code;
    }
    ++code;
  }
  EXPECT_EQ(code, 256);
  EXPECT_EQ(e4m3_to_f32(0x7E), 448.0f);
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0x7F)));
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0xFF)));
}

TEST(SmallFloats, EightBitFloatsFollowTheirDefinition) {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    if ((code & 0x7F) != 0x7F) {
      EXPECT_EQ(kE4m3Values[code], by_definition(code, 4, 3, 7)) << code;
    }
    if ((code & 0x7C) != 0x7C) {
      EXPECT_EQ(kE5m2Values[code], by_definition(code, 5, 2, 15)) << code;
    }
    // E5M2 is the upper half of an f16.
    const float half = f16_to_f32(static_cast<uint16_t>(code << 8));
    if (std::isnan(half)) {
      EXPECT_TRUE(std::isnan(e5m2_to_f32(byte))) << code;
    } else {
      EXPECT_EQ(bits(e5m2_to_f32(byte)), bits(half)) << code;
    }
  }
}

TEST(SmallFloats, E8m0IsAPowerOfTwoDownToASubnormal) {
  for (int code = 0; code < 255; ++code) EXPECT_EQ(kE8m0Values[code], std::ldexp(1.0, code - 127)) << code;
  EXPECT_GT(e8m0_to_f32(0), 0.0f);
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
}

TEST(SmallFloats, Ue4m3IsTwiceTheScaleOfGgmlsNvfp4) {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    EXPECT_EQ(bits(ue4m3_to_f32(byte) * 0.5f), bits(ue4m3_half_to_f32(byte))) << code;
  }
  EXPECT_EQ(ue4m3_to_f32(0x7F), 0.0f);
}

}  // namespace
}  // namespace tierpack

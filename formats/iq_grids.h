// Code tables of the IQ, MXFP4 and NVFP4 types (docs/dtypes.md). The grids are generated: scripts/make_grids.py turns
// formats/grids/*.txt into iq_grids.cpp.
#pragma once

#include <array>
#include <cstdint>

namespace tierpack {

// Byte k of an entry (least significant first) belongs to element k of a group of 8 or 4: its magnitude, except in
// kIq1sGrid, where it is a signed byte -1, 0 or 1.
extern const std::array<uint64_t, 256> kIq2xxsGrid;
extern const std::array<uint64_t, 512> kIq2xsGrid;
extern const std::array<uint64_t, 1024> kIq2sGrid;
extern const std::array<uint32_t, 256> kIq3xxsGrid;
extern const std::array<uint32_t, 512> kIq3sGrid;
extern const std::array<uint64_t, 2048> kIq1sGrid;  // IQ1_S and IQ1_M

// Signs of a group of 8 in IQ2_XXS, IQ2_XS and IQ3_XXS: bit j set = element j negative. The low 7 bits are the index;
// bit 7 makes the number of set bits even.
constexpr uint8_t iq_signs(uint32_t index) {
  uint32_t parity = index ^ (index >> 4);
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return static_cast<uint8_t>(index | (parity & 1) << 7);
}

// IQ4_NL and IQ4_XS.
inline constexpr std::array<int8_t, 16> kIq4nlValues = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                        1,    13,   25,  38,  53,  69,  89,  113};
// E2M1 times two (MXFP4, NVFP4, whose scales are halved); code 8 gives +0.
inline constexpr std::array<int8_t, 16> kFp4Values = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace tierpack

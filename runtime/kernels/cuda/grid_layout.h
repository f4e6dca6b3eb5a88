// The grids of formats/iq_grids.h as they lie in device memory. A grid has at most eight different values, so an entry is a number of a value
// in four bits for each element: 32 bits for eight elements, 16 for four. Kernels look entries up in the cache, of which these take little, and
// make bytes of them with __byte_perm.
#pragma once

#include <array>
#include <cstdint>

namespace tierpack::kernels::cuda {

// The tables begin at these words.
inline constexpr uint32_t kGridIq2Xxs = 0;
inline constexpr uint32_t kGridIq2Xs = kGridIq2Xxs + 256;
inline constexpr uint32_t kGridIq2S = kGridIq2Xs + 512;
inline constexpr uint32_t kGridIq1 = kGridIq2S + 1024;
inline constexpr uint32_t kGridIq3Xxs = kGridIq1 + 2048;
inline constexpr uint32_t kGridIq3S = kGridIq3Xxs + 256 / 2;
inline constexpr uint32_t kGridWords = kGridIq3S + 512 / 2;

using GridValues = std::array<uint8_t, 8>;
inline constexpr GridValues kIq2Values = {8, 25, 43};
inline constexpr GridValues kIq3XxsValues = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr GridValues kIq3SValues = {1, 3, 5, 7, 9, 11, 13, 15};
// 8 g + 8 for g = -1, 0, 1.
inline constexpr GridValues kIq1Values = {0, 8, 16};

// Values 0 .. 3 and 4 .. 7 as bytes of a word.
constexpr uint32_t values_word(const GridValues& values, unsigned half) {
  uint32_t word = 0;
  for (unsigned i = 0; i < 4; ++i) word |= static_cast<uint32_t>(values[4 * half + i]) << (8 * i);
  return word;
}

}  // namespace tierpack::kernels::cuda

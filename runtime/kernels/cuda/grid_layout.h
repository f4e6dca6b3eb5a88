// Where the grids of formats/iq_grids.h lie in device memory: words of four elements from these on. The ternary grid holds 8 g + 8 for
// its -1, 0 and 1.
#pragma once

#include <cstdint>

namespace tierpack::kernels::cuda {

inline constexpr uint32_t kGridIq2Xxs = 0;
inline constexpr uint32_t kGridIq2Xs = kGridIq2Xxs + 2 * 256;
inline constexpr uint32_t kGridIq2S = kGridIq2Xs + 2 * 512;
inline constexpr uint32_t kGridIq3Xxs = kGridIq2S + 2 * 1024;
inline constexpr uint32_t kGridIq3S = kGridIq3Xxs + 256;
inline constexpr uint32_t kGridIq1 = kGridIq3S + 512;
inline constexpr uint32_t kGridWords = kGridIq1 + 2 * 2048;

}  // namespace tierpack::kernels::cuda

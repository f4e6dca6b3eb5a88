// Loops over the 32 interleaved partial sums of docs/arithmetic.md in vectors of any width. Included after the vector header of
// an instruction set, by the headers that several sets compile.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tierpack::kernels {
namespace {

constexpr uint32_t kSumParts = 32 / kWideLanes;

// The tree's steps from 32 partial sums down to one vector.
[[gnu::always_inline]] inline Wide join_parts(const Sums32& sums) {
  if constexpr (kSumParts == 2) {
    return Wide{sums.part[0]} + Wide{sums.part[1]};
  } else {
    return (Wide{sums.part[0]} + Wide{sums.part[2]}) + (Wide{sums.part[1]} + Wide{sums.part[3]});
  }
}

// step(index, part, lanes) over n elements, ascending; part is a constant at each call, so that sums live in registers.
template <typename Step>
[[gnu::always_inline]] inline void for_each_wide(uint32_t n, Step&& step) {
  uint32_t i = 0;
  for (; i + 32 <= n; i += 32) {
#pragma GCC unroll 4
    for (uint32_t part = 0; part < kSumParts; ++part) step(i + part * kWideLanes, part, kWideLanes);
  }
#pragma GCC unroll 4
  for (uint32_t part = 0; part < kSumParts; ++part, i += kWideLanes) {
    if (i < n) step(i, part, n - i < kWideLanes ? n - i : kWideLanes);
  }
}

}  // namespace
}  // namespace tierpack::kernels

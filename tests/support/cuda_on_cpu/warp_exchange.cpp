// What the lanes of a warp compute together, and binary16.
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <bit>
#include <cstring>

#include <fmt/core.h>

#include "tests/support/cuda_on_cpu/block_run.h"
#include "tests/support/cuda_on_cpu/device_functions.h"

namespace tierpack::cuda_on_cpu {
namespace {

void shuffle_values(Collective kind, uint32_t mask, Exchange* const (&lanes)[kWarpLanes]) {
  uint64_t values[kWarpLanes];
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) values[lane] = lanes[lane] ? lanes[lane]->value : 0;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    Exchange& exchange = *lanes[lane];
    const int width = exchange.width, first = lane & ~(width - 1), last = first + width - 1;
    if (width <= 0 || width > 32 || (width & (width - 1)) != 0) {
      fail_thread(fmt::format("{} with width {}", name_of(kind), width));
    }
    int source = lane;
    if (kind == Collective::kShuffle) source = first | (exchange.argument & (width - 1));
    if (kind == Collective::kShuffleXor && (lane ^ exchange.argument) <= last) source = lane ^ exchange.argument;
    if (kind == Collective::kShuffleUp && lane - exchange.argument >= first) source = lane - exchange.argument;
    if (kind == Collective::kShuffleDown && lane + exchange.argument <= last) source = lane + exchange.argument;
    if (source < 0 || source >= 32 || (mask >> source & 1) == 0) {
      fail_thread(fmt::format("{} with mask {:#010x}: lane {} reads lane {}, which the mask leaves out", name_of(kind), mask, lane, source));
    }
    exchange.value = values[source];
  }
}

// dialect.cuh has the layout. Products are taken in pairs along k, for eight columns at once.
void multiply_matrices(Exchange* const (&lanes)[kWarpLanes]) {
  constexpr int kRows = 16, kColumns = 8, kPairs = 16;
  const int pairs = lanes[0]->argument / 2;
  int16_t a[kRows][kPairs][2], b[kPairs][kColumns][2];
  for (int lane = 0; lane < 32; ++lane) {
    if (lanes[lane]->argument != lanes[0]->argument) fail_thread("lanes of a warp in different mma");
    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < pairs / 8; ++half) {
      for (int byte = 0; byte < 4; ++byte) {
        const auto at = [byte](uint32_t word) { return static_cast<int8_t>(word >> (8 * byte)); };
        const int pair = 8 * half + 2 * t + byte / 2;
        a[g][pair][byte % 2] = at(lanes[lane]->a[2 * half]);
        a[g + 8][pair][byte % 2] = at(lanes[lane]->a[2 * half + 1]);
        b[pair][g][byte % 2] = at(lanes[lane]->b[half]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    int32_t sums[kColumns] = {};
#ifdef __SSE2__
    __m128i low = _mm_setzero_si128(), high = low;
    for (int pair = 0; pair < pairs; ++pair) {
      int32_t both;
      std::memcpy(&both, a[row][pair], sizeof(both));
      const __m128i factor = _mm_set1_epi32(both);
      const auto* const columns = reinterpret_cast<const __m128i*>(b[pair]);
      low = _mm_add_epi32(low, _mm_madd_epi16(factor, _mm_loadu_si128(columns)));
      high = _mm_add_epi32(high, _mm_madd_epi16(factor, _mm_loadu_si128(columns + 1)));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(sums), low);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(sums + 4), high);
#else
    for (int pair = 0; pair < pairs; ++pair) {
      for (int column = 0; column < kColumns; ++column) {
        sums[column] += a[row][pair][0] * b[pair][column][0] + a[row][pair][1] * b[pair][column][1];
      }
    }
#endif
    for (int column = 0; column < kColumns; ++column) {
      int32_t& d = lanes[row % 8 * 4 + column / 2]->d[row / 8 * 2 + column % 2];
      d = static_cast<int32_t>(static_cast<uint32_t>(d) + static_cast<uint32_t>(sums[column]));
    }
  }
}

}  // namespace

const char* name_of(Collective kind) {
  switch (kind) {
    case Collective::kSyncWarp: return "__syncwarp";
    case Collective::kShuffle: return "__shfl_sync";
    case Collective::kShuffleXor: return "__shfl_xor_sync";
    case Collective::kShuffleUp: return "__shfl_up_sync";
    case Collective::kShuffleDown: return "__shfl_down_sync";
    case Collective::kBallot: return "__ballot_sync";
    case Collective::kAny: return "__any_sync";
    case Collective::kAll: return "__all_sync";
    case Collective::kMma: return "mma";
  }
  return "?";
}

void exchange_values(Collective kind, uint32_t mask, Exchange* const (&lanes)[kWarpLanes]) {
  switch (kind) {
    case Collective::kSyncWarp: return;
    case Collective::kShuffle:
    case Collective::kShuffleXor:
    case Collective::kShuffleUp:
    case Collective::kShuffleDown: shuffle_values(kind, mask, lanes); return;
    case Collective::kBallot:
    case Collective::kAny:
    case Collective::kAll: {
      uint32_t votes = 0;
      for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        if (lanes[lane]->value != 0) votes |= 1u << lane;
      }
      const uint32_t result = kind == Collective::kBallot ? votes : kind == Collective::kAny ? votes != 0 : votes == mask;
      for (uint32_t rest = mask; rest != 0; rest &= rest - 1) lanes[std::countr_zero(rest)]->value = result;
      return;
    }
    case Collective::kMma: multiply_matrices(lanes); return;
  }
}

}  // namespace tierpack::cuda_on_cpu

namespace tierpack::kernels::cuda {

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 0x3FFu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13 | (fraction != 0 ? 0x400000u : 0));
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t float_to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
  if (size > 0x7F800000u) return 0x7FFF;
  if (size >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65520 and more
  uint32_t half, rest, middle;
  if (size >= 0x38800000u) {  // 2^-14: normal
    half = (size - 0x38000000u) >> 13;
    rest = size & 0x1FFFu;
    middle = 0x1000u;
  } else {
    const uint32_t shift = 126 - (size >> 23);  // of the significand to units of 2^-24
    if (shift > 25) return static_cast<uint16_t>(sign);
    const uint32_t significand = (size & 0x7FFFFFu) | 0x800000u;
    half = significand >> shift;
    rest = significand & ((1u << shift) - 1);
    middle = 1u << (shift - 1);
  }
  if (rest > middle || (rest == middle && (half & 1) != 0)) ++half;
  return static_cast<uint16_t>(sign | half);
}

}  // namespace tierpack::kernels::cuda

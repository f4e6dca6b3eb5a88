// The emulator's functions against plain definitions.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "formats/dequant.h"
#include "runtime/kernels/cuda/dialect.cuh"

namespace tierpack::kernels::cuda {
namespace {

using cuda_on_cpu::run_grid;

TEST(DeviceFunctions, HalfToFloat) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float expected = f16_to_f32(static_cast<uint16_t>(bits)), found = half_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found)) << bits;
    } else {
      ASSERT_EQ(__float_as_uint(found), __float_as_uint(expected)) << bits;
    }
  }
}

// Every half, the middle to its neighbour, and what lies just beside that.
TEST(DeviceFunctions, FloatToHalf) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float low = half_to_float(static_cast<uint16_t>(bits));
    const float high = bits == 0x7BFF ? 65536.0f : half_to_float(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;
    for (const uint32_t sign : {0u, 0x8000u}) {
      const auto half = [sign](float x) { return float_to_half(sign != 0 ? -x : x) ^ sign; };
      ASSERT_EQ(half(low), bits);
      ASSERT_EQ(half(middle), bits % 2 == 0 ? bits : bits + 1) << middle;
      ASSERT_EQ(half(std::nextafter(middle, 0.0f)), bits);
      ASSERT_EQ(half(std::nextafter(middle, kInfinity)), bits + 1);
    }
  }
  EXPECT_EQ(float_to_half(kInfinity), 0x7C00);
  EXPECT_EQ(float_to_half(-1e30f), 0xFC00);
  EXPECT_EQ(float_to_half(1e-40f), 0);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::quiet_NaN()), 0x7FFF);
}

TEST(DeviceFunctions, Integers) {
  EXPECT_EQ(__dp4a(static_cast<int>(0x80FF017Fu), static_cast<int>(0x80FF027Fu), -5), 128 * 128 + 1 + 2 + 127 * 127 - 5);
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x7250u), 0x77225500u);
  EXPECT_EQ(__popc(0xF000000Fu), 8);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__float2int_rn(2.5f), 2);
  EXPECT_EQ(__float2int_rn(-3.5f), -4);
  EXPECT_EQ(__float2int_rn(3e9f), INT32_MAX);
  EXPECT_EQ(__float2int_rn(-3e9f), INT32_MIN);
  EXPECT_EQ(__float2int_rn(std::numeric_limits<float>::quiet_NaN()), 0);
  EXPECT_EQ(min(3u, 7), 3u);
}

template <typename Function>
std::vector<int> by_lane(const Function& function) {
  std::vector<int> values(kWarp);
  run_grid("by_lane", dim3(1), dim3(kWarp), 0, [&] { values[threadIdx.x] = function(static_cast<int>(threadIdx.x)); });
  return values;
}

TEST(WarpFunctions, Shuffles) {
  const std::vector<int> up = by_lane([](int lane) { return __shfl_up_sync(kFullWarp, lane, 3, 8); });
  const std::vector<int> down = by_lane([](int lane) { return __shfl_down_sync(kFullWarp, lane, 5); });
  const std::vector<int> crossed = by_lane([](int lane) { return __shfl_xor_sync(kFullWarp, lane, 4, 4); });
  const std::vector<int> from = by_lane([](int lane) { return __shfl_sync(kFullWarp, lane, 13 + lane, 16); });
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(up[lane], lane % 8 < 3 ? lane : lane - 3);
    EXPECT_EQ(down[lane], lane + 5 > 31 ? lane : lane + 5);
    EXPECT_EQ(crossed[lane], (lane ^ 4) > lane ? lane : lane ^ 4);  // only segments that lie before can be read
    EXPECT_EQ(from[lane], lane / 16 * 16 + (13 + lane) % 16);
  }
}

TEST(WarpFunctions, Votes) {
  const std::vector<int> ballot = by_lane([](int lane) { return static_cast<int>(__ballot_sync(kFullWarp, lane % 3 == 0)); });
  const std::vector<int> any = by_lane([](int lane) { return __any_sync(kFullWarp, lane == 9); });
  const std::vector<int> all = by_lane([](int lane) { return __all_sync(kFullWarp, lane != 9); });
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(static_cast<uint32_t>(ballot[lane]), 0x49249249u);
    EXPECT_EQ(any[lane], 1);
    EXPECT_EQ(all[lane], 0);
  }
}

TEST(WarpFunctions, PartialMasksOrderTheirLanes) {
  std::vector<int> found(kWarp);
  run_grid("partial", dim3(1), dim3(kWarp), 0, [&] {
    TIERPACK_SHARED(int, tile, kWarp);
    const unsigned i = threadIdx.x;
    const unsigned mask = i < 16 ? 0x0000FFFFu : 0xFFFF0000u;
    for (int round = 0; round < 3; ++round) {
      tile[i] = static_cast<int>(i) + round;
      __syncwarp(mask);
      found[i] = tile[i ^ 7u];
      __syncwarp(mask);
    }
  });
  for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(found[lane], (lane ^ 7) + 2);
  EXPECT_THROW(run_grid("partial", dim3(1), dim3(kWarp), 0,
                        [&] {
                          TIERPACK_SHARED(int, tile, kWarp);
                          const unsigned i = threadIdx.x;
                          tile[i] = 1;
                          __syncwarp(i < 16 ? 0x0000FFFFu : 0xFFFF0000u);
                          found[i] = tile[i ^ 16u];
                        }),
               Error);
}

TEST(WarpFunctions, MatricesOfBytes) {
  std::mt19937 random(1);
  for (const int k : {16, 32}) {
    int8_t a[16][32] = {}, b[32][8] = {};
    int32_t expected[16][8], found[16][8];
    for (auto& row : a) {
      for (int8_t& value : row) value = static_cast<int8_t>(random() % 8 == 0 ? -128 : random());
    }
    for (auto& row : b) {
      for (int8_t& value : row) value = static_cast<int8_t>(random() % 8 == 0 ? -128 : random());
    }
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 8; ++column) {
        expected[row][column] = 1000 * row + column;
        for (int i = 0; i < k; ++i) expected[row][column] += a[row][i] * b[i][column];
      }
    }
    run_grid("mma", dim3(1), dim3(kWarp), 0, [&] {
      const unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
      int32_t d[4];
      uint32_t fa[4] = {}, fb[2] = {};
      for (unsigned i = 0; i < 4; ++i) d[i] = static_cast<int32_t>(1000 * (g + 8 * (i / 2)) + 2 * t + i % 2);
      for (unsigned half = 0; half < static_cast<unsigned>(k) / 16; ++half) {
        for (unsigned byte = 0; byte < 4; ++byte) {
          const unsigned column = 16 * half + 4 * t + byte;
          fa[2 * half] |= static_cast<uint32_t>(static_cast<uint8_t>(a[g][column])) << (8 * byte);
          fa[2 * half + 1] |= static_cast<uint32_t>(static_cast<uint8_t>(a[g + 8][column])) << (8 * byte);
          fb[half] |= static_cast<uint32_t>(static_cast<uint8_t>(b[column][g])) << (8 * byte);
        }
      }
      if (k == 16) {
        mma_s8_16x8x16(d, fa[0], fa[1], fb[0]);
      } else {
        mma_s8_16x8x32(d, fa, fb);
      }
      for (unsigned i = 0; i < 4; ++i) found[g + 8 * (i / 2)][2 * t + i % 2] = d[i];
    });
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 8; ++column) ASSERT_EQ(found[row][column], expected[row][column]) << k << ": " << row << ", " << column;
    }
  }
}

TEST(Grid, EveryThreadRunsOnce) {
  std::vector<int> count(5 * 3 * 2 * 24);
  run_grid("count", dim3(5, 3, 2), dim3(4, 3, 2), 0, [&] {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    ++count[block * 24 + thread];
  });
  EXPECT_EQ(std::count(count.begin(), count.end(), 1), static_cast<int>(count.size()));
}

TEST(Grid, LimitsOfALaunch) {
  EXPECT_THROW(run_grid("large", dim3(1), dim3(1025), 0, [] {}), Error);
  EXPECT_THROW(run_grid("empty", dim3(0), dim3(32), 0, [] {}), Error);
  EXPECT_THROW(run_grid("high", dim3(1, 65536), dim3(32), 0, [] {}), Error);
  EXPECT_THROW(run_grid("shared", dim3(1), dim3(32), 70000, [] { TIERPACK_DYNAMIC_SHARED(float, memory); static_cast<void>(memory[0] = 1.0f); }), Error);
}

}  // namespace
}  // namespace tierpack::kernels::cuda

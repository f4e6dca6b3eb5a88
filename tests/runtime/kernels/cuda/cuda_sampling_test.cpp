// argmax and top_k against kernels::top_k: values, ties, zeros of both signs, infinities, NaN.
#include <bit>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/kernels.h"
#include "tests/support/device_arrays.h"

namespace tierpack::kernels::cuda {
namespace {

using device::OnDevice;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

enum class Kind { kNormal, kFew, kHostile, kSame, kNoNumber };
constexpr Kind kKinds[] = {Kind::kNormal, Kind::kFew, Kind::kHostile, Kind::kSame, Kind::kNoNumber};

std::vector<float> values_of(Kind kind, size_t count, uint32_t seed) {
  const float special[] = {0.0f, -0.0f, kInfinity, -kInfinity, kNaN, -kNaN, 1e-40f, -1e-40f, 3e38f, -3e38f, 1.0f, -1.0f};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  std::vector<float> values(count);
  for (float& value : values) {
    switch (kind) {
      case Kind::kNormal: value = normal(random); break;
      case Kind::kFew: value = static_cast<float>(static_cast<int>(random() % 5) - 2) * (random() % 2 == 0 ? 1.0f : -1.0f); break;
      case Kind::kHostile: value = special[random() % std::size(special)]; break;
      case Kind::kSame: value = 0.25f; break;
      case Kind::kNoNumber: value = random() % 2 == 0 ? kNaN : -kNaN; break;
    }
  }
  return values;
}

void check_top_k(const std::vector<float>& x, uint32_t k) {
  std::vector<uint32_t> expected(k);
  kernels::top_k(x.data(), static_cast<uint32_t>(x.size()), k, expected.data());
  Stream stream;
  const OnDevice<float> device_x(stream, x), values(stream, k);
  const OnDevice<uint32_t> ids(stream, k);
  top_k(stream, device_x.data(), static_cast<uint32_t>(x.size()), k, ids.data(), values.data());
  ASSERT_EQ(ids.get(), expected) << x.size() << " values, k " << k;
  const std::vector<float> found = values.get();
  for (uint32_t i = 0; i < k; ++i) ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(x[expected[i]]));
}

TEST(CudaSampling, TopK) {
  for (const Kind kind : kKinds) {
    for (const uint32_t n : {1u, 2u, 31u, 33u, 1000u, 1024u, 1025u, 5000u}) {
      for (const uint32_t k : {1u, 2u, 20u, 1000u, 1024u}) {
        if (k <= n) check_top_k(values_of(kind, n, n + k), k);
      }
    }
  }
}

TEST(CudaSampling, TopKOfManyValues) {
  check_top_k(values_of(Kind::kNormal, 150001, 1), 64);
  check_top_k(values_of(Kind::kFew, 40000, 2), 1024);
}

TEST(CudaSampling, Argmax) {
  for (const Kind kind : kKinds) {
    for (const uint32_t n : {1u, 2u, 33u, 1023u, 5000u}) {
      constexpr uint32_t kRows = 3;
      const std::vector<float> x = values_of(kind, size_t{kRows} * n, n);
      std::vector<uint32_t> expected(kRows);
      for (uint32_t r = 0; r < kRows; ++r) kernels::top_k(x.data() + size_t{r} * n, n, 1, &expected[r]);
      Stream stream;
      const OnDevice<float> device_x(stream, x);
      const OnDevice<uint32_t> best(stream, kRows);
      argmax(stream, device_x.data(), kRows, n, best.data());
      ASSERT_EQ(best.get(), expected) << n << " values";
    }
  }
}

}  // namespace
}  // namespace tierpack::kernels::cuda

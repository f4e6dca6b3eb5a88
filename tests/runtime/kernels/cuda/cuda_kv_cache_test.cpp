// Rows of the key-value cache, byte for byte against the reference.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/kernels.h"
#include "tests/support/device_arrays.h"

namespace tierpack::kernels::cuda {
namespace {

using device::OnDevice;

std::vector<float> values_of(size_t count, uint32_t seed, bool hostile) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const float special[] = {0.0f, -0.0f, kInfinity, -kInfinity, kNaN, 3e38f, 65519.0f, 65520.0f, 1e-40f, -6e-8f, 2.5f, 0.5f};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = hostile && random() % 48 == 0 ? special[random() % std::size(special)] : normal(random);
    if (hostile && i / 32 % 5 == 1) values[i] = std::ldexp(values[i], -104);  // around the least that is quantised
    if (hostile && i / 32 % 5 == 2) values[i] = static_cast<float>(static_cast<int>(random() % 255) - 127) * 0.5f;  // ties
  }
  return values;
}

// Rows outside first .. first + tokens stay as they are; NaNs are one value.
void check(KvType type, uint32_t tokens, uint32_t kv_heads, uint32_t dim, uint32_t first, bool hostile) {
  const uint32_t capacity = first + tokens + 2;
  const uint64_t row_bytes = kv_row_bytes(type, dim);
  const std::vector<float> k = values_of(size_t{tokens} * kv_heads * dim, dim + first, hostile);
  const std::vector<float> v = values_of(k.size(), dim + first + 1, hostile);
  Stream stream;
  const OnDevice<float> device_k(stream, k), device_v(stream, v);
  const OnDevice<std::byte> keys(stream, kv_heads * capacity * row_bytes), values(stream, kv_heads * capacity * row_bytes);
  store_kv(stream, device_k.data(), device_v.data(), tokens, kv_heads, dim, type, first, capacity, keys.data(), values.data());
  for (const bool of_values : {false, true}) {
    const std::vector<float>& x = of_values ? v : k;
    const std::vector<std::byte> found = of_values ? values.get() : keys.get();
    std::vector<std::byte> expected(found.size());
    for (uint32_t t = 0; t < tokens; ++t) {
      for (uint32_t h = 0; h < kv_heads; ++h) {
        const size_t place = size_t{h} * capacity + first + t;
        reference().store_kv(x.data() + (size_t{t} * kv_heads + h) * dim, dim, type, expected.data() + place * row_bytes);
      }
    }
    if (type == KvType::kF16) {
      for (size_t i = 0; i < found.size(); i += 2) {
        uint16_t a, b;
        std::memcpy(&a, &found[i], 2);
        std::memcpy(&b, &expected[i], 2);
        if ((a & 0x7FFFu) > 0x7C00u && (b & 0x7FFFu) > 0x7C00u) continue;
        ASSERT_EQ(a, b) << "dim " << dim << ", element " << i / 2;
      }
    } else {
      ASSERT_TRUE(found == expected) << kv_type_name(type) << " dim " << dim << (hostile ? " hostile" : "");
    }
  }
}

TEST(CudaKvCache, Rows) {
  for (const bool hostile : {false, true}) {
    for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
      for (const uint32_t dim : {32u, 64u, 128u, 256u, 1024u}) {
        check(type, 1, 2, dim, 0, hostile);
        check(type, 7, 3, dim, 5, hostile);
      }
      if (type == KvType::kQ8) continue;
      check(type, 3, 2, 1, 0, hostile);
      check(type, 3, 2, 80, 1, hostile);
      check(type, 3, 2, 35, 1, hostile);
    }
  }
}

}  // namespace
}  // namespace tierpack::kernels::cuda

// Operations on elements, bit for bit against the reference.
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/kernels.h"
#include "tests/runtime/kernels/cuda/operation_inputs.h"
#include "tests/support/device_arrays.h"

namespace tierpack::kernels::cuda {
namespace {

using device::OnDevice;

const size_t kCounts[] = {1, 31, 256, 257, 1000};

std::vector<float> values_of(size_t count, uint32_t seed) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f, -0.0f, 1.0f, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 3e38f, 1e-40f, -88.0f, 110.0f};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  std::vector<float> values(count);
  for (float& value : values) value = random() % 8 == 0 ? special[random() % std::size(special)] : normal(random);
  return values;
}

TEST(CudaElementwise, Add) {
  for (const size_t count : kCounts) {
    const std::vector<float> a = values_of(count, 1), b = values_of(count, 2);
    std::vector<float> expected(count);
    reference().add(a.data(), b.data(), static_cast<uint32_t>(count), expected.data());
    Stream stream;
    const OnDevice<float> device_a(stream, a), device_b(stream, b);
    add(stream, device_a.data(), device_b.data(), count);
    ASSERT_TRUE(same_values(device_a.get(), expected));
  }
}

TEST(CudaElementwise, SigmoidMul) {
  for (const size_t count : kCounts) {
    const std::vector<float> gate = values_of(count, 3), x = values_of(count, 4);
    std::vector<float> expected(count);
    reference().sigmoid_mul(gate.data(), x.data(), static_cast<uint32_t>(count), expected.data());
    Stream stream;
    const OnDevice<float> device_gate(stream, gate), device_x(stream, x), out(stream, count);
    sigmoid_mul(stream, device_gate.data(), device_x.data(), count, out.data());
    ASSERT_TRUE(same_values(out.get(), expected));
    sigmoid_mul(stream, device_gate.data(), device_x.data(), count, device_x.data());
    ASSERT_TRUE(same_values(device_x.get(), expected));
  }
}

}  // namespace
}  // namespace tierpack::kernels::cuda

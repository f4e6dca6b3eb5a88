// RMS norm of rows and rotation, bit for bit against the reference.
#include <array>

#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/kernels.h"
#include "tests/runtime/kernels/cuda/operation_inputs.h"
#include "tests/support/device_arrays.h"

namespace tierpack::kernels::cuda {
namespace {

using device::OnDevice;
using Values = std::vector<float>;

constexpr float kEps = 1e-6f;

void check_norm(const Values& x, size_t stride, const Values& weight, uint32_t weight_rows, uint32_t n, size_t rows) {
  SCOPED_TRACE(testing::Message() << rows << " rows of " << n << ", " << stride << " apart");
  Values expected(rows * n);
  for (size_t i = 0; i < rows; ++i) {
    const float* const w = weight.empty() ? nullptr : weight.data() + i % weight_rows * n;
    reference().rms_norm(x.data() + i * stride, w, kEps, n, expected.data() + i * n);
  }
  Stream stream;
  const OnDevice<float> device_x(stream, x), out(stream, rows * n);
  const OnDevice<float> device_weight(stream, weight.empty() ? Values{0.0f} : weight);
  const float* const w = weight.empty() ? nullptr : device_weight.data();
  rms_norm(stream, device_x.data(), stride, w, weight_rows, kEps, n, rows, out.data());
  EXPECT_TRUE(same_values(out.get(), expected));
  if (stride != n) return;
  rms_norm(stream, device_x.data(), stride, w, weight_rows, kEps, n, rows, device_x.data());
  EXPECT_TRUE(same_values(device_x.get(), expected)) << "in place";
}

TEST(CudaNorms, RowsOfEveryLength) {
  uint32_t seed = 1;
  for (const uint32_t n : {1u, 31u, 32u, 33u, 128u, 255u, 256u, 257u, 260u, 1001u, 2560u, 7168u, 12288u}) {
    for (const size_t rows : {1, 5}) {
      const Values weight = normal_values(size_t{2} * n, ++seed);
      check_norm(normal_values(rows * n, ++seed), n, weight, 2, n, rows);
      check_norm(normal_values(rows * (n + 3), ++seed), n + 3, weight, 1, n, rows);
      check_norm(normal_values(rows * n, ++seed), n, {}, 0, n, rows);
    }
  }
}

TEST(CudaNorms, FoursOnlyWhereTheRowsAllowIt) {
  const Values weight = normal_values(512, 3);
  check_norm(normal_values(3 * 516, 4), 516, weight, 1, 512, 3);
  check_norm(normal_values(3 * 514, 5), 514, weight, 1, 512, 3);
}

TEST(CudaNorms, ExtremeValues) {
  for (const uint32_t n : {40u, 300u}) {
    const Values weight = extreme_values(n, 5);
    check_norm(extreme_values(3 * n, 6), n, weight, 1, n, 3);
    check_norm(broken_values(3 * n, 7, n + 7), n, weight, 1, n, 3);
    check_norm(subnormal_values(3 * n, 8), n, weight, 1, n, 3);
    check_norm(Values(3 * n, -0.0f), n, weight, 1, n, 3);
  }
}

TEST(CudaRope, Tables) {
  for (const uint32_t rotary : {2u, 64u, 270u}) {
    const uint32_t pairs = rotary / 2;
    Values inv_freq(pairs);
    rope_inv_freq(1e6f, rotary, inv_freq.data());
    for (const auto& [first, step, rows] : {std::array<uint32_t, 3>{0, 1, 7}, {123'456, 1, 3}, {16, 16, 5}, {4'000'000'000, 1, 2}}) {
      Values expected_cos(size_t{rows} * pairs), expected_sin(size_t{rows} * pairs);
      for (uint32_t i = 0; i < rows; ++i) {
        rope_row(inv_freq.data(), pairs, first + i * step, expected_cos.data() + i * pairs, expected_sin.data() + i * pairs);
      }
      Stream stream;
      const OnDevice<float> device_inv_freq(stream, inv_freq), cos(stream, expected_cos.size()), sin(stream, expected_sin.size());
      rope_table(stream, device_inv_freq.data(), pairs, first, step, rows, cos.data(), sin.data());
      EXPECT_TRUE(same_values(cos.get(), expected_cos)) << rotary << " from " << first;
      EXPECT_TRUE(same_values(sin.get(), expected_sin)) << rotary << " from " << first;
    }
  }
}

void check_norm_rope(Values x, size_t head_stride, uint32_t tokens, uint32_t heads, uint32_t dim, uint32_t pairs) {
  SCOPED_TRACE(testing::Message() << tokens << " tokens, " << heads << " heads of " << dim << ", " << pairs << " pairs");
  const Values weight = normal_values(dim, 21);
  const Values cos = normal_values(size_t{tokens} * pairs, 22);
  const Values sin = normal_values(size_t{tokens} * pairs, 23);
  Stream stream;
  const OnDevice<float> device_x(stream, x), device_weight(stream, weight), device_cos(stream, cos), device_sin(stream, sin);
  norm_rope(stream, device_x.data(), head_stride, tokens, heads, dim, device_weight.data(), kEps, device_cos.data(), device_sin.data(),
            pairs);
  for (size_t i = 0; i < size_t{tokens} * heads; ++i) {
    float* const head = x.data() + i * head_stride;
    reference().rms_norm(head, weight.data(), kEps, dim, head);
    reference().rope(head, cos.data() + i / heads * pairs, sin.data() + i / heads * pairs, pairs);
  }
  EXPECT_TRUE(same_values(device_x.get(), x));
}

TEST(CudaRope, NormAndRotation) {
  struct Shape {
    uint32_t tokens, heads, dim, pairs;
    size_t stride;
  };
  uint32_t seed = 30;
  for (const Shape& c : {Shape{1, 1, 2, 1, 2}, {3, 3, 128, 64, 128}, {2, 5, 256, 32, 512}, {5, 1, 72, 13, 75}, {1, 16, 128, 64, 256},
                         {2, 1, 1024, 512, 1024}}) {
    const size_t count = size_t{c.tokens} * c.heads * c.stride;
    check_norm_rope(normal_values(count, ++seed), c.stride, c.tokens, c.heads, c.dim, c.pairs);
    check_norm_rope(extreme_values(count, ++seed), c.stride, c.tokens, c.heads, c.dim, c.pairs);
    check_norm_rope(broken_values(count, ++seed, c.dim + 1), c.stride, c.tokens, c.heads, c.dim, c.pairs);
    check_norm_rope(subnormal_values(count, ++seed), c.stride, c.tokens, c.heads, c.dim, c.pairs);
  }
}

}  // namespace
}  // namespace tierpack::kernels::cuda

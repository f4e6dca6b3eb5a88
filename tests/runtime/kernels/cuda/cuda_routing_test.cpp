// Routing, the experts' hidden values and their weighted sum, bit for bit what runtime/model/moe.cpp composes of the reference.
#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/kernels.h"
#include "tests/runtime/kernels/cuda/operation_inputs.h"
#include "tests/support/device_arrays.h"

namespace tierpack::kernels::cuda {
namespace {

using device::OnDevice;
using Values = std::vector<float>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void check_route(Values logits, uint32_t tokens, uint32_t experts, uint32_t used) {
  SCOPED_TRACE(testing::Message() << tokens << " tokens, " << used << " of " << experts << " experts");
  Stream stream;
  const OnDevice<float> p(stream, logits), weights(stream, size_t{tokens} * used);
  const OnDevice<uint32_t> ids(stream, size_t{tokens} * used);
  route(stream, p.data(), tokens, experts, used, ids.data(), weights.data());
  std::vector<uint32_t> expected_ids(size_t{tokens} * used);
  Values expected_weights(expected_ids.size());
  for (size_t t = 0; t < tokens; ++t) {
    float* const row = logits.data() + t * experts;
    uint32_t* const chosen = expected_ids.data() + t * used;
    reference().softmax(row, experts, row);
    kernels::top_k(row, experts, used, chosen);
    float sum = 0;
    for (uint32_t i = 0; i < used; ++i) sum += row[chosen[i]];
    for (uint32_t i = 0; i < used; ++i) expected_weights[t * used + i] = row[chosen[i]] / sum;
  }
  EXPECT_EQ(ids.get(), expected_ids);
  EXPECT_TRUE(same_values(weights.get(), expected_weights));
  EXPECT_TRUE(same_values(p.get(), logits));
}

TEST(CudaRoute, Shapes) {
  uint32_t seed = 1;
  struct Shape {
    uint32_t tokens, experts, used;
  };
  for (const Shape& c : {Shape{1, 512, 10}, {3, 512, 10}, {5, 128, 8}, {2, 7, 7}, {1, 1, 1}, {2, 33, 32}, {3, 100, 3}, {1, 4096, 32}}) {
    check_route(normal_values(size_t{c.tokens} * c.experts, ++seed, 3.0f), c.tokens, c.experts, c.used);
  }
}

TEST(CudaRoute, TiesGoToTheLowerIndex) {
  check_route(Values(2 * 200, 0.5f), 2, 200, 10);
  Values coarse = normal_values(4 * 300, 20);
  for (float& x : coarse) x = std::round(x * 2.0f);
  check_route(coarse, 4, 300, 16);
  Values far(2 * 96, -500.0f);  // all but one have probability 0
  far[5] = far[96 + 90] = 0.0f;
  check_route(far, 2, 96, 8);
  Values zeros(64);
  for (size_t i = 0; i < zeros.size(); ++i) zeros[i] = i % 3 == 0 ? -0.0f : 0.0f;
  check_route(zeros, 1, 64, 12);
}

TEST(CudaRoute, TheBestInOneLane) {
  Values logits = normal_values(1024, 30);
  for (size_t i = 7; i < 1024; i += 32) logits[i] += 20.0f;
  check_route(logits, 1, 1024, 32);
  check_route(logits, 1, 1024, 5);
}

TEST(CudaRoute, BrokenLogits) {
  Values logits = normal_values(5 * 70, 40);
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  logits[70 + 69] = kInfinity;
  for (size_t i = 0; i < 70; ++i) logits[2 * 70 + i] = -kInfinity;
  for (size_t i = 0; i < 66; ++i) logits[3 * 70 + i] = -kInfinity;
  logits[4 * 70 + 9] = 3e38f;
  check_route(logits, 5, 70, 6);
}

void check_hidden(const Values& gate, const Values& up, size_t rows, uint32_t ff, uint32_t columns, bool quantised) {
  SCOPED_TRACE(testing::Message() << rows << " rows of " << ff << " in " << columns);
  Values expected(rows * columns);
  for (size_t i = 0; i < rows; ++i) reference().silu_mul(gate.data() + i * ff, up.data() + i * ff, ff, expected.data() + i * columns);
  Stream stream;
  const OnDevice<float> device_gate(stream, gate), device_up(stream, up), x(stream, expected.size());
  const size_t blocks = expected.size() / 32;
  const OnDevice<int8_t> q(stream, expected.size());
  const OnDevice<float> scale(stream, blocks + 1);
  const OnDevice<int32_t> sum(stream, blocks + 1);
  if (!quantised) {
    expert_hidden(stream, device_gate.data(), device_up.data(), rows, ff, columns, x.data(), nullptr, nullptr, nullptr);
    EXPECT_TRUE(same_values(x.get(), expected));
    return;
  }
  expert_hidden(stream, device_gate.data(), device_up.data(), rows, ff, columns, x.data(), q.data(), scale.data(), sum.data());
  std::vector<int8_t> expected_q(expected.size());
  Values expected_scale(blocks + 1);
  std::vector<int32_t> expected_sum(blocks + 1);
  reference().quantize(expected.data(), static_cast<uint32_t>(expected.size()), expected_q.data(), expected_scale.data(),
                       expected_sum.data());
  EXPECT_TRUE(same_values(x.get(), expected));
  EXPECT_EQ(q.get(), expected_q);
  EXPECT_TRUE(same_values(scale.get(), expected_scale));
  EXPECT_EQ(sum.get(), expected_sum);
}

TEST(CudaExpertHidden, Shapes) {
  struct Shape {
    size_t rows;
    uint32_t ff, columns;
  };
  for (const Shape& c : {Shape{1, 512, 512}, {3, 704, 768}, {2, 768, 768}, {5, 33, 64}, {2, 50, 256}, {1, 4, 32}, {1, 640, 640}}) {
    const size_t count = c.rows * c.ff;
    check_hidden(normal_values(count, 50, 2.0f), normal_values(count, 51), c.rows, c.ff, c.columns, true);
    check_hidden(extreme_values(count, 52), extreme_values(count, 53), c.rows, c.ff, c.columns, true);
    check_hidden(broken_values(count, 54, 71), extreme_values(count, 55, 40), c.rows, c.ff, c.columns, true);
    check_hidden(subnormal_values(count, 56), normal_values(count, 57), c.rows, c.ff, c.columns, true);
    check_hidden(extreme_values(count, 58), extreme_values(count, 59), c.rows, c.ff, c.columns, false);
  }
  check_hidden(normal_values(3 * 45, 1), normal_values(3 * 45, 2), 3, 45, 45, false);
}

TEST(CudaExpertHidden, CodesThatLieBetween) {
  // up is chosen so that products with the block's scale end in a half.
  const Values gate(64, 30.0f);
  Values up(64);
  for (size_t i = 0; i < up.size(); ++i) up[i] = (static_cast<float>(i % 32) + 0.5f) / 30.0f;
  up[31] = up[63] = 127.0f / 30.0f;
  check_hidden(gate, up, 2, 32, 32, true);
}

void check_combine(const Values& out, const std::vector<uint32_t>& row, const Values& weights, uint32_t used, const Values& shared,
                   const Values& shared_weight, uint32_t tokens, uint32_t dim) {
  SCOPED_TRACE(testing::Message() << tokens << " tokens of " << dim << ", " << used << " experts");
  Values expected(size_t{tokens} * dim);
  for (size_t t = 0; t < tokens; ++t) {
    float* const y = expected.data() + t * dim;
    for (uint32_t i = 0; i < used; ++i) {
      const size_t pair = t * used + i;
      const float* const from = out.data() + (row.empty() ? pair : row[pair]) * dim;
      if (i == 0) {
        reference().scale(from, weights[pair], dim, y);
      } else {
        reference().add_scaled(from, weights[pair], dim, y);
      }
    }
    if (shared.empty()) continue;
    float weight = 0;
    reference().sigmoid(&shared_weight[t], 1, &weight);
    reference().add_scaled(shared.data() + t * dim, weight, dim, y);
  }
  Stream stream;
  const OnDevice<float> device_out(stream, out), device_weights(stream, weights), y(stream, expected.size());
  const OnDevice<uint32_t> device_row(stream, row.empty() ? std::vector<uint32_t>{0} : row);
  const OnDevice<float> device_shared(stream, shared.empty() ? Values{0} : shared), device_shared_weight(stream, shared_weight);
  combine_experts(stream, device_out.data(), row.empty() ? nullptr : device_row.data(), device_weights.data(), used,
                  shared.empty() ? nullptr : device_shared.data(), device_shared_weight.data(), tokens, dim, y.data());
  EXPECT_TRUE(same_values(y.get(), expected));
}

TEST(CudaCombineExperts, Shapes) {
  std::mt19937 random(60);
  struct Shape {
    uint32_t tokens, used, dim;
  };
  for (const Shape& c : {Shape{1, 10, 2560}, {3, 8, 516}, {4, 1, 33}, {2, 32, 130}}) {
    const size_t pairs = size_t{c.tokens} * c.used;
    std::vector<uint32_t> row(pairs);
    for (uint32_t i = 0; i < pairs; ++i) row[i] = i;
    std::shuffle(row.begin(), row.end(), random);
    const Values weights = normal_values(pairs, 61), shared_weight = extreme_values(c.tokens, 62);
    const Values shared = normal_values(size_t{c.tokens} * c.dim, 63), broken = broken_values(pairs * c.dim, 64, 41);
    const Values out = normal_values(pairs * c.dim, 65);
    check_combine(out, row, weights, c.used, shared, shared_weight, c.tokens, c.dim);
    check_combine(out, {}, weights, c.used, {}, shared_weight, c.tokens, c.dim);
    check_combine(broken, row, weights, c.used, {}, shared_weight, c.tokens, c.dim);
    check_combine(broken, {}, weights, c.used, shared, shared_weight, c.tokens, c.dim);
  }
}

}  // namespace
}  // namespace tierpack::kernels::cuda

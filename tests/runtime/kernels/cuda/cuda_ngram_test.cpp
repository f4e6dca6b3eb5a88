// The n-gram embedding's gates and convolution, bit for bit what runtime/model/ple.cpp composes of the reference.
#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/kernels.h"
#include "tests/runtime/kernels/cuda/operation_inputs.h"
#include "tests/support/device_arrays.h"

namespace tierpack::kernels::cuda {
namespace {

using device::OnDevice;
using Values = std::vector<float>;

constexpr float kEps = 1e-6f;

struct Gates {
  uint32_t tokens, streams, dim;
  Values key, residual, value, norm_key, norm_query, norm_conv;
};

void check_gate(const Gates& c) {
  SCOPED_TRACE(testing::Message() << c.tokens << " tokens, " << c.streams << " streams of " << c.dim);
  const uint32_t dim = c.dim;
  const auto root_dim = static_cast<float>(std::sqrt(static_cast<double>(dim)));
  Values gated(c.key.size()), conv_input(c.key.size()), key(dim), query(dim);
  for (size_t i = 0; i < size_t{c.tokens} * c.streams; ++i) {
    const size_t at = i * dim, gamma = i % c.streams * dim;
    reference().rms_norm(c.key.data() + at, c.norm_key.data() + gamma, kEps, dim, key.data());
    reference().rms_norm(c.residual.data() + at, c.norm_query.data() + gamma, kEps, dim, query.data());
    const float score = reference().dot(key.data(), query.data(), dim) / root_dim;
    const float size = std::sqrt(std::max(std::fabs(score), 1e-6f));
    float gate = score > 0 ? size : score < 0 ? -size : 0.0f;
    reference().sigmoid(&gate, 1, &gate);
    reference().scale(c.value.data() + i / c.streams * dim, gate, dim, gated.data() + at);
    reference().rms_norm(gated.data() + at, c.norm_conv.data() + gamma, kEps, dim, conv_input.data() + at);
  }
  Stream stream;
  const OnDevice<float> device_key(stream, c.key), residual(stream, c.residual), value(stream, c.value);
  const OnDevice<float> norm_key(stream, c.norm_key), norm_query(stream, c.norm_query), norm_conv(stream, c.norm_conv);
  const OnDevice<float> device_gated(stream, c.key.size()), device_conv_input(stream, c.key.size());
  ngram_gate(stream, device_key.data(), residual.data(), value.data(), norm_key.data(), norm_query.data(), norm_conv.data(), kEps, c.tokens,
             c.streams, dim, device_gated.data(), device_conv_input.data());
  EXPECT_TRUE(same_values(device_gated.get(), gated));
  EXPECT_TRUE(same_values(device_conv_input.get(), conv_input));
}

Gates normal_gates(uint32_t tokens, uint32_t streams, uint32_t dim) {
  const size_t row = size_t{streams} * dim;
  return {tokens, streams, dim, normal_values(tokens * row, 1), normal_values(tokens * row, 2), normal_values(size_t{tokens} * dim, 3),
          normal_values(row, 4), normal_values(row, 5), normal_values(row, 6)};
}

TEST(CudaNgram, Gate) {
  check_gate(normal_gates(1, 4, 2560));
  check_gate(normal_gates(5, 3, 129));
  check_gate(normal_gates(2, 2, 20));
  check_gate(normal_gates(1, 1, 6144));
  check_gate(normal_gates(1, 1, 7168));
}

TEST(CudaNgram, GateOfExtremeValues) {
  Gates c = normal_gates(6, 2, 65);
  c.key = broken_values(c.key.size(), 11, 130);
  check_gate(c);
  c = normal_gates(6, 2, 65);
  c.value = broken_values(c.value.size(), 12, 67);
  check_gate(c);
  c = normal_gates(6, 2, 65);
  c.key.assign(c.key.size(), 0.0f);  // no score: the gate is a half
  check_gate(c);
  c = normal_gates(3, 2, 65);
  for (float& x : c.norm_key) x *= 1e-9f;  // scores below the least size
  check_gate(c);
  c = normal_gates(3, 2, 65);
  c.key = subnormal_values(c.key.size(), 13);
  c.residual = subnormal_values(c.residual.size(), 14);
  c.value = subnormal_values(c.value.size(), 15);
  check_gate(c);
}

TEST(CudaNgram, Convolution) {
  struct Shape {
    uint32_t tokens, taps, dilation, wide;
  };
  for (const Shape& c : {Shape{1, 4, 3, 520}, {9, 4, 3, 129}, {4, 2, 1, 128}, {3, 5, 2, 31}}) {
    for (const bool broken : {false, true}) {
      const size_t rows = size_t{c.taps - 1} * c.dilation + c.tokens, count = size_t{c.tokens} * c.wide;
      const Values input = broken ? broken_values(rows * c.wide, 21, 37) : normal_values(rows * c.wide, 22);
      const Values weight = normal_values(size_t{c.wide} * c.taps, 23), gated = extreme_values(count, 24);
      Values streams = normal_values(count, 25), conv(c.wide);
      Stream stream;
      const OnDevice<float> device_input(stream, input), device_weight(stream, weight), device_gated(stream, gated);
      const OnDevice<float> device_streams(stream, streams);
      ngram_conv(stream, device_input.data(), device_weight.data(), c.taps, c.dilation, c.tokens, c.wide, device_gated.data(),
                 device_streams.data());
      for (size_t t = 0; t < c.tokens; ++t) {
        std::vector<const float*> taps(c.taps);
        for (size_t i = 0; i < c.taps; ++i) taps[i] = input.data() + (t + i * c.dilation) * c.wide;
        reference().conv(taps.data(), weight.data(), c.taps, c.wide, conv.data());
        reference().silu(conv.data(), c.wide, conv.data());
        reference().add(conv.data(), gated.data() + t * c.wide, c.wide, conv.data());
        reference().add(streams.data() + t * c.wide, conv.data(), c.wide, streams.data() + t * c.wide);
      }
      EXPECT_TRUE(same_values(device_streams.get(), streams)) << c.taps << " taps " << c.dilation << " apart";
    }
  }
}

}  // namespace
}  // namespace tierpack::kernels::cuda

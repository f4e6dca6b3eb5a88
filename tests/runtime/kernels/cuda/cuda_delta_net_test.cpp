// The gated delta net's operations, bit for bit what runtime/model/gdn.cpp composes of the reference.
#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/kernels.h"
#include "tests/runtime/kernels/cuda/operation_inputs.h"
#include "tests/support/device_arrays.h"

namespace tierpack::kernels::cuda {
namespace {

using device::OnDevice;
using Values = std::vector<float>;

TEST(CudaDeltaNet, Convolution) {
  struct Shape {
    uint32_t tokens, taps, channels;
  };
  for (const Shape& c : {Shape{1, 4, 300}, {7, 4, 129}, {8, 4, 64}, {21, 4, 37}, {5, 3, 130}, {3, 1, 40}, {2, 16, 33}}) {
    for (const bool broken : {false, true}) {
      const size_t rows = c.taps - 1 + c.tokens;
      const Values input = broken ? broken_values(rows * c.channels, 1, 29) : normal_values(rows * c.channels, 2, 3.0f);
      const Values weight = broken ? extreme_values(size_t{c.channels} * c.taps, 3) : normal_values(size_t{c.channels} * c.taps, 4);
      Values expected(size_t{c.tokens} * c.channels);
      for (size_t t = 0; t < c.tokens; ++t) {
        std::vector<const float*> taps(c.taps);
        for (size_t i = 0; i < c.taps; ++i) taps[i] = input.data() + (t + i) * c.channels;
        float* const mixed = expected.data() + t * c.channels;
        reference().conv(taps.data(), weight.data(), c.taps, c.channels, mixed);
        reference().silu(mixed, c.channels, mixed);
      }
      Stream stream;
      const OnDevice<float> device_input(stream, input), device_weight(stream, weight), mixed(stream, expected.size());
      conv_silu(stream, device_input.data(), c.tokens, c.taps, c.channels, device_weight.data(), mixed.data());
      EXPECT_TRUE(same_values(mixed.get(), expected)) << c.taps << " taps, " << c.tokens << " tokens";
    }
  }
}

TEST(CudaDeltaNet, UnitHeads) {
  struct Shape {
    uint32_t tokens, k_heads, dim;
    size_t channels;
  };
  for (const Shape& c : {Shape{1, 2, 128, 1000}, {3, 3, 256, 1536}, {5, 1, 36, 75}, {2, 4, 1, 9}}) {
    for (int kind = 0; kind < 4; ++kind) {
      const size_t count = c.tokens * c.channels;
      Values x = kind == 0   ? normal_values(count, 5)
                 : kind == 1 ? extreme_values(count, 6, 200)
                 : kind == 2 ? broken_values(count, 7, c.dim + 5)
                             : subnormal_values(count, 8);
      const float q_factor = 0.088388346f;
      Stream stream;
      const OnDevice<float> mixed(stream, x);
      unit_heads(stream, mixed.data(), c.tokens, c.channels, c.k_heads, c.dim, 1e-6f, q_factor);
      for (size_t t = 0; t < c.tokens; ++t) {
        for (uint32_t h = 0; h < 2 * c.k_heads; ++h) {
          float* const head = x.data() + t * c.channels + h * c.dim;
          reference().l2_norm(head, 1e-6f, h < c.k_heads ? q_factor : 1.0f, c.dim, head);
        }
      }
      EXPECT_TRUE(same_values(mixed.get(), x)) << c.k_heads << " heads of " << c.dim << ", values of kind " << kind;
    }
  }
}

TEST(CudaDeltaNet, Gates) {
  for (const uint32_t tokens : {1u, 9u}) {
    for (const uint32_t heads : {1u, 33u}) {
      const size_t count = size_t{tokens} * heads;
      Values beta = broken_values(count, 11, 23), decay = broken_values(count, 12, 19);
      const Values bias = extreme_values(heads, 13), a = normal_values(heads, 14, 2.0f);
      Stream stream;
      const OnDevice<float> device_beta(stream, beta), device_decay(stream, decay), device_bias(stream, bias), device_a(stream, a);
      delta_gates(stream, device_beta.data(), device_decay.data(), device_bias.data(), device_a.data(), tokens, heads);
      for (uint32_t t = 0; t < tokens; ++t) {
        float* const b = beta.data() + size_t{t} * heads;
        float* const d = decay.data() + size_t{t} * heads;
        reference().sigmoid(b, heads, b);
        reference().add(d, bias.data(), heads, d);
        reference().softplus(d, heads, d);
        reference().mul(d, a.data(), heads, d);
        reference().exp(d, heads, d);
      }
      EXPECT_TRUE(same_values(device_beta.get(), beta));
      EXPECT_TRUE(same_values(device_decay.get(), decay));
    }
  }
}

TEST(CudaDeltaNet, GatedNorm) {
  for (const uint32_t dim : {4u, 100u, 128u, 256u}) {
    for (const bool broken : {false, true}) {
      const size_t rows = 7;
      Values o = broken ? broken_values(rows * dim, 15, dim + 3) : normal_values(rows * dim, 16);
      const Values z = broken ? broken_values(rows * dim, 17, 31) : normal_values(rows * dim, 18, 4.0f), weight = normal_values(dim, 19);
      Stream stream;
      const OnDevice<float> device_o(stream, o), device_z(stream, z), device_weight(stream, weight);
      gated_norm(stream, device_o.data(), device_z.data(), device_weight.data(), 1e-6f, dim, rows);
      for (size_t i = 0; i < rows; ++i) {
        float* const row = o.data() + i * dim;
        reference().rms_norm(row, weight.data(), 1e-6f, dim, row);
        reference().sigmoid_mul(z.data() + i * dim, row, dim, row);
      }
      EXPECT_TRUE(same_values(device_o.get(), o)) << dim;
    }
  }
}

struct Recurrence {
  uint32_t tokens, k_heads, v_heads, dim;
  size_t channels() const { return size_t{2} * k_heads * dim + size_t{v_heads} * dim; }
  size_t out() const { return size_t{v_heads} * dim; }
};

struct Inputs {
  Values state, mixed, decay, beta;
};

Inputs inputs_of(const Recurrence& c, uint32_t seed) {
  Inputs in{normal_values(c.out() * c.dim, seed), normal_values(c.tokens * c.channels(), seed + 1, 0.1f),
            normal_values(size_t{c.tokens} * c.v_heads, seed + 2, 0.2f), normal_values(size_t{c.tokens} * c.v_heads, seed + 3)};
  for (float& decay : in.decay) decay = 1.0f - std::fabs(decay);
  return in;
}

void check_delta_rule(const Recurrence& c, const Inputs& in, uint32_t first_chunk) {
  SCOPED_TRACE(testing::Message() << c.tokens << " tokens, " << c.k_heads << " and " << c.v_heads << " heads of " << c.dim);
  Values state = in.state, expected(c.tokens * c.out());
  for (size_t t = 0; t < c.tokens; ++t) {
    const float* const mixed = in.mixed.data() + t * c.channels();
    for (size_t h = 0; h < c.v_heads; ++h) {
      const float* const q = mixed + h % c.k_heads * c.dim;
      reference().delta_rule(state.data() + h * c.dim * c.dim, q, q + size_t{c.k_heads} * c.dim,
                             mixed + (2 * size_t{c.k_heads} + h) * c.dim, in.decay[t * c.v_heads + h], in.beta[t * c.v_heads + h], c.dim,
                             c.dim, expected.data() + t * c.out() + h * c.dim);
    }
  }
  Stream stream;
  const OnDevice<float> device_state(stream, in.state), mixed(stream, in.mixed), decay(stream, in.decay), beta(stream, in.beta);
  const OnDevice<float> out(stream, expected.size());
  for (const auto& [first, count] : {std::pair{0u, first_chunk}, {first_chunk, c.tokens - first_chunk}}) {
    delta_rule(stream, device_state.data(), mixed.data() + first * c.channels(), c.channels(), decay.data() + size_t{first} * c.v_heads,
               beta.data() + size_t{first} * c.v_heads, count, c.k_heads, c.v_heads, c.dim, out.data() + first * c.out());
  }
  EXPECT_TRUE(same_values(out.get(), expected)) << "out, chunks " << first_chunk << " and " << c.tokens - first_chunk;
  EXPECT_TRUE(same_values(device_state.get(), state)) << "state, chunks " << first_chunk << " and " << c.tokens - first_chunk;
}

TEST(CudaDeltaRule, EveryHeadSize) {
  uint32_t seed = 100;
  for (const Recurrence& c : {Recurrence{3, 1, 1, 4}, {9, 2, 4, 36}, {3, 1, 2, 64}, {5, 2, 2, 100}, {2, 1, 3, 128}, {3, 1, 1, 132},
                              {2, 1, 1, 244}, {2, 1, 1, 256}}) {
    check_delta_rule(c, inputs_of(c, seed += 10), c.tokens);
  }
}

TEST(CudaDeltaRule, ChunksAreNoPartOfIt) {
  for (const Recurrence& c : {Recurrence{19, 2, 2, 32}, {17, 1, 1, 64}}) {
    const Inputs in = inputs_of(c, 300);
    for (const uint32_t first : {0u, 1u, 8u, 9u, c.tokens}) check_delta_rule(c, in, first);
  }
}

TEST(CudaDeltaRule, OneToken) {
  const Recurrence c{1, 2, 4, 128};
  check_delta_rule(c, inputs_of(c, 400), 1);
}

TEST(CudaDeltaRule, ExtremeValues) {
  for (const uint32_t dim : {20u, 36u, 64u}) {
    const Recurrence c{5, 1, 2, dim};
    Inputs in = inputs_of(c, 500);
    in.state = subnormal_values(in.state.size(), 501);
    in.mixed = subnormal_values(in.mixed.size(), 502);
    check_delta_rule(c, in, 2);
    in.state = extreme_values(in.state.size(), 503, 50);
    in.mixed = extreme_values(in.mixed.size(), 504, 50);
    check_delta_rule(c, in, 2);
    in.state = broken_values(in.state.size(), 505, 2000);
    check_delta_rule(c, in, 2);
    // Sums of products that are all -0 or round to it.
    in.state.assign(in.state.size(), -0.0f);
    for (float& x : in.mixed) x = std::fabs(x);
    check_delta_rule(c, in, 2);
    in.state.assign(in.state.size(), -1e-45f);
    for (float& x : in.mixed) x = 1e-3f;
    check_delta_rule(c, in, 2);
    // A sum S k of -0 that decides the sign of zeros in the state: they lie behind the first 32 elements, whose products round to -0.
    for (size_t i = 0; i < in.state.size(); ++i) in.state[i] = i % dim < 32 ? -1e-45f : -0.0f;
    for (size_t i = 0; i < in.mixed.size(); ++i) in.mixed[i] = i % c.channels() < 2 * dim ? 1e-3f : -0.0f;
    in.decay.assign(in.decay.size(), 1.0f);
    in.beta.assign(in.beta.size(), 0.5f);
    check_delta_rule(c, in, 2);
  }
}

}  // namespace
}  // namespace tierpack::kernels::cuda

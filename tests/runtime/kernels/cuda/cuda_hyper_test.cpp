// Hyper-connections, bit for bit what runtime/model composes of the reference.
#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/kernels.h"
#include "tests/runtime/kernels/cuda/operation_inputs.h"
#include "tests/support/device_arrays.h"

namespace tierpack::kernels::cuda {
namespace {

using device::OnDevice;
using Values = std::vector<float>;

struct Shape {
  uint32_t tokens, streams, dim;
  size_t wide() const { return size_t{tokens} * streams * dim; }
};
const Shape kShapes[] = {{1, 4, 2560}, {3, 4, 520}, {2, 1, 33}, {3, 2, 130}, {2, 7, 4}};

Values values_of(size_t count, uint32_t seed, int kind) {
  return kind == 0 ? normal_values(count, seed, 4.0f) : kind == 1 ? extreme_values(count, seed) : broken_values(count, seed, 17);
}

TEST(CudaHyper, Start) {
  for (const Shape& c : kShapes) {
    const Values x = broken_values(size_t{c.tokens} * c.dim, 1, 17);
    Values expected(c.wide());
    for (size_t i = 0; i < size_t{c.tokens} * c.streams; ++i) {
      std::copy_n(x.data() + i / c.streams * c.dim, c.dim, expected.data() + i * c.dim);
    }
    Stream stream;
    const OnDevice<float> device_x(stream, x), out(stream, c.wide());
    start_streams(stream, device_x.data(), c.tokens, c.streams, c.dim, out.data());
    EXPECT_TRUE(same_values(out.get(), expected));
  }
}

TEST(CudaHyper, LowAndInject) {
  const float share = 1.0f / 3.0f;
  for (const uint32_t count : {1u, 127u, 128u, 700u}) {
    for (int kind = 0; kind < 3; ++kind) {
      const Values x = values_of(count, 2, kind);
      Values low(count), inject(count);
      reference().scale(x.data(), share, count, low.data());
      reference().silu(low.data(), count, low.data());
      reference().scale(x.data(), share, count, inject.data());
      reference().sigmoid(inject.data(), count, inject.data());
      reference().scale(inject.data(), 2.0f, count, inject.data());
      Stream stream;
      const OnDevice<float> device_low(stream, x), device_inject(stream, x);
      hyper_low(stream, device_low.data(), count, share);
      hyper_inject(stream, device_inject.data(), count, share);
      EXPECT_TRUE(same_values(device_low.get(), low));
      EXPECT_TRUE(same_values(device_inject.get(), inject));
    }
  }
}

TEST(CudaHyper, Mean) {
  for (const Shape& c : kShapes) {
    for (int kind = 0; kind < 3; ++kind) {
      const float share = 1.0f / static_cast<float>(c.streams);
      const Values up = values_of(c.wide(), 3, kind), normed = values_of(c.wide(), 4, kind);
      Values gated(c.wide()), expected(size_t{c.tokens} * c.dim);
      reference().sigmoid_mul(up.data(), normed.data(), static_cast<uint32_t>(c.wide()), gated.data());
      for (size_t t = 0; t < c.tokens; ++t) {
        float* const x = expected.data() + t * c.dim;
        const float* const from = gated.data() + t * c.streams * c.dim;
        std::copy_n(from, c.dim, x);
        for (uint32_t s = 1; s < c.streams; ++s) reference().add(x, from + size_t{s} * c.dim, c.dim, x);
        reference().scale(x, share, c.dim, x);
      }
      Stream stream;
      const OnDevice<float> device_up(stream, up), device_normed(stream, normed), x(stream, expected.size());
      hyper_mean(stream, device_up.data(), device_normed.data(), c.tokens, c.streams, c.dim, share, x.data());
      EXPECT_TRUE(same_values(x.get(), expected)) << c.streams << " streams of " << c.dim;
    }
  }
}

TEST(CudaHyper, Combine) {
  for (const Shape& c : kShapes) {
    for (int kind = 0; kind < 3; ++kind) {
      const Values y = values_of(size_t{c.tokens} * c.dim, 5, kind), inject = values_of(size_t{c.tokens} * c.streams, 6, kind);
      const Values before = values_of(c.wide(), 7, kind);
      Values expected = before;
      for (size_t i = 0; i < size_t{c.tokens} * c.streams; ++i) {
        reference().add_scaled(y.data() + i / c.streams * c.dim, inject[i], c.dim, expected.data() + i * c.dim);
      }
      Stream stream;
      const OnDevice<float> device_y(stream, y), device_inject(stream, inject), out(stream, before);
      combine_streams(stream, device_y.data(), device_inject.data(), c.tokens, c.streams, c.dim, out.data());
      EXPECT_TRUE(same_values(out.get(), expected)) << c.streams << " streams of " << c.dim;
    }
  }
}

}  // namespace
}  // namespace tierpack::kernels::cuda

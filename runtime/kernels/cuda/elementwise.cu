// Operations on elements, one each.
#include "runtime/kernels/cuda/float.cuh"
#include "runtime/kernels/cuda/launch.cuh"
#include "runtime/kernels/cuda/operations.h"

namespace tierpack::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

__device__ size_t element() { return static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x; }
dim3 blocks_for(size_t count) { return dim3(static_cast<unsigned>((count + kThreads - 1) / kThreads)); }

__global__ void add_kernel(float* a, const float* b, size_t count) {
  const size_t i = element();
  if (i < count) a[i] = a[i] + b[i];
}

__global__ void sigmoid_mul_kernel(const float* gate, const float* x, size_t count, float* out) {
  const size_t i = element();
  if (i < count) out[i] = sigmoid(gate[i]) * x[i];
}

}  // namespace

void add(Stream& s, float* a, const float* b, size_t count) {
  if (count > 0) launch(s, "add", blocks_for(count), kThreads, 0, add_kernel, a, b, count);
}

void sigmoid_mul(Stream& s, const float* gate, const float* x, size_t count, float* out) {
  if (count > 0) launch(s, "sigmoid_mul", blocks_for(count), kThreads, 0, sigmoid_mul_kernel, gate, x, count, out);
}

}  // namespace tierpack::kernels::cuda

#include "tests/support/cuda_on_cpu/broken_kernels.h"

#include "runtime/kernels/cuda/dialect.cuh"
#include "runtime/kernels/cuda/launch.cuh"

namespace tierpack::kernels::cuda {
namespace {

__global__ void reverse_kernel(const int* in, int* out, bool broken) {
  TIERPACK_SHARED(int, tile, kBrokenThreads);
  const unsigned i = threadIdx.x;
  tile[i] = in[i];
  if (!broken) __syncthreads();
  out[i] = tile[kBrokenThreads - 1 - i];
}

__global__ void reverse_warps_kernel(const int* in, int* out, bool broken) {
  TIERPACK_SHARED(int, tile, kBrokenThreads);
  const unsigned i = threadIdx.x;
  tile[i] = in[i];
  if (!broken) __syncwarp();
  out[i] = tile[i ^ 31u];
}

__global__ void shift_kernel(const int* in, int* out, bool broken) {
  TIERPACK_SHARED(int, tile, kBrokenThreads);
  const unsigned i = threadIdx.x;
  const SharedPointer<int> place = tile + (i + (broken ? 1 : 0));
  *place = in[i];
  out[i] = place[0];
}

__global__ void barrier_for_some_kernel(const int* in, int* out, bool broken) {
  const unsigned i = threadIdx.x;
  if (!broken || i < 40) __syncthreads();
  __syncwarp();
  out[i] = in[i];
}

__global__ void barrier_of_the_rest_kernel(const int* in, int* out, bool broken) {
  const unsigned i = threadIdx.x;
  out[i] = in[i];
  if (broken && i >= kWarp) return;
  __syncthreads();
}

__global__ void warp_sum_kernel(const int* in, int* out, bool broken) {
  const unsigned i = threadIdx.x;
  int sum = in[i];
  if (broken && i % kWarp == kWarp - 1) return;
  for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(kFullWarp, sum, half);
  out[i] = sum;
}

__global__ void split_warp_kernel(const int* in, int* out, bool broken) {
  const unsigned i = threadIdx.x;
  const bool odd = i % 2 != 0;
  if (broken) {
    out[i] = odd ? __shfl_xor_sync(kFullWarp, in[i], 2) : __any_sync(kFullWarp, 1);
  } else {
    out[i] = odd ? __shfl_xor_sync(0xAAAAAAAAu, in[i], 2) : __shfl_xor_sync(0x55555555u, in[i], 4);
  }
}

__global__ void read_other_half_kernel(const int* in, int* out, bool broken) {
  const unsigned i = threadIdx.x, half = i % kWarp / 16;
  const unsigned mask = half != 0 ? 0xFFFF0000u : 0x0000FFFFu;
  const unsigned from = 16 * (broken ? 1 - half : half) + 3;
  out[i] = __shfl_sync(mask, in[i], static_cast<int>(from));
}

__global__ void copy_in_background_kernel(const int* in, int* out, bool broken) {
  TIERPACK_SHARED(int, tile, 4 * kBrokenThreads);
  const unsigned i = threadIdx.x;
  copy_async_16(tile, 4 * i, in + 4 * i);
  copy_async_commit();
  if (!broken) copy_async_wait<0>();
  __syncthreads();
  for (unsigned j = 0; j < 4; ++j) out[4 * i + j] = tile[(4 * i + j + 8) % (4 * kBrokenThreads)];
}

__global__ void copy_two_groups_kernel(const int* in, int* out, bool broken) {
  TIERPACK_SHARED(int, tile, 8 * kBrokenThreads);
  const unsigned i = threadIdx.x;
  copy_async_16(tile, 4 * i, in + 4 * i);
  copy_async_commit();
  copy_async_16(tile, 4 * (i + kBrokenThreads), in + 4 * i);
  copy_async_commit();
  copy_async_wait<1>();
  out[i] = tile[4 * i] + (broken ? tile[4 * (i + kBrokenThreads)] : 0);
}

__global__ void sum_unwritten_kernel(const int* in, int* out, bool broken) {
  TIERPACK_SHARED(int, tile, kBrokenThreads);
  const unsigned i = threadIdx.x;
  if (!broken || i > 0) tile[i] = in[i];
  __syncthreads();
  int sum = 0;
  for (unsigned j = 0; j < kBrokenThreads; ++j) sum += tile[j];
  out[i] = sum;
}

__global__ void reuse_buffer_kernel(const int* in, int* out, bool broken) {
  TIERPACK_SHARED(int, tile, kBrokenThreads);
  const unsigned i = threadIdx.x;
  int sum = 0;
  for (unsigned round = 0; round < 4; ++round) {
    tile[i] = in[i] + static_cast<int>(round);
    __syncthreads();
    sum += tile[(i + 5 * round + 33) % kBrokenThreads];
    if (!broken) __syncthreads();
  }
  out[i] = sum;
}

__global__ void count_values_kernel(const int* in, int* out, bool broken) {
  TIERPACK_SHARED(int, counts, 4);
  const unsigned i = threadIdx.x;
  if (i < 4) counts[i] = 0;
  __syncthreads();
  if (broken) {
    counts[in[i] & 3] += 1;
  } else {
    atomicAdd(&counts[in[i] & 3], 1);
  }
  __syncthreads();
  out[i] = counts[i % 4];
}

__global__ void shared_vectors_kernel(const int* in, int* out, bool broken) {
  TIERPACK_SHARED(int, tile, 4 * kBrokenThreads + 4);
  const unsigned i = threadIdx.x, first = 4 * i + (broken ? 1 : 0);
  store_shared(tile, first, make_int4(in[4 * i], in[4 * i + 1], in[4 * i + 2], in[4 * i + 3]));
  const int4 v = load_shared<int4>(tile, first);
  out[i] = v.x + v.w;
}

__global__ void device_vectors_kernel(const int* in, int* out) {
  const unsigned i = threadIdx.x;
  const int4 v = reinterpret_cast<const int4*>(in)[i / 2];
  out[i] = v.x + v.w;
}

__global__ void copy_elements_kernel(const int* in, int* out) { out[threadIdx.x] = in[threadIdx.x]; }

__global__ void copy_arrays_kernel(Arrays arrays) { arrays.out[threadIdx.x] = arrays.in[threadIdx.x]; }

__global__ void dynamic_views_kernel(const int* in, int* out, bool broken) {
  TIERPACK_DYNAMIC_SHARED(int, words);
  TIERPACK_DYNAMIC_SHARED(uint8_t, bytes);
  const unsigned i = threadIdx.x;
  bytes[i] = static_cast<uint8_t>(in[i]);
  if (!broken) __syncthreads();
  out[i] = words[i / 4];
}

}  // namespace

#define TIERPACK_ONE_BLOCK(name) \
  void name(Stream& s, const int* in, int* out, bool broken) { launch(s, #name, dim3(1), kBrokenThreads, 0, name##_kernel, in, out, broken); }
TIERPACK_ONE_BLOCK(reverse)
TIERPACK_ONE_BLOCK(reverse_warps)
TIERPACK_ONE_BLOCK(shift)
TIERPACK_ONE_BLOCK(barrier_for_some)
TIERPACK_ONE_BLOCK(barrier_of_the_rest)
TIERPACK_ONE_BLOCK(warp_sum)
TIERPACK_ONE_BLOCK(split_warp)
TIERPACK_ONE_BLOCK(read_other_half)
TIERPACK_ONE_BLOCK(copy_in_background)
TIERPACK_ONE_BLOCK(copy_two_groups)
TIERPACK_ONE_BLOCK(sum_unwritten)
TIERPACK_ONE_BLOCK(reuse_buffer)
TIERPACK_ONE_BLOCK(count_values)
TIERPACK_ONE_BLOCK(shared_vectors)

void device_vectors(Stream& s, const int* in, int* out, bool broken) {
  launch(s, "device_vectors", dim3(1), kBrokenThreads, 0, device_vectors_kernel, in + (broken ? 1 : 0), out);
}
void copy_elements(Stream& s, const int* in, int* out, uint32_t count) {
  launch(s, "copy_elements", dim3(1), count, 0, copy_elements_kernel, in, out);
}
void copy_arrays(Stream& s, Arrays arrays, uint32_t count) {
  launch(s, "copy_arrays", dim3(1), count, 0, copy_arrays_kernel, arrays);
}
void dynamic_views(Stream& s, const int* in, int* out, bool broken) {
  launch(s, "dynamic_views", dim3(1), kBrokenThreads, kBrokenThreads, dynamic_views_kernel, in, out, broken);
}

}  // namespace tierpack::kernels::cuda

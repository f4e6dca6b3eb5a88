// What the kernels are written in: CUDA C++ and a few names that hide where it differs from the same sources compiled as
// plain C++ for tests (tests/support/cuda_on_cpu). Only *.cu and *.cuh include this.
//
// Shared memory is declared with TIERPACK_SHARED(T, name, count) or TIERPACK_DYNAMIC_SHARED(T, name) and passed on as
// SharedPointer<T>: element access by [], offsets by +, vectors by load_shared and store_shared. On the CPU every access is
// checked for its bounds and against accesses of other threads that no barrier separates.
//
// Arithmetic is that of docs/arithmetic.md: the sources are compiled without contraction, with IEEE division and square root
// and without flushing subnormals; a fused multiply-add is written __fmaf_rn.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef TIERPACK_CUDA_ON_CPU
#include "tests/support/cuda_on_cpu/cuda_on_cpu.h"
#else
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace tierpack::kernels::cuda {

template <typename T>
using SharedPointer = T*;

#define TIERPACK_SHARED(T, name, count) __shared__ __align__(16) T name[count]
#define TIERPACK_DYNAMIC_SHARED(T, name)                                \
  extern __shared__ __align__(16) unsigned char tierpack_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(tierpack_dynamic_shared)

// A vector of 8 or 16 bytes that begins with element `index`, aligned to its size.
template <typename V, typename T>
__device__ __forceinline__ V load_shared(const T* array, uint32_t index) {
  return *reinterpret_cast<const V*>(array + index);
}
template <typename V, typename T>
__device__ __forceinline__ void store_shared(T* array, uint32_t index, V value) {
  *reinterpret_cast<V*>(array + index) = value;
}

// IEEE binary16 by its bits.
__device__ __forceinline__ float half_to_float(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
__device__ __forceinline__ uint16_t float_to_half(float x) { return __half_as_ushort(__float2half_rn(x)); }

// d += A B, exactly, for a whole warp: signed bytes, A (16, k), B (k, 8) and 32-bit d (16, 8). Lane l with g = l / 4 and t = l % 4
// holds of A: rows g (a[0], a[2]) and g + 8 (a[1], a[3]), bytes 4t .. 4t + 3 of columns 0 .. 15 (a[0], a[1]) and of columns
// 16 .. 31 (a[2], a[3]); of B: column g, rows 4t .. (b[0]) and 16 + 4t .. (b[1]); of d: rows g (d[0], d[1]) and g + 8, columns
// 2t and 2t + 1. Layout: PTX ISA, "Matrix fragments for mma.m16n8k32" and "mma.m16n8k16" with .s8.
__device__ __forceinline__ void mma_s8_16x8x16(int32_t (&d)[4], uint32_t a0, uint32_t a1, uint32_t b) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a0), "r"(a1), "r"(b));
#else
  asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+r"(d[0]), "+r"(d[1]) : "r"(a0), "r"(b));
  asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+r"(d[2]), "+r"(d[3]) : "r"(a1), "r"(b));
#endif
}
__device__ __forceinline__ void mma_s8_16x8x32(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  mma_s8_16x8x16(d, a[0], a[1], b[0]);
  mma_s8_16x8x16(d, a[2], a[3], b[1]);
#endif
}

// Copies 16 bytes from global to shared memory, both aligned, in the background: readable by this thread after
// copy_async_wait, by others after a barrier behind that. Below sm_80 the copy is done at once.
template <typename T>
__device__ __forceinline__ void copy_async_16(T* array, uint32_t index, const void* from) {
#if __CUDA_ARCH__ >= 800
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(array + index));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#else
  *reinterpret_cast<uint4*>(array + index) = *static_cast<const uint4*>(from);
#endif
}
// Closes a group of copies.
__device__ __forceinline__ void copy_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most the Pending latest groups of this thread are under way.
template <int Pending>
__device__ __forceinline__ void copy_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

}  // namespace tierpack::kernels::cuda
#endif

namespace tierpack::kernels::cuda {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kFullWarp = 0xFFFFFFFFu;

// The tree of docs/arithmetic.md over one value a lane; every lane gets the result.
__device__ __forceinline__ float warp_tree(float s) {
#pragma unroll
  for (unsigned half = kWarp / 2; half > 0; half /= 2) s = s + __shfl_xor_sync(kFullWarp, s, static_cast<int>(half));
  return s;
}

}  // namespace tierpack::kernels::cuda

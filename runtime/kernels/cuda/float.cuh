// The float of float_math.h in a thread of a kernel, and its functions for plain floats.
#pragma once

#include "runtime/kernels/cuda/dialect.cuh"
#include "runtime/kernels/float_math.h"

namespace tierpack::kernels::cuda {

struct DeviceInt {
  int32_t value;
  TIERPACK_HOST_DEVICE static DeviceInt of(int32_t v) { return {v}; }
};
__device__ __forceinline__ DeviceInt wrapped(uint32_t v) { return {static_cast<int32_t>(v)}; }
__device__ __forceinline__ DeviceInt operator+(DeviceInt a, DeviceInt b) { return wrapped(static_cast<uint32_t>(a.value) + static_cast<uint32_t>(b.value)); }
__device__ __forceinline__ DeviceInt operator-(DeviceInt a, DeviceInt b) { return wrapped(static_cast<uint32_t>(a.value) - static_cast<uint32_t>(b.value)); }
__device__ __forceinline__ DeviceInt operator<<(DeviceInt a, int count) { return wrapped(static_cast<uint32_t>(a.value) << count); }
__device__ __forceinline__ DeviceInt operator>>(DeviceInt a, int count) { return {a.value >> count}; }

struct DeviceFloat {
  using Int = DeviceInt;
  float value;
  TIERPACK_HOST_DEVICE static DeviceFloat of(float v) { return {v}; }
};
__device__ __forceinline__ DeviceFloat operator+(DeviceFloat a, DeviceFloat b) { return {a.value + b.value}; }
__device__ __forceinline__ DeviceFloat operator-(DeviceFloat a, DeviceFloat b) { return {a.value - b.value}; }
__device__ __forceinline__ DeviceFloat operator*(DeviceFloat a, DeviceFloat b) { return {a.value * b.value}; }
__device__ __forceinline__ DeviceFloat operator/(DeviceFloat a, DeviceFloat b) { return {a.value / b.value}; }
__device__ __forceinline__ DeviceFloat fma(DeviceFloat a, DeviceFloat b, DeviceFloat c) { return {__fmaf_rn(a.value, b.value, c.value)}; }
__device__ __forceinline__ bool less(DeviceFloat a, DeviceFloat b) { return a.value < b.value; }
__device__ __forceinline__ DeviceFloat select(bool mask, DeviceFloat yes, DeviceFloat no) { return mask ? yes : no; }
__device__ __forceinline__ DeviceInt bits(DeviceFloat a) { return {__float_as_int(a.value)}; }
__device__ __forceinline__ DeviceFloat from_bits(DeviceInt a) { return {__int_as_float(a.value)}; }
__device__ __forceinline__ DeviceFloat to_float(DeviceInt a) { return {static_cast<float>(a.value)}; }

// docs/arithmetic.md, section 5.
__device__ __forceinline__ float exponential(float x) { return exp(DeviceFloat{x}).value; }
__device__ __forceinline__ float sigmoid(float x) { return kernels::sigmoid(DeviceFloat{x}).value; }
__device__ __forceinline__ float silu(float x) { return kernels::silu(DeviceFloat{x}).value; }
__device__ __forceinline__ float softplus(float x) { return kernels::softplus(DeviceFloat{x}).value; }

}  // namespace tierpack::kernels::cuda

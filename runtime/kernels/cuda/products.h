// Products of weight matrices with activations on the GPU: docs/arithmetic.md, sections 3 and 4, bit for bit. Plain C++; the
// kernels are in *.cu. All pointers are device memory; work is queued on the stream and done when that is synchronised.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/device/device.h"
#include "runtime/kernels/kernels.h"

namespace tierpack::kernels::cuda {

// The oldest compute capability that the kernels were compiled for, 10 * major + minor; 0 when that is the machine's own.
int least_compute_capability();

// Code tables of the grid types in device memory. Holds a reference to nothing; made once for a device.
class GridTables {
 public:
  explicit GridTables(device::Stream& stream);
  const std::byte* address() const { return memory_.address(); }

 private:
  device::DeviceBuffer memory_;
};

// y[t * y_stride + r] = W row r . x_t for every row and token, like KernelTable::matmul with addresses of the device.
struct DeviceProduct {
  MatrixView w;
  ActivationView x;                // tokens = t's range; n = w.cols
  const uint32_t* rows = nullptr;  // token t reads row rows[t] of x (x.tokens of them); null: row t
  float* y = nullptr;
  size_t y_stride = 0;
  // Where an expert's record lies is known to the device alone: w.data and, unless null, w.scales are then offsets from the address
  // records[*expert]. Null: they are addresses.
  const uint64_t* records = nullptr;
  const uint32_t* expert = nullptr;
  // One factor for the results, expert_scales[*expert]; null: none.
  const float* expert_scales = nullptr;
};

// Quantised matrices of 16 rows or more and x.q begin at multiples of 16 bytes; plain ones at multiples of their elements, of 16 for speed.
// Any mixture of types and shapes, any number; order and grouping do not matter to the bits. Quantised weights (every type but Q8_1 and
// Q8_K; row groups and rows behind the last one) need x.q, x.scale, x.sum; F32, F16, BF16 and F8_E4M3 need x.x.
void multiply(device::Stream& stream, const GridTables& grids, std::span<const DeviceProduct> products);

// KernelTable::quantize of `count` elements (a multiple of 32) that lie one after the other; x begins at a multiple of 16 bytes, q at one of 4.
void quantize(device::Stream& stream, const float* x, size_t count, int8_t* q, float* scale, int32_t* sum);

}  // namespace tierpack::kernels::cuda

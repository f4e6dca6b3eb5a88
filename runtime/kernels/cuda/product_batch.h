// Products as kernels take them: up to kBatchProducts of one type. Block first[i] of the grid is the first of product i, first[count] their
// number; the numbers behind it are the largest there are, so that a kernel compares with all of them at once.
// Only sources of runtime/kernels/cuda include this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/dtype.h"
#include "runtime/device/device.h"

namespace tierpack::kernels::cuda {

inline constexpr unsigned kBatchProducts = 24;

struct ProductParameters {
  const uint8_t* data;       // of the matrix, or its offset in a record
  const float* scales;       // likewise
  const uint64_t* records;
  const uint32_t* expert;
  const float* expert_scales;
  const void* x;             // f32 values, or codes
  const float* x_scale;
  const int32_t* x_sum;
  const uint32_t* x_rows;
  float* y;
  uint64_t y_stride;
  uint64_t row_bytes;
  uint32_t rows;
  uint32_t columns;          // elements of a row
  uint32_t tokens;
  uint32_t scale_rows, scale_columns;
  uint32_t grid_tokens;      // blocks of the grid along the tokens, which follow each other and so meet the same weights in the cache
};

struct ProductBatch {
  const uint32_t* grids;
  uint32_t count;
  uint32_t turns;            // kOneToken of row groups: warps that share one, 1, 2 or 4
  uint32_t first[kBatchProducts + 1];
  ProductParameters product[kBatchProducts];
};
static_assert(sizeof(ProductBatch) <= 4096, "kernel parameters of all architectures");

enum class ProductKernel {
  kOneToken,    // whole row groups, or plain rows, one token
  kFewTokens,   // at most kFewTokens
  kManyTokens,
  kTailRows,    // rows behind the last whole group, any number of tokens
};

// Rows and tokens of a block of the grid.
struct BlockShape {
  uint32_t rows, tokens;
};

inline constexpr uint32_t kOneTokenWarps = 4;
inline constexpr uint32_t kFewTokens = 8;
inline constexpr uint32_t kManyGroups = 2;
inline constexpr uint32_t kManyTokens = 64;
inline constexpr uint32_t kTailTokens = 4;

// What one block computes, of a plain type in the second; kOneToken of row groups: with turns = 1.
BlockShape block_shape(DType type, ProductKernel kernel);
BlockShape plain_block_shape(DType type, ProductKernel kernel);

// Each queues the batch if the type is of its family.
bool launch_small_blocks(device::Stream& stream, DType type, ProductKernel kernel, const ProductBatch& batch);
bool launch_k_blocks(device::Stream& stream, DType type, ProductKernel kernel, const ProductBatch& batch);
bool launch_iq2_blocks(device::Stream& stream, DType type, ProductKernel kernel, const ProductBatch& batch);
bool launch_iq3_blocks(device::Stream& stream, DType type, ProductKernel kernel, const ProductBatch& batch);
bool launch_plain(device::Stream& stream, DType type, ProductKernel kernel, const ProductBatch& batch);

// x begins at a multiple of 16 bytes, q at one of 4.
void launch_quantize(device::Stream& stream, const float* x, size_t blocks, int8_t* q, float* scale, int32_t* sum);

}  // namespace tierpack::kernels::cuda

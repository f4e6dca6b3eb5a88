// The matmul of the vector tables: row groups of quantised weights, the rows behind the last whole group, and plain numbers. The
// including file chose the vectors (avx2_lanes.h or avx512_lanes.h); everything is in an unnamed namespace. Grid types have ways of
// their own: avx2_grid_products.h, vbmi_grid_decoders.h.
#pragma once

#include "runtime/kernels/token_tile.h"

namespace tierpack::kernels {
namespace {

// A product: rows [row_begin, row_end) of w with every token of x.
struct Product {
  MatrixView w;
  uint32_t row_begin, row_end;
  const ActivationView& x;
  float* y;
  size_t y_stride;
};

// Whole groups. Returns true, for tables of the types that have a decoder; false if the vectors are too long.
template <typename D, auto OneToken = one_token<D>>
bool multiply_groups(const Product& p) {
  const size_t row_stride = row_bytes(p.w.dtype, p.w.cols);
  const uint32_t tokens = p.x.tokens;
  if (tokens == 1) {
    for (uint32_t r = p.row_begin; r < p.row_end; r += kGroup) OneToken(p.w.data + r * row_stride, p.x, p.y + r);
    return true;
  }
  const uint32_t tokens_max = TokenTile<D>::tokens_max(p.x.n);
  if (tokens_max == 0) return false;
  if (p.row_begin == p.row_end) return true;
  // A tile of tokens stays in the L2 cache while the rows pass.
  const uint32_t tiles = (tokens + tokens_max - 1) / tokens_max;
  for (uint32_t i = 0; i < tiles; ++i) {
    const auto first = static_cast<uint32_t>(uint64_t{tokens} * i / tiles), end = static_cast<uint32_t>(uint64_t{tokens} * (i + 1) / tiles);
    TokenTile<D> tile(p.x, first, end - first);
    for (uint32_t r = p.row_begin; r < p.row_end; r += kGroup) tile.multiply_group(p.w.data + r * row_stride, p.y + r, p.y_stride);
  }
  return true;
}

using Matmul = decltype(KernelTable::matmul);

// Rows row_begin .. row_end behind the last whole group: laid into a group with rows of zeros on the stack, and multiplied as
// one. False if there is no room for it.
[[gnu::noinline]] bool multiply_tail(const Product& p, bool (*groups)(const Product&)) {
  alignas(64) std::byte padded[kTailBytes];
  alignas(64) float y[kTokenTile][kGroup];
  const size_t row_stride = row_bytes(p.w.dtype, p.w.cols);
  if (row_stride * kGroup > sizeof(padded)) return false;
  const uint32_t rows = p.row_end - p.row_begin;
  pad_row_group(p.w.dtype, rows, p.w.cols, p.w.data + p.row_begin * row_stride, padded);
  for (uint32_t t = 0; t < p.x.tokens; t += kTokenTile) {
    ActivationView x = p.x;
    x.tokens = std::min(kTokenTile, p.x.tokens - t);
    x.q += size_t{t} * x.n;
    x.scale += size_t{t} * (x.n / 32);
    x.sum += size_t{t} * (x.n / 32);
    if (!groups({{p.w.dtype, padded, kGroup, p.w.cols}, 0, kGroup, x, y[0], kGroup})) return false;
    for (uint32_t i = 0; i < x.tokens; ++i) std::memcpy(p.y + (t + i) * p.y_stride + p.row_begin, y[i], rows * sizeof(float));
  }
  return true;
}

// The matmul of a table: plain numbers by their own way, row groups by `groups`, which answers false for types it does not know;
// those go to `others`.
TIERPACK_INLINE void group_matmul(const Product& p, bool (*groups)(const Product&), Matmul others) {
  TIERPACK_CHECK(p.x.n > 0 && p.x.n == p.w.cols && p.row_begin <= p.row_end && p.row_end <= p.w.rows);
  if (!traits(p.w.dtype).quantised) return avx2_ops::matmul_plain(p.w, p.row_begin, p.row_end, p.x, p.y, p.y_stride);
  TIERPACK_CHECK(scales_fit(p.w) && p.row_begin % kGroupRows == 0 && (p.row_end % kGroupRows == 0 || p.row_end == p.w.rows));
  const uint32_t grouped = p.row_end - p.row_end % kGroupRows;
  if (!groups({p.w, p.row_begin, grouped, p.x, p.y, p.y_stride})) {
    return others(p.w, p.row_begin, p.row_end, p.x, p.y, p.y_stride);
  }
  if (grouped < p.row_end && !multiply_tail({p.w, grouped, p.row_end, p.x, p.y, p.y_stride}, groups)) {
    MatrixView unscaled = p.w;
    unscaled.scales = nullptr;
    reference_ops::matmul(unscaled, grouped, p.row_end, p.x, p.y, p.y_stride);
  }
  reference_ops::scale_results(p.w, p.row_begin, p.row_end, p.x.tokens, p.y, p.y_stride);
}

}  // namespace
}  // namespace tierpack::kernels

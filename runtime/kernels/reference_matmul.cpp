// The defining products: quantise, matmul, dot (docs/arithmetic.md, "Products").
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "formats/dequant.h"
#include "formats/row_groups.h"
#include "runtime/kernels/block_decoder.h"
#include "runtime/kernels/reference.h"

namespace tierpack::kernels::reference_ops {
namespace {

constexpr uint32_t kFloatSums = 32;
constexpr uint32_t kBlockSums = 8;
// Tokens that share one decoding of a weight block; bounds the partial sums on the stack.
constexpr uint32_t kTokenTile = 16;

// ((s0+s4)+(s2+s6)) + ((s1+s5)+(s3+s7)), and likewise for 32.
float tree_sum(float* sums, uint32_t count) {
  for (uint32_t half = count / 2; half > 0; half /= 2) {
    for (uint32_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

struct Sums {
  float partial[kBlockSums] = {};
};

// Adds the product of one weight block and one activation block to its partial sum.
float add_block(BlockForm form, const Block& w, const int8_t* q, float scale, int32_t sums, float partial) {
  int32_t dot[2] = {0, 0};
  const int32_t half_sum[2] = {first_half_sum(sums), second_half_sum(sums)};
  for (int e = 0; e < 32; ++e) dot[e / 16] += w.code[e] * q[e];
  switch (form) {
    case BlockForm::kScale:
      return std::fma(static_cast<float>(dot[0] + dot[1]), w.scale * scale, partial);
    case BlockForm::kScaleOffset:
      partial = std::fma(static_cast<float>(dot[0] + dot[1]), w.scale * scale, partial);
      return std::fma(w.offset, static_cast<float>(half_sum[0] + half_sum[1]) * scale, partial);
    case BlockForm::kSubScale:
      return std::fma(static_cast<float>(w.sub_scale[0] * dot[0] + w.sub_scale[1] * dot[1]), w.scale * scale, partial);
    case BlockForm::kSubScaleOffset:
      partial = std::fma(static_cast<float>(w.sub_scale[0] * dot[0] + w.sub_scale[1] * dot[1]), w.scale * scale, partial);
      return std::fma(static_cast<float>(w.sub_offset[0] * half_sum[0] + w.sub_offset[1] * half_sum[1]), w.offset * scale,
                      partial);
    case BlockForm::kTwoScales:
      partial = std::fma(static_cast<float>(dot[0]), w.scale * scale, partial);
      return std::fma(static_cast<float>(dot[1]), w.scale_high * scale, partial);
  }
  return partial;
}

// Where the packed blocks of one row are: in a row group, or back to back behind the last group.
struct RowBlocks {
  DType type;
  const std::byte* base;  // of the group or of the row
  bool grouped;
  uint32_t row;  // in the group

  void decode(const BlockFormat& format, uint32_t packed, Block* out) const {
    if (!grouped) return format.decode(base + size_t{packed} * format.bytes, out);
    std::byte block[kPackedBytesMax];
    load_grouped_block(type, base, packed, row, block);
    format.decode(block, out);
  }
};

void quantised_row(const BlockFormat& format, const RowBlocks& row, const ActivationView& x, uint32_t first, uint32_t tokens,
                   float* y, size_t y_stride) {
  Block block[kBlocksMax] = {};
  Sums sums[kTokenTile];
  const uint32_t blocks = x.n / 32;
  for (uint32_t b = 0; b < blocks; ++b) {
    if (b % format.blocks == 0) row.decode(format, b / format.blocks, block);
    for (uint32_t t = 0; t < tokens; ++t) {
      const size_t at = static_cast<size_t>(first + t) * blocks + b;
      float& partial = sums[t].partial[b % kBlockSums];
      partial = add_block(format.form, block[b % format.blocks], x.q + 32 * at, x.scale[at], x.sum[at], partial);
    }
  }
  for (uint32_t t = 0; t < tokens; ++t) y[(first + t) * y_stride] = tree_sum(sums[t].partial, kBlockSums);
}

// Adds the products of `n` plain numbers to the partial sums.
void add_plain(DType type, const std::byte* row, const float* values, uint32_t n, float (&sums)[kFloatSums]) {
  float w[kFloatSums];
  for (uint32_t e = 0; e < n; e += kFloatSums) {
    const uint32_t count = std::min(kFloatSums, n - e);
    dequantize_row(type, row + e * size_t{traits(type).block_bytes}, w, count);
    for (uint32_t i = 0; i < count; ++i) sums[i] = std::fma(w[i], values[e + i], sums[i]);
  }
}

void plain_row(const MatrixView& w, uint32_t r, const ActivationView& x, uint32_t token, float* y) {
  const std::byte* row = w.data + r * row_bytes(w.dtype, w.cols);
  const float* values = x.x + static_cast<size_t>(token) * x.n;
  const float* scale = row_scales(w, r);
  float sums[kFloatSums] = {};
  if (scale == nullptr) {
    add_plain(w.dtype, row, values, x.n, sums);
  } else {
    for (uint64_t e = 0; e < x.n; e += w.scale_cols, ++scale) {
      float block[kFloatSums] = {};
      add_plain(w.dtype, row + e * traits(w.dtype).block_bytes, values + e,
                static_cast<uint32_t>(std::min<uint64_t>(w.scale_cols, x.n - e)), block);
      for (uint32_t i = 0; i < kFloatSums; ++i) sums[i] = std::fma(block[i], *scale, sums[i]);
    }
  }
  *y = tree_sum(sums, kFloatSums);
}

}  // namespace

void quantize(const float* x, uint32_t n, int8_t* q, float* scale, int32_t* sum) {
  TIERPACK_CHECK(n % 32 == 0);
  for (uint32_t b = 0; b < n / 32; ++b, x += 32, q += 32) {
    // Of non-negative floats the bit patterns order as the values do, with infinity and NaN above all numbers.
    uint32_t amax_bits = 0;
    for (int e = 0; e < 32; ++e) amax_bits = std::max(amax_bits, std::bit_cast<uint32_t>(x[e]) & 0x7FFFFFFFu);
    const float amax = std::bit_cast<float>(amax_bits);
    sum[b] = 0;
    if (amax_bits >= 0x7F800000u || amax < kQuantizeFloor) {
      std::fill_n(q, 32, int8_t{0});
      scale[b] = amax_bits >= 0x7F800000u ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
      continue;
    }
    const float inverse = 127.0f / amax;
    scale[b] = amax / 127.0f;
    int32_t half_sum[2] = {0, 0};
    for (int e = 0; e < 32; ++e) {
      q[e] = static_cast<int8_t>(std::nearbyint(x[e] * inverse));
      half_sum[e / 16] += q[e];
    }
    sum[b] = pack_half_sums(half_sum[0], half_sum[1]);
  }
}

void matmul(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride) {
  TIERPACK_CHECK(x.n == w.cols && row_begin <= row_end && row_end <= w.rows && scales_fit(w));
  const BlockFormat* format = block_format(w.dtype);
  const size_t stride = row_bytes(w.dtype, w.cols);
  for (uint32_t r = row_begin; r < row_end; ++r) {
    const std::byte* row = w.data + r * stride;
    if (format) {
      const bool grouped = r < grouped_rows(w.rows);
      const RowBlocks blocks{w.dtype, grouped ? w.data + (r - r % kGroupRows) * stride : row, grouped, r % kGroupRows};
      for (uint32_t t = 0; t < x.tokens; t += kTokenTile) {
        quantised_row(*format, blocks, x, t, std::min(kTokenTile, x.tokens - t), y + r, y_stride);
      }
    } else {
      for (uint32_t t = 0; t < x.tokens; ++t) plain_row(w, r, x, t, y + t * y_stride + r);
    }
  }
  if (format) scale_results(w, row_begin, row_end, x.tokens, y, y_stride);
}

void scale_results(const MatrixView& w, uint32_t row_begin, uint32_t row_end, uint32_t tokens, float* y, size_t y_stride) {
  if (w.scales == nullptr) return;
  const float factor = *w.scales;
  for (uint32_t t = 0; t < tokens; ++t) {
    for (uint32_t r = row_begin; r < row_end; ++r) y[t * y_stride + r] *= factor;
  }
}

float dot(const float* a, const float* b, uint32_t n) {
  float sums[kFloatSums] = {};
  for (uint32_t e = 0; e < n; ++e) sums[e % kFloatSums] = std::fma(a[e], b[e], sums[e % kFloatSums]);
  return tree_sum(sums, kFloatSums);
}

float sum(const float* x, uint32_t n) {
  float sums[kFloatSums] = {};
  for (uint32_t e = 0; e < n; ++e) sums[e % kFloatSums] += x[e];
  return tree_sum(sums, kFloatSums);
}

void decode_row(DType dtype, const std::byte* row, uint32_t n, float* out) { dequantize_row(dtype, row, out, n); }

}  // namespace tierpack::kernels::reference_ops

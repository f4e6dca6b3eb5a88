#include "runtime/model/decoded_weights.h"

#include <algorithm>
#include <array>
#include <vector>

#include "formats/row_groups.h"

namespace tierpack::model {

using kernels::ActivationView;
using kernels::KernelTable;
using kernels::MatrixView;

namespace {

constexpr uint32_t kScaleBlock = 128;
constexpr uint32_t kDecodedRows = kGroupRows;  // decoded at a time

// Block by block: the blocks of a grouped row lie apart, and there is no memory for a whole one.
void decode_grouped_row(const KernelTable& k, const MatrixView& matrix, uint64_t row, float* out) {
  std::array<std::byte, kBlockBytesMax> block;
  const uint32_t elements = traits(matrix.dtype).block_elements;
  const std::byte* const group = matrix.data + (row - row % kGroupRows) * row_bytes(matrix.dtype, matrix.cols);
  for (uint32_t c = 0; c < matrix.cols / elements; ++c) {
    load_grouped_block(matrix.dtype, group, c, static_cast<uint32_t>(row % kGroupRows), block.data());
    k.decode_row(matrix.dtype, block.data(), elements, out + size_t{c} * elements);
  }
}

}  // namespace

void decode_matrix_row(const KernelTable& k, const MatrixView& matrix, uint64_t row, float* out) {
  if (row < grouped_rows(matrix.rows) && has_row_groups(matrix.dtype, matrix.rows)) {
    decode_grouped_row(k, matrix, row, out);
  } else {
    k.decode_row(matrix.dtype, matrix.data + row * row_bytes(matrix.dtype, matrix.cols), matrix.cols, out);
  }
  const float* scale = row_scales(matrix, static_cast<uint32_t>(row));
  if (scale == nullptr) return;
  for (uint64_t begin = 0; begin < matrix.cols; begin += matrix.scale_cols, ++scale) {
    const auto n = static_cast<uint32_t>(std::min<uint64_t>(matrix.scale_cols, matrix.cols - begin));
    k.scale(out + begin, *scale, n, out + begin);
  }
}

void multiply_decoded(const KernelTable& k, const MatrixView& w, uint32_t row_begin, uint32_t row_end,
                      const ActivationView& x, float* y, size_t y_stride) {
  static thread_local std::vector<float> decoded;
  decoded.resize(std::max(decoded.size(), size_t{kDecodedRows} * w.cols));
  for (uint32_t first = row_begin; first < row_end; first += kDecodedRows) {
    const uint32_t rows = std::min(kDecodedRows, row_end - first);
    for (uint32_t i = 0; i < rows; ++i) decode_matrix_row(k, w, first + i, decoded.data() + size_t{i} * w.cols);
    const MatrixView plain{DType::kF32, reinterpret_cast<const std::byte*>(decoded.data()), rows, w.cols};
    k.matmul(plain, 0, rows, x, y + first, y_stride);
  }
}

uint64_t decoded_weights_bytes(const PackManifest& manifest) {
  uint64_t columns = 0;
  for (const DenseTensor& tensor : manifest.dense) columns = std::max(columns, tensor.shape.ne[0]);
  for (const ExpertLayer& layer : manifest.expert_layers) {
    for (const ExpertPart* part : layer.parts()) columns = std::max(columns, part->in);
  }
  return columns * kDecodedRows * sizeof(float);
}

bool set_scales(MatrixView& w, const float* scales, uint64_t scale_rows, uint64_t scale_columns) {
  const auto blocks = [](uint64_t n) { return n / kScaleBlock + (n % kScaleBlock != 0); };
  if (scale_rows == 1 && scale_columns == 1) {
    w.scale_rows = w.rows;
    w.scale_cols = w.cols;
  } else if (traits(w.dtype).quantised) {
    return false;
  } else if (scale_rows == w.rows && scale_columns == 1) {
    w.scale_rows = 1;
    w.scale_cols = w.cols;
  } else if (scale_rows == blocks(w.rows) && scale_columns == blocks(w.cols)) {
    w.scale_rows = kScaleBlock;
    w.scale_cols = kScaleBlock;
  } else {
    return false;
  }
  w.scales = scales;
  return true;
}

}  // namespace tierpack::model

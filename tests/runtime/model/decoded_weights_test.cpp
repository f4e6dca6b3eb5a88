// Decoded weights with their scales, against formats/dequant and plain loops.
#include "runtime/model/decoded_weights.h"

#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "formats/dequant.h"
#include "formats/row_groups.h"

namespace tierpack::model {
namespace {

using kernels::KernelTable;
using kernels::MatrixView;

// A matrix with random codes and scales of its own, as published and as a pack holds it.
struct RandomMatrix {
  DType type;
  uint32_t rows, cols;
  std::vector<std::byte> published, stored;
  std::vector<float> scales;
  MatrixView view;

  RandomMatrix(DType dtype, uint32_t row_count, uint32_t columns, uint64_t scale_rows, uint64_t scale_columns)
      : type(dtype),
        rows(row_count),
        cols(columns),
        published(rows * row_bytes(dtype, columns)),
        stored(published.size()) {
    std::mt19937 random(rows + cols);
    for (std::byte& b : published) b = static_cast<std::byte>(random() % 0x70);  // no NaN code and no scale above 2^7
    if (type == DType::kQ8_0) {
      for (size_t at = 1; at < published.size(); at += 34) published[at] = std::byte{0x2C};  // scales near 2^-4
    }
    to_row_groups(type, rows, cols, published, stored);
    for (uint64_t i = 0; i < scale_rows * scale_columns; ++i)
      scales.push_back(static_cast<float>(random() % 1000 + 1) / 777.0f);
    view = {type, stored.data(), rows, cols};
    EXPECT_TRUE(scales.empty() || set_scales(view, scales.data(), scale_rows, scale_columns));
  }

  // Values by the words of the format: code times scale, rounded once.
  std::vector<float> decoded(uint64_t scale_rows, uint64_t scale_columns) const {
    std::vector<float> out(size_t{rows} * cols);
    for (uint32_t r = 0; r < rows; ++r) {
      dequantize_row(type, published.data() + r * row_bytes(type, cols), out.data() + size_t{r} * cols, cols);
      for (uint32_t c = 0; c < cols && !scales.empty(); ++c) {
        const uint64_t line = scale_rows == 1 ? 0 : scale_rows == rows ? r : r / 128;
        const uint64_t column = scale_columns == 1 ? 0 : c / 128;
        out[size_t{r} * cols + c] *= scales[line * scale_columns + column];
      }
    }
    return out;
  }
};

struct Case {
  DType type;
  uint32_t rows, cols;
  uint64_t scale_rows, scale_columns;  // 0: no scales
};
const Case kCases[] = {
    {DType::kF8_E4M3, 300, 200, 3, 2}, {DType::kF8_E4M3, 33, 200, 33, 1}, {DType::kF8_E4M3, 33, 77, 1, 1},
    {DType::kF8_E4M3, 20, 40, 0, 0},   {DType::kBF16, 130, 256, 2, 2},    {DType::kNVFP4, 37, 128, 1, 1},
    {DType::kNVFP4, 5, 64, 1, 1},      {DType::kQ8_0, 48, 96, 0, 0},      {DType::kQ8_0, 16, 32, 1, 1}};

TEST(DecodedWeights, RowsHaveTheirScales) {
  for (const Case& c : kCases) {
    const RandomMatrix matrix(c.type, c.rows, c.cols, c.scale_rows, c.scale_columns);
    const std::vector<float> expected = matrix.decoded(c.scale_rows, c.scale_columns);
    for (const KernelTable* table : kernels::available()) {
      std::vector<float> row(c.cols);
      for (uint32_t r = 0; r < c.rows; ++r) {
        decode_matrix_row(*table, matrix.view, r, row.data());
        ASSERT_EQ(std::memcmp(row.data(), expected.data() + size_t{r} * c.cols, c.cols * sizeof(float)), 0)
            << table->name << " " << dtype_name(c.type) << " row " << r;
      }
    }
  }
}

// The same bits as with a matrix that was stored as f32 in the first place.
TEST(DecodedWeights, ProductsAreThoseOfTheDecodedMatrix) {
  for (const Case& c : kCases) {
    const RandomMatrix matrix(c.type, c.rows, c.cols, c.scale_rows, c.scale_columns);
    const std::vector<float> decoded = matrix.decoded(c.scale_rows, c.scale_columns);
    const MatrixView plain{DType::kF32, reinterpret_cast<const std::byte*>(decoded.data()), c.rows, c.cols};
    for (const uint32_t tokens : {1u, 3u, 20u}) {
      std::vector<float> x(size_t{tokens} * c.cols);
      std::mt19937 random(tokens);
      for (float& v : x) v = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
      const kernels::ActivationView view{tokens, c.cols, x.data(), nullptr, nullptr, nullptr};
      std::vector<float> expected(size_t{tokens} * c.rows);
      kernels::reference().matmul(plain, 0, c.rows, view, expected.data(), c.rows);
      for (const KernelTable* table : kernels::available()) {
        std::vector<float> y(expected.size(), -7.0f);
        for (uint32_t r = 0; r < c.rows; r += 32) {
          multiply_decoded(*table, matrix.view, r, std::min(r + 32, c.rows), view, y.data(), c.rows);
        }
        EXPECT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0)
            << table->name << " " << dtype_name(c.type) << " " << c.rows << " x " << c.cols << ", " << tokens
            << " tokens";
      }
    }
  }
}

TEST(DecodedWeights, ScalesOfAnotherShapeAreRefused) {
  const float scales[1] = {1};
  const auto fits = [&](DType type, uint64_t rows, uint64_t columns) {
    MatrixView w{type, nullptr, 300, 192};
    return set_scales(w, scales, rows, columns) && scales_fit(w);
  };
  EXPECT_TRUE(fits(DType::kF8_E4M3, 1, 1));
  EXPECT_TRUE(fits(DType::kF8_E4M3, 300, 1));
  EXPECT_TRUE(fits(DType::kF8_E4M3, 3, 2));
  EXPECT_TRUE(fits(DType::kNVFP4, 1, 1));
  for (const auto& [rows, columns] : {std::pair{2, 3}, {1, 2}, {3, 1}, {300, 2}, {1, 192}, {0, 0}, {0, 1}}) {
    EXPECT_FALSE(fits(DType::kF8_E4M3, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns)))
        << rows << " x " << columns;
  }
  EXPECT_FALSE(fits(DType::kNVFP4, 300, 1));
  EXPECT_FALSE(fits(DType::kNVFP4, 3, 2));
}

}  // namespace
}  // namespace tierpack::model

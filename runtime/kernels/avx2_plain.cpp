// Products with plain-number weights: 32 interleaved partial sums a (row, token) pair. One or two tokens stream through
// a row at a time; more meet tiles of 4 rows, so that every load feeds several multiplications.
#include "base/error.h"
#include "formats/dequant.h"
#include "runtime/kernels/avx2.h"
#include "runtime/kernels/avx2_vector.h"

namespace tierpack::kernels::avx2_ops {
namespace {

// Readers of 8 weights from element e on.
struct F32Row {
  const std::byte* row;
  __m256 load8(uint32_t e) const { return _mm256_loadu_ps(reinterpret_cast<const float*>(row) + e); }
};

struct F16Row {
  const std::byte* row;
  __m256 load8(uint32_t e) const { return half_to_float(reinterpret_cast<const uint16_t*>(row) + e); }
};

struct BF16Row {
  const std::byte* row;
  __m256 load8(uint32_t e) const {
    const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + size_t{2} * e));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight), 16));
  }
};

// The remaining types, through the decoder of formats.
struct DecodedRow {
  const std::byte* row;
  DType type;
  uint32_t element_bytes;
  __m256 load8(uint32_t e) const {
    alignas(32) float values[8];
    dequantize_row(type, row + size_t{e} * element_bytes, values, 8);
    return _mm256_load_ps(values);
  }
};

// Fewer than 8 weights at the end of a row.
inline __m256 load_end(DType type, const std::byte* row, uint32_t element_bytes, uint32_t e, uint32_t lanes) {
  alignas(32) float values[8] = {};
  dequantize_row(type, row + size_t{e} * element_bytes, values, lanes);
  return _mm256_load_ps(values);
}

constexpr uint32_t kTileRows = 4;
constexpr uint32_t kTileTokens = 3;
constexpr uint32_t kSegment = 512;  // columns that a tile goes through at a time: its rows and tokens stay in the L1 cache

// Adds the columns from e on, fewer than 32, to the partial sums.
template <typename Row>
void add_tail(const Row& row, DType type, uint32_t element_bytes, const float* x, uint32_t e, uint32_t n, __m256 (&part)[4]) {
  for (; e < n; e += 8) {
    const uint32_t lanes = n - e < 8 ? n - e : 8;
    const __m256 w = lanes == 8 ? row.load8(e) : load_end(type, row.row, element_bytes, e, lanes);
    __m256& sum = part[e % 32 / 8];
    sum = fma_lanes(w, load_lanes(x + e, lanes).value, sum, lanes);
  }
}

template <uint32_t Rows, uint32_t Tokens, typename Row>
void tile(const Row (&row)[Rows], DType type, uint32_t element_bytes, const ActivationView& x, uint32_t first, float* y,
          size_t y_stride) {
  Sums32 sums[Rows][Tokens];
  for (auto& of_row : sums) {
    for (Sums32& s : of_row) s = Sums32::zero();
  }
  const float* values = x.x + size_t{first} * x.n;
  const uint32_t whole = x.n / 32 * 32;
  for (uint32_t begin = 0; begin < whole; begin += kSegment) {
    const uint32_t end = whole - begin < kSegment ? whole : begin + kSegment;
    // The four eighths of a 32-element stretch are separate sums: one at a time, they fit the registers.
    for (uint32_t i = 0; i < 4; ++i) {
      __m256 part[Rows][Tokens];
#pragma GCC unroll 4
      for (uint32_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (uint32_t t = 0; t < Tokens; ++t) part[r][t] = sums[r][t].part[i];
      }
      for (uint32_t e = begin + 8 * i; e < end; e += 32) {
        __m256 v[Tokens];
#pragma GCC unroll 4
        for (uint32_t t = 0; t < Tokens; ++t) v[t] = _mm256_loadu_ps(values + size_t{t} * x.n + e);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < Rows; ++r) {
          const __m256 w = row[r].load8(e);
#pragma GCC unroll 4
          for (uint32_t t = 0; t < Tokens; ++t) part[r][t] = _mm256_fmadd_ps(w, v[t], part[r][t]);
        }
      }
#pragma GCC unroll 4
      for (uint32_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (uint32_t t = 0; t < Tokens; ++t) sums[r][t].part[i] = part[r][t];
      }
    }
  }
  for (uint32_t r = 0; r < Rows; ++r) {
    for (uint32_t t = 0; t < Tokens; ++t) {
      add_tail(row[r], type, element_bytes, values + size_t{t} * x.n, whole, x.n, sums[r][t].part);
      y[(first + t) * y_stride + r] = sums[r][t].total();
    }
  }
}

// One row, all four sums at once: a single stream through the weights.
template <uint32_t Tokens, typename Row>
void one_row(const Row& row, DType type, uint32_t element_bytes, const ActivationView& x, uint32_t first, float* y, size_t y_stride) {
  Sums32 sums[Tokens];
  for (Sums32& s : sums) s = Sums32::zero();
  const float* values = x.x + size_t{first} * x.n;
  const uint32_t whole = x.n / 32 * 32;
  for (uint32_t e = 0; e < whole; e += 32) {
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) {
      const __m256 w = row.load8(e + 8 * i);
#pragma GCC unroll 4
      for (uint32_t t = 0; t < Tokens; ++t) {
        sums[t].part[i] = _mm256_fmadd_ps(w, _mm256_loadu_ps(values + size_t{t} * x.n + e + 8 * i), sums[t].part[i]);
      }
    }
  }
  for (uint32_t t = 0; t < Tokens; ++t) {
    add_tail(row, type, element_bytes, values + size_t{t} * x.n, whole, x.n, sums[t].part);
    y[(first + t) * y_stride] = sums[t].total();
  }
}

template <typename MakeRow>
void product(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride,
             MakeRow&& make_row) {
  const size_t row_stride = row_bytes(w.dtype, w.cols);
  const uint32_t element_bytes = traits(w.dtype).block_bytes;
  uint32_t r = row_begin;
  for (; x.tokens >= kTileTokens && r + kTileRows <= row_end; r += kTileRows) {
    const std::byte* data = w.data + r * row_stride;
    const decltype(make_row(data)) rows[kTileRows] = {make_row(data), make_row(data + row_stride), make_row(data + 2 * row_stride),
                                                      make_row(data + 3 * row_stride)};
    uint32_t t = 0;
    for (; t + 3 <= x.tokens; t += 3) tile<kTileRows, 3>(rows, w.dtype, element_bytes, x, t, y + r, y_stride);
    if (x.tokens - t == 2) tile<kTileRows, 2>(rows, w.dtype, element_bytes, x, t, y + r, y_stride);
    if (x.tokens - t == 1) tile<kTileRows, 1>(rows, w.dtype, element_bytes, x, t, y + r, y_stride);
  }
  for (; r < row_end; ++r) {
    const auto row = make_row(w.data + r * row_stride);
    uint32_t t = 0;
    for (; t + 3 <= x.tokens; t += 3) one_row<3>(row, w.dtype, element_bytes, x, t, y + r, y_stride);
    if (x.tokens - t == 2) one_row<2>(row, w.dtype, element_bytes, x, t, y + r, y_stride);
    if (x.tokens - t == 1) one_row<1>(row, w.dtype, element_bytes, x, t, y + r, y_stride);
  }
}

}  // namespace

void matmul_plain(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y, size_t y_stride) {
  const auto run = [&](auto make_row) { product(w, row_begin, row_end, x, y, y_stride, make_row); };
  switch (w.dtype) {
    case DType::kF32: return run([](const std::byte* row) { return F32Row{row}; });
    case DType::kF16: return run([](const std::byte* row) { return F16Row{row}; });
    case DType::kBF16: return run([](const std::byte* row) { return BF16Row{row}; });
    default:
      return run([&](const std::byte* row) { return DecodedRow{row, w.dtype, traits(w.dtype).block_bytes}; });
  }
}

}  // namespace tierpack::kernels::avx2_ops

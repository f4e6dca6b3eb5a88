// What every operation of a forward pass computes with: the kernel table and the thread team. Loops are split by rows,
// heads, channels or tokens; one output element is always computed whole by one call of one kernel, so no split can
// change a bit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/threads.h"
#include "formats/dtype.h"
#include "runtime/kernels/activation_type.h"
#include "runtime/kernels/kernels.h"
#include "runtime/model/decoded_weights.h"

namespace tierpack::model {

struct Compute {
  const kernels::KernelTable& k;
  ThreadTeam& team;
  ActivationType activations = ActivationType::kInt8;  // for quantised weights
};

// Costs are in multiply-adds of a quantised product. A loop cheaper than kTeamCost is not worth sharing; a piece is never
// cheaper than kPieceCost, and there are at most kPiecesPerThread pieces a thread.
inline constexpr uint64_t kTeamCost = 100'000;
inline constexpr uint64_t kPieceCost = 30'000;
inline constexpr uint64_t kPiecesPerThread = 12;
// One element of an elementwise operation, in the same unit.
inline constexpr uint64_t kElementCost = 16;

// Items in one piece of a loop over `count` items of `item_cost`; `count` when the loop should stay on the caller.
inline size_t piece_items(const Compute& c, size_t count, uint64_t item_cost) {
  const uint64_t total = count * std::max<uint64_t>(item_cost, 1);
  if (c.team.size() == 1 || total < kTeamCost) return count;
  const uint64_t pieces =
      std::min<uint64_t>(total / kPieceCost, static_cast<uint64_t>(c.team.size()) * kPiecesPerThread);
  return std::max<size_t>(1, (count + pieces - 1) / pieces);
}

// body(begin, end) over [0, count) in pieces.
template <typename Body>
void for_ranges(const Compute& c, size_t count, uint64_t item_cost, Body&& body) {
  if (count == 0) return;
  const size_t step = piece_items(c, count, item_cost);
  if (step >= count) {
    body(size_t{0}, count);
    return;
  }
  c.team.for_each((count + step - 1) / step,
                  [&](size_t i) { body(i * step, std::min(count, (i + 1) * step)); });
}

// Vectors as rows (tokens, n) and, when some product with quantised weights reads them, their quantised twin.
struct Activations {
  uint32_t n = 0;
  float* x = nullptr;        // (tokens, n)
  int8_t* q = nullptr;       // (tokens, n)
  float* scale = nullptr;    // (tokens, n / 32)
  int32_t* sum = nullptr;    // (tokens, n / 32)

  float* row(size_t token) const { return x + token * n; }
  // Rows [first, first + tokens).
  kernels::ActivationView view(size_t first, uint32_t tokens) const {
    const size_t blocks = first * (n / 32);
    return {tokens,
            n,
            x == nullptr ? nullptr : x + first * n,
            q == nullptr ? nullptr : q + first * n,
            scale == nullptr ? nullptr : scale + blocks,
            sum == nullptr ? nullptr : sum + blocks};
  }
  // The same without the rows before `row`.
  Activations from_row(size_t row) const {
    const size_t blocks = row * (n / 32);
    return {n, x == nullptr ? nullptr : x + row * n, q == nullptr ? nullptr : q + row * n, scale == nullptr ? nullptr : scale + blocks,
            sum == nullptr ? nullptr : sum + blocks};
  }
  // Quantises elements [begin, end) of the whole (tokens, n) array; both multiples of 32, and n too.
  void quantize(const Compute& c, size_t begin, size_t end) const {
    c.k.quantize(x + begin, static_cast<uint32_t>(end - begin), q + begin, scale + begin / 32, sum + begin / 32);
  }
};

// Whether products with this matrix read the quantised form of their input.
inline bool reads_quantised(const Compute& c, const kernels::MatrixView& w) {
  return traits(w.dtype).quantised && c.activations == ActivationType::kInt8;
}

// Rows [row_begin, row_end) of a product, for every token: the one way to a matmul with weights.
inline void multiply(const Compute& c, const kernels::MatrixView& w, uint32_t row_begin, uint32_t row_end,
                     const kernels::ActivationView& x, float* y, size_t y_stride) {
  if (traits(w.dtype).quantised && !reads_quantised(c, w)) {
    multiply_decoded(c.k, w, row_begin, row_end, x, y, y_stride);
  } else {
    c.k.matmul(w, row_begin, row_end, x, y, y_stride);
  }
}

// Quantises rows [0, tokens) if one of the matrices asks for it.
template <typename... Matrices>
void quantize_for(const Compute& c, const Activations& a, uint32_t tokens, const Matrices&... readers) {
  if (!(reads_quantised(c, readers) || ...)) return;
  for_ranges(c, size_t{tokens} * (a.n / 32), 32 * kElementCost,
             [&](size_t begin, size_t end) { a.quantize(c, begin * 32, end * 32); });
}

// y[t * y_stride + r] = W row r . x_t.
struct Product {
  const kernels::MatrixView* w = nullptr;
  kernels::ActivationView x;
  float* y = nullptr;
  size_t y_stride = 0;
};

inline constexpr uint32_t kRowsPerPiece = 32;  // pieces of a product begin at multiples of this many rows

// All products in one loop over blocks of rows. after(product, row_begin, row_end) runs on the thread that has just
// computed those rows for every token.
template <typename After>
void run_products(const Compute& c, std::span<const Product> products, After&& after) {
  uint64_t total = 0;
  for (const Product& p : products) total += uint64_t{p.x.tokens} * p.w->rows * p.w->cols;
  const bool alone = c.team.size() == 1 || total < kTeamCost;
  const uint64_t target =
      std::max<uint64_t>(kPieceCost, total / (static_cast<uint64_t>(c.team.size()) * kPiecesPerThread));
  const auto rows_of = [&](const Product& p) -> uint32_t {
    if (alone) return p.w->rows;
    const uint64_t row_cost = std::max<uint64_t>(1, uint64_t{p.x.tokens} * p.w->cols);
    return static_cast<uint32_t>(
        std::min<uint64_t>(p.w->rows, align_up(std::max<uint64_t>(1, target / row_cost), kRowsPerPiece)));
  };
  const auto run_piece = [&](size_t index, size_t piece) {
    const Product& p = products[index];
    const uint32_t step = rows_of(p);
    const auto begin = static_cast<uint32_t>(piece * step);
    const uint32_t end = std::min(p.w->rows, begin + step);
    multiply(c, *p.w, begin, end, p.x, p.y, p.y_stride);
    after(index, begin, end);
  };
  if (alone) {
    for (size_t i = 0; i < products.size(); ++i) run_piece(i, 0);
    return;
  }
  size_t pieces = 0;
  for (const Product& p : products) pieces += (p.w->rows + rows_of(p) - 1) / rows_of(p);
  c.team.for_each(pieces, [&](size_t piece) {
    size_t index = 0;
    for (;; ++index) {
      const size_t count = (products[index].w->rows + rows_of(products[index]) - 1) / rows_of(products[index]);
      if (piece < count) break;
      piece -= count;
    }
    run_piece(index, piece);
  });
}

inline void run_products(const Compute& c, std::span<const Product> products) {
  run_products(c, products, [](size_t, uint32_t, uint32_t) {});
}

}  // namespace tierpack::model

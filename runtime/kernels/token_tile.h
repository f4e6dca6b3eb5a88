// Products of row groups with many tokens: a column of blocks is decoded once and meets a tile of tokens.
#pragma once

#include "base/bytes.h"
#include "runtime/kernels/group_products.h"

namespace tierpack::kernels {
namespace {

// Byte k of vector j and byte j of vector k change places, in each lane.
TIERPACK_INLINE void transpose_bytes(Ints* v) {
  const Ints even = all_ints(0x00FF00FF), odd = all_ints(0xFF00FF00), low = all_ints(0x0000FFFF), high = all_ints(0xFFFF0000);
#pragma GCC unroll 2
  for (int i = 0; i < 4; i += 2) {
    const Ints a = v[i], b = v[i + 1];
    v[i] = (a & even) | (shift_left(b, 8) & odd);
    v[i + 1] = (shift_right(a, 8) & even) | (b & odd);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const Ints a = v[i], b = v[i + 2];
    v[i] = (a & low) | shift_left(b, 16);
    v[i + 2] = shift_right(a, 16) | (b & high);
  }
}

// A decoded column: what many tokens meet.
template <typename D>
struct Decoded {
  Ints code[D::blocks][kHalves][8];
  Ints magnitude[D::bias == kSigned ? D::blocks : 1][kHalves][8];
  Factors<D> factors[D::blocks][kHalves];

  TIERPACK_INLINE void load(const std::byte* column) {
    auto d = halves_of<D>(column);
#pragma GCC unroll 8
    for (int b = 0; b < D::blocks; ++b) {
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        d[h].prepare(b);
        factors[b][h].load(d[h], b);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
          code[b][h][j] = d[h].code(b, j);
          if constexpr (D::bias == kSigned) magnitude[b][h][j] = absolute(code[b][h][j]);
        }
        if constexpr (D::transposed) transpose_bytes(code[b][h]), transpose_bytes(code[b][h] + 4);
      }
    }
  }
};

// Tokens that meet a vector of codes while it is in a register.
template <typename D>
constexpr int tokens_at_once() {
  if (kExactBytes) return kHalves == 2 && !has_sub_scales(D::form) && D::form != kTwoScales ? 4 : 2;
  return 32767 / (2 * 127 * D::code_max) >= 8 && !has_sub_scales(D::form) ? 4 : 2;
}

// Integers for prepare_sums in a tile. Of long vectors a tile has fewer tokens.
constexpr uint32_t kPreparedInts = 12288;

// Tokens first .. first + tokens of a view, and one group of rows after the other.
template <typename D>
class TokenTile {
 public:
  // Tokens that a tile of vectors of n elements may have; 0 if n is too long.
  static constexpr uint32_t tokens_max(uint32_t n) {
    if constexpr (kUse == SumUse::kNone) return kTokenTile;
    return std::min(kTokenTile, kPreparedInts / padded(n / 32));
  }

  TokenTile(const ActivationView& x, uint32_t first, uint32_t tokens)
      : x_(x), first_(first), tokens_(tokens), blocks_(x.n / 32), stride_(padded(x.n / 32)) {
    TIERPACK_CHECK(tokens <= tokens_max(x.n));
    if constexpr (kUse == SumUse::kNone) return;
    for (uint32_t t = 0; t < tokens; ++t) {
      for (uint32_t b = 0; b < blocks_; b += 8) {
        const size_t to = size_t{t} * stride_ + b;
        prepare_sums<D>(x, size_t{first + t} * blocks_ + b, std::min(8u, blocks_ - b), low_ + to, high_ + (kHighs ? to : 0));
      }
    }
  }

  // The arrays are local, where the compiler knows that no store changes the codes: those of a block then stay in registers.
  void multiply_group(const std::byte* group, float* y, size_t y_stride) const {
    alignas(64) Partial partial;
    Decoded<D> column;
    uint32_t begin = 0;
    if (blocks_ < kBlockSums) std::memset(partial, 0, sizeof(partial));
    else for (; begin < kBlockSums; begin += D::blocks) multiply_column<Sums::kZero>(group, begin, column, partial);
    for (; begin < blocks_; begin += D::blocks) multiply_column<Sums::kSoFar>(group, begin, column, partial);
    for (uint32_t t = 0; t < tokens_; ++t) store_tree(partial[0][t], kTokenTile * kGroup, y + (first_ + t) * y_stride);
  }

 private:
  using Partial = float[kBlockSums][kTokenTile][kGroup];
  static constexpr SumUse kUse = sum_use<D>();
  static constexpr bool kHighs = kUse == SumUse::kStarts;
  static constexpr uint32_t padded(uint32_t blocks) { return static_cast<uint32_t>(align_up(blocks, 8)); }

  // The column that begins with block `begin`.
  template <Sums From>
  TIERPACK_INLINE void multiply_column(const std::byte* group, uint32_t begin, Decoded<D>& column, Partial& partial) const {
    constexpr uint32_t kAtOnce = tokens_at_once<D>();
    const std::byte* const packed = group + begin * (D::block_bytes * kGroup / D::blocks);
    column.load(packed);
    prefetch_column<D>(packed);
    for (uint32_t b = 0; b < D::blocks; ++b) {
      float(*const sums)[kGroup] = partial[(begin + b) % kBlockSums];
      const auto input = [&](uint32_t t) __attribute__((always_inline)) -> BlockInput {
        const size_t at = size_t{first_ + t} * blocks_ + begin + b;
        const size_t prepared = kUse == SumUse::kNone ? 0 : size_t{t} * stride_ + begin + b;
        return {x_.q + 32 * at, x_.scale + at, x_.sum + at, low_ + prepared, high_ + (kHighs ? prepared : 0)};
      };
      const auto code = [&](int h, int j) __attribute__((always_inline)) { return column.code[b][h][j]; };
      const auto magnitude = [&](int h, int j) __attribute__((always_inline)) {
        return column.magnitude[D::bias == kSigned ? b : 0][h][j];
      };
      uint32_t t = 0;
      for (; t + kAtOnce <= tokens_; t += kAtOnce) {
        BlockInput inputs[kAtOnce];
#pragma GCC unroll 4
        for (uint32_t i = 0; i < kAtOnce; ++i) inputs[i] = input(t + i);
        multiply<D, false, From, kAtOnce>(code, magnitude, column.factors[b], inputs, sums[t]);
      }
      for (; t < tokens_; ++t) {
        const BlockInput inputs[1] = {input(t)};
        multiply<D, false, From, 1>(code, magnitude, column.factors[b], inputs, sums[t]);
      }
    }
  }

  const ActivationView x_;
  const uint32_t first_, tokens_, blocks_, stride_;
  alignas(32) int32_t low_[kUse == SumUse::kNone ? 1 : kPreparedInts];
  alignas(32) int32_t high_[kHighs ? kPreparedInts : 1];
};

}  // namespace
}  // namespace tierpack::kernels

// Every arithmetic operation of the runtime, once. docs/arithmetic.md defines each result; `reference` is that text as
// plain C++ and every other implementation equals it bit for bit.
//
// An implementation is a KernelTable of function pointers, chosen once by CPUID. Functions are pure, use no hidden
// state, take no locks, and may run from any thread; parallelism is the caller's, by row, head or channel ranges, and
// cannot change a result, because one output element is always computed whole by one call.
//
// Shapes are written (rows, columns), row-major, columns contiguous. T = tokens, n = vector length. Blocks are 32
// elements. No allocation inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/dtype.h"
#include "runtime/kernels/kv_type.h"

namespace tierpack::kernels {

// A weight matrix as it lies in a record: (rows, cols). Quantised types are in row groups (formats/row_groups.h), plain numbers row by row.
//
// Plain numbers may have factors beside them, one for a block of scale_rows x scale_cols weights; blocks at the lower and
// right edge may be smaller. Block FP8 has blocks of 128 x 128, a scale for each output scale_rows 1 and scale_cols = cols, a scale
// for the tensor scale_rows = rows and scale_cols = cols.
//
// A quantised matrix may have one factor beside it, for all of it (NVFP4's second scale): it multiplies the results.
struct MatrixView {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
  uint32_t rows = 0;  // outputs
  uint32_t cols = 0;  // inputs
  const float* scales = nullptr;  // (ceil(rows / scale_rows), ceil(cols / scale_cols)); null: none
  uint32_t scale_rows = 0;
  uint32_t scale_cols = 0;  // a multiple of 32, or at least cols
};

// Whether products can read the scales of a matrix.
inline bool scales_fit(const MatrixView& w) {
  if (w.scales == nullptr) return true;
  if (traits(w.dtype).quantised) return w.scale_rows >= w.rows && w.scale_cols >= w.cols;
  return w.scale_rows > 0 && w.scale_cols > 0 && (w.scale_cols % 32 == 0 || w.scale_cols >= w.cols);
}
// The scales of one row, (ceil(cols / scale_cols)); null without scales.
inline const float* row_scales(const MatrixView& w, uint32_t row) {
  if (w.scales == nullptr) return nullptr;
  return w.scales + size_t{row / w.scale_rows} * (w.cols / w.scale_cols + (w.cols % w.scale_cols != 0));
}

// The two sums of an activation block in one integer.
constexpr int32_t pack_half_sums(int32_t first, int32_t second) {
  return static_cast<int32_t>((static_cast<uint32_t>(first) & 0xFFFFu) | static_cast<uint32_t>(second) << 16);
}
constexpr int32_t first_half_sum(int32_t packed) { return static_cast<int16_t>(packed & 0xFFFF); }
constexpr int32_t second_half_sum(int32_t packed) { return packed >> 16; }

// T activation vectors of length n in both forms that products need. The quantised form exists when n % 32 == 0: per
// block b of 32, q = round-half-even(x * (127 / amax)), scale = amax / 127, sum = the integer sums of the q of elements 0 .. 15 and
// 16 .. 31 as two int16, the first in the low half (at most 16 * 127 in size; the form that multiplies of 16-bit pairs read).
struct ActivationView {
  uint32_t tokens = 0;
  uint32_t n = 0;
  const float* x = nullptr;        // (T, n)
  const int8_t* q = nullptr;       // (T, n)
  const float* scale = nullptr;    // (T, n / 32)
  const int32_t* sum = nullptr;    // (T, n / 32)
};

// What a key or value cache holds for one head at one position: head_dim values as f32 or f16, or (kQ8, head_dim % 32 == 0)
// head_dim int8 codes and then an f32 scale for every 32 of them.
using tierpack::KvType;

// Bytes of that.
constexpr uint64_t kv_row_bytes(KvType type, uint32_t head_dim) {
  if (type == KvType::kQ8) return head_dim + head_dim / 32 * sizeof(float);
  return uint64_t{head_dim} * (type == KvType::kF32 ? sizeof(float) : sizeof(uint16_t));
}

// The cache of one KV head: row p, of position p, at keys + p * stride and values + p * stride.
struct KvView {
  KvType type = KvType::kF32;
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  size_t stride = 0;      // bytes
  uint32_t head_dim = 0;  // at most kAttentionDimMax
};

// One query head: sees the first `count` of the visible tokens.
struct AttentionQuery {
  const float* q = nullptr;  // (head_dim)
  float* out = nullptr;      // (head_dim)
  uint32_t count = 0;
};

struct KernelTable {
  const char* name;  // "reference", "avx2", "avx_vnni", "avx512", "avx512_vbmi"

  // x (n) -> q (n), scale (n/32), sum (n/32); n % 32 == 0. A block below 2^-100 becomes zeros; one with an infinity or a
  // NaN gets scale NaN, which every product with it inherits.
  void (*quantize)(const float* x, uint32_t n, int8_t* q, float* scale, int32_t* sum);

  // y[t * y_stride + r] = W row r . x_t for r in [row_begin, row_end), every token of x. Quantised weights use the
  // quantised activations (8 interleaved partial sums by block), and a scale multiplies the result; plain numbers use the f32 ones (32 by
  // element), with scales block by block. A range begins with a row group and ends with one or with the matrix.
  void (*matmul)(const MatrixView& w, uint32_t row_begin, uint32_t row_end, const ActivationView& x, float* y,
                 size_t y_stride);

  // Plain f32 dot product in the order of a floating-point matmul row.
  float (*dot)(const float* a, const float* b, uint32_t n);

  // out = x / sqrt(mean(x^2) + eps) * weight; weight may be null (all ones). out may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, uint32_t n, float* out);
  // out = x / sqrt(sum(x^2) + eps) * factor. out may be x.
  void (*l2_norm)(const float* x, float eps, float factor, uint32_t n, float* out);

  // Elementwise over n; out may be an input.
  void (*silu)(const float* x, uint32_t n, float* out);
  void (*sigmoid)(const float* x, uint32_t n, float* out);
  void (*softplus)(const float* x, uint32_t n, float* out);
  void (*exp)(const float* x, uint32_t n, float* out);
  void (*silu_mul)(const float* gate, const float* up, uint32_t n, float* out);        // silu(gate) * up
  void (*sigmoid_mul)(const float* gate, const float* x, uint32_t n, float* out);      // sigmoid(gate) * x
  void (*mul)(const float* a, const float* b, uint32_t n, float* out);
  void (*add)(const float* a, const float* b, uint32_t n, float* out);
  void (*scale)(const float* x, float factor, uint32_t n, float* out);
  void (*add_scaled)(const float* x, float factor, uint32_t n, float* out);            // out = fma(factor, x, out)

  // probabilities: max, exp, ascending sum in the order of `dot`, divide. out may be x.
  void (*softmax)(const float* x, uint32_t n, float* out);

  // In place NEOX rotation of the first 2 * pairs elements of one head: (i, i + pairs) with cos[i], sin[i].
  void (*rope)(float* head, const float* cos, const float* sin, uint32_t pairs);

  // Causal depthwise convolution of one token: out[c] = sum_k weight[c * kernel + k] * tap_k[c], k ascending by fma from
  // 0, where taps[k] points at that input vector (n channels); the last tap is the current token.
  void (*conv)(const float* const* taps, const float* weight, uint32_t kernel, uint32_t n, float* out);

  // One token of the gated delta rule for one V head. state (dv, dk): row j contiguous over the key index i.
  //   S *= decay; d_j = beta * (v_j - S_j . k); S_ji += d_j * k_i; out_j = S_j . q
  void (*delta_rule)(float* state, const float* q, const float* k, const float* v, float decay, float beta, uint32_t dk,
                     uint32_t dv, float* out);

  // Attention of n <= kAttentionQueries query heads over the cache of the KV head they share: softmax(scale * q.k) v, in
  // chunks of kAttentionChunk visible tokens whose partial results are merged in order. `visible`: ascending positions, as
  // many as the largest count; null means 0, 1, 2, ... One call reads every key and value once, whatever n is; a query's
  // result does not depend on the others.
  void (*attention)(const AttentionQuery* queries, uint32_t n, const KvView& cache, const uint32_t* visible, float scale);

  // Stores the n values of one head as a cache row of `type`.
  void (*store_kv)(const float* x, uint32_t n, KvType type, void* out);

  // Decodes one row of a matrix to f32 (exactly formats/dequant; scales beside the matrix are not applied).
  void (*decode_row)(DType dtype, const std::byte* row, uint32_t n, float* out);
};

inline constexpr uint32_t kAttentionChunk = 64;
inline constexpr uint32_t kAttentionQueries = 32;
inline constexpr uint32_t kAttentionDimMax = 1024;

// The definition.
const KernelTable& reference();
// The best table for this CPU.
const KernelTable& best();
// All tables this CPU can run, reference first (conformance tests iterate over it).
std::vector<const KernelTable*> available();
// By name, for `--isa`; throws kUsage with the available names.
const KernelTable& by_name(std::string_view name);

// Rotation tables, the same bits on every machine: angle = float(position) * inv_freq[i] in f32 with
// inv_freq[i] = f32(base^(-2i / rotary_dim)); cos and sin correctly rounded from double polynomials.
void rope_inv_freq(float base, uint32_t rotary_dim, float* inv_freq);
void rope_row(const float* inv_freq, uint32_t pairs, uint32_t position, float* cos, float* sin);

// Indices of the k largest of n values, largest first, ties to the lower index. scratch-free; k <= n.
void top_k(const float* values, uint32_t n, uint32_t k, uint32_t* indices);

}  // namespace tierpack::kernels

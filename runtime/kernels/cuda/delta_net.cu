// Gated delta net: convolution, unit lengths and gates of a chunk's tokens, then the recurrence over them.
#include "base/error.h"
#include "runtime/kernels/cuda/float.cuh"
#include "runtime/kernels/cuda/launch.cuh"
#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/cuda/rows.cuh"

namespace tierpack::kernels::cuda {
namespace {

constexpr unsigned kThreads = 128;
constexpr unsigned kWarps = kThreads / kWarp;

dim3 blocks_for(size_t count, size_t per_block) { return dim3(static_cast<unsigned>((count + per_block - 1) / per_block)); }

// A thread for a channel of kConvTokens tokens; with Taps known, it reads every input once.
constexpr uint32_t kConvTokens = 8;
template <unsigned Taps>
__global__ void conv_silu_kernel(const float* __restrict__ input, uint32_t tokens, uint32_t channels, const float* __restrict__ weight,
                                 float* __restrict__ mixed) {
  const uint32_t c = blockIdx.x * kThreads + threadIdx.x;
  if (c >= channels) return;
  const size_t begin = static_cast<size_t>(blockIdx.y) * kConvTokens;
  const float* from = input + begin * channels + c;
  float* to = mixed + begin * channels + c;
  float w[Taps];
  float tap[Taps];
#pragma unroll
  for (unsigned k = 0; k < Taps; ++k) w[k] = weight[static_cast<size_t>(c) * Taps + k];
#pragma unroll
  for (unsigned k = 0; k + 1 < Taps; ++k, from += channels) tap[k] = *from;
#pragma unroll
  for (uint32_t t = 0; t < kConvTokens; ++t, from += channels, to += channels) {
    if (begin + t >= tokens) return;
    tap[Taps - 1] = *from;
    float s = 0.0f;
#pragma unroll
    for (unsigned k = 0; k < Taps; ++k) s = __fmaf_rn(w[k], tap[k], s);
    *to = silu(s);
#pragma unroll
    for (unsigned k = 0; k + 1 < Taps; ++k) tap[k] = tap[k + 1];
  }
}

__global__ void conv_silu_any_kernel(const float* __restrict__ input, uint32_t taps, uint32_t channels, const float* __restrict__ weight,
                                     float* __restrict__ mixed) {
  const size_t t = blockIdx.x;
  const uint32_t c = blockIdx.y * kThreads + threadIdx.x;
  if (c >= channels) return;
  float s = 0.0f;
  for (uint32_t k = 0; k < taps; ++k) s = __fmaf_rn(weight[static_cast<size_t>(c) * taps + k], input[(t + k) * channels + c], s);
  mixed[t * channels + c] = silu(s);
}

// A warp for a head.
__global__ void unit_heads_kernel(float* mixed, uint32_t rows, size_t channels, uint32_t k_heads, uint32_t dim, float eps,
                                  float q_factor) {
  const uint32_t i = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (i >= rows) return;
  const uint32_t head = i % (2 * k_heads);
  float* const x = mixed + i / (2 * k_heads) * channels + static_cast<size_t>(head) * dim;
  ShortRow row;
  row.load(x, dim);
  const float r = 1.0f / sqrtf(row.squares() + eps);
  const float factor = head < k_heads ? q_factor : 1.0f;
  row.each(dim, [&](uint32_t e, float value) { x[e] = value * r * factor; });
}

__global__ void delta_gates_kernel(float* beta, float* decay, const float* dt_bias, const float* a, uint32_t count, uint32_t v_heads) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  const uint32_t head = i % v_heads;
  beta[i] = sigmoid(beta[i]);
  decay[i] = exponential(softplus(decay[i] + dt_bias[head]) * a[head]);
}

__global__ void gated_norm_kernel(float* o, const float* z, const float* weight, float eps, uint32_t dim, uint32_t rows) {
  const uint32_t i = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (i >= rows) return;
  float* const x = o + static_cast<size_t>(i) * dim;
  const float* const gate = z + static_cast<size_t>(i) * dim;
  ShortRow row;
  row.load(x, dim);
  const float r = rms_factor(row.squares(), dim, eps);
  row.each(dim, [&](uint32_t e, float value) { x[e] = sigmoid(gate[e]) * (value * r * weight[e]); });
}

// --- the recurrence ---
//
// A warp keeps kRows rows of a head's state in registers, element i of a row in lane i % 32, and goes through the tokens in order. The
// tokens' q, k and v come to shared memory kTile tokens at a time, the next tile while this one is computed. A token's S q and the next
// one's S k need the same state, so their sums are taken together.

constexpr uint32_t kRows = 4;
constexpr uint32_t kBlockRows = kRows * kWarps;
constexpr uint32_t kTile = 8;

// One step of docs/arithmetic.md's tree for two values at once: afterwards the lanes with bit `half` clear go on with that of `low`, the
// others with that of `high`.
__device__ __forceinline__ float fold(float low, float high, uint32_t half) {
  const bool upper = (threadIdx.x & half) != 0;
  const float given = upper ? low : high;
  const float kept = upper ? high : low;
  return kept + __shfl_xor_sync(kFullWarp, given, static_cast<int>(half));
}

// The trees of 2 * kRows values of a warp: lanes below 16 get that of `first`, the others that of `second`, for row row_of_lane().
__device__ __forceinline__ float warp_trees(const float (&first)[kRows], const float (&second)[kRows]) {
  float x[kRows];
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) x[r] = fold(first[r], second[r], 16);
  float s = fold(fold(x[0], x[1], 8), fold(x[2], x[3], 8), 4);
  s = s + __shfl_xor_sync(kFullWarp, s, 2);
  return s + __shfl_xor_sync(kFullWarp, s, 1);
}
__device__ __forceinline__ uint32_t row_of_lane(uint32_t lane) { return (lane >> 3 & 1) + (lane >> 2 & 1) * 2; }
__device__ __forceinline__ int lane_of_row(uint32_t r) { return static_cast<int>((r & 1) * 8 + (r >> 1) * 4); }

struct DeltaArgs {
  float* state;
  const float* mixed;
  size_t channels;
  const float* decay;
  const float* beta;
  uint32_t tokens, k_heads, v_heads, dim;
  float* out;
};

// A tile in shared memory: for each token q, k and the block's rows of v, then kTile decays and betas.
constexpr uint32_t token_floats(uint32_t dim) { return 2 * dim + kBlockRows; }
constexpr uint32_t tile_floats(uint32_t dim) { return kTile * token_floats(dim) + 2 * kTile; }

// N * 32 elements or, unless Whole, fewer.
template <uint32_t N, bool Whole>
__global__ void delta_rule_kernel(DeltaArgs args) {
  TIERPACK_DYNAMIC_SHARED(float, tiles);
  const uint32_t dim = Whole ? N * kWarp : args.dim;
  const uint32_t warp = threadIdx.x / kWarp;
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t head = blockIdx.y;
  const uint32_t block_row = blockIdx.x * kBlockRows;
  const uint32_t row = block_row + warp * kRows;  // dim is a multiple of kRows: all rows of a warp exist or none
  const bool active = row < dim;

  const float* const keys = args.mixed + static_cast<size_t>(head % args.k_heads) * dim;
  const float* const values = args.mixed + (2 * static_cast<size_t>(args.k_heads) + head) * dim + block_row;
  const uint32_t key_pieces = dim / 4;
  const uint32_t pieces = 2 * key_pieces + min(kBlockRows, dim - block_row) / 4;

  // Begins to copy the tile of tokens from `begin` on.
  const auto request = [&](uint32_t begin, uint32_t buffer) {
    for (uint32_t t = warp; t < kTile && begin + t < args.tokens; t += kWarps) {
      const uint32_t to = buffer * tile_floats(dim) + t * token_floats(dim);
      const size_t token = (begin + t) * args.channels;
      for (uint32_t piece = lane; piece < pieces; piece += kWarp) {
        const float* from = values + (piece - 2 * key_pieces) * 4;
        if (piece < 2 * key_pieces) from = keys + (piece < key_pieces ? 0 : static_cast<size_t>(args.k_heads - 1) * dim) + piece * 4;
        copy_async_16(tiles, to + piece * 4, from + token);
      }
    }
    copy_async_commit();
  };
  // Thread i brings the decay of token i, thread kTile + i its beta.
  const auto gate_of = [&](uint32_t begin) {
    const uint32_t t = begin + threadIdx.x % kTile;
    if (threadIdx.x >= 2 * kTile || t >= args.tokens) return 0.0f;
    return (threadIdx.x < kTile ? args.decay : args.beta)[static_cast<size_t>(t) * args.v_heads + head];
  };
  const auto store_gate = [&](float gate, uint32_t buffer) {
    if (threadIdx.x < 2 * kTile) tiles[buffer * tile_floats(dim) + kTile * token_floats(dim) + threadIdx.x] = gate;
  };
  const auto exists = [&](uint32_t n) { return Whole || lane + n * kWarp < dim; };

  request(0, 0);
  float gate = gate_of(0);
  float s[kRows][N] = {};
  float* const state = args.state + (static_cast<size_t>(head) * dim + row) * dim + lane;
  if (active) {
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) {
#pragma unroll
      for (uint32_t n = 0; n < N; ++n) {
        if (exists(n)) s[r][n] = state[r * dim + n * kWarp];
      }
    }
  }
  store_gate(gate, 0);

  float* out = args.out + static_cast<size_t>(head) * dim + row + row_of_lane(lane);
  const size_t out_stride = static_cast<size_t>(args.v_heads) * dim;
  const bool writes = lane >= 16 && lane % 4 == 0;
  float o[kRows] = {};  // of the token before, still to be summed over the lanes
  for (uint32_t begin = 0, buffer = 0; begin < args.tokens; begin += kTile, buffer ^= 1) {
    copy_async_wait<0>();
    __syncthreads();  // the tile is there, and the other buffer has been read
    const bool more = begin + kTile < args.tokens;
    if (more) {
      request(begin + kTile, buffer ^ 1);
      gate = gate_of(begin + kTile);
    }
    const uint32_t count = min(kTile, args.tokens - begin);
    const uint32_t gates = buffer * tile_floats(dim) + kTile * token_floats(dim);
    for (uint32_t t = 0; active && t < count; ++t) {
      const uint32_t at = buffer * tile_floats(dim) + t * token_floats(dim);
      float q[N];
      float k[N];
#pragma unroll
      for (uint32_t n = 0; n < N; ++n) {
        q[n] = exists(n) ? tiles[at + n * kWarp + lane] : 0.0f;
        k[n] = exists(n) ? tiles[at + dim + n * kWarp + lane] : 0.0f;
      }
      const float decay = tiles[gates + t];
      const float beta = tiles[gates + kTile + t];
      const float v = tiles[at + 2 * dim + warp * kRows + row_of_lane(lane)];
      float p[kRows];
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        p[r] = 0.0f;
#pragma unroll
        for (uint32_t n = 0; n < N; ++n) {
          s[r][n] = s[r][n] * decay;
          if (exists(n)) p[r] = __fmaf_rn(s[r][n], k[n], p[r]);
        }
      }
      const float total = warp_trees(p, o);
      if (writes && begin + t > 0) {
        *out = total;
        out += out_stride;
      }
      const float d = beta * (v - total);
#pragma unroll
      for (uint32_t r = 0; r < kRows; ++r) {
        const float factor = __shfl_sync(kFullWarp, d, lane_of_row(r));
        o[r] = 0.0f;
#pragma unroll
        for (uint32_t n = 0; n < N; ++n) {
          s[r][n] = __fmaf_rn(factor, k[n], s[r][n]);
          if (exists(n)) o[r] = __fmaf_rn(s[r][n], q[n], o[r]);
        }
      }
    }
    if (more) store_gate(gate, buffer ^ 1);
  }
  if (!active) return;
  const float total = warp_trees(o, o);
  if (writes) *out = total;
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
#pragma unroll
    for (uint32_t n = 0; n < N; ++n) {
      if (exists(n)) state[r * dim + n * kWarp] = s[r][n];
    }
  }
}

}  // namespace

void conv_silu(Stream& s, const float* input, uint32_t tokens, uint32_t taps, uint32_t channels, const float* weight, float* mixed) {
  if (tokens == 0 || channels == 0) return;
  const unsigned pieces = (channels + kThreads - 1) / kThreads;
  if (taps == 4) {
    launch(s, "conv_silu", dim3(pieces, (tokens + kConvTokens - 1) / kConvTokens), kThreads, 0, conv_silu_kernel<4>, input, tokens,
           channels, weight, mixed);
  } else {
    launch(s, "conv_silu", dim3(tokens, pieces), kThreads, 0, conv_silu_any_kernel, input, taps, channels, weight, mixed);
  }
}

void unit_heads(Stream& s, float* mixed, uint32_t tokens, size_t channels, uint32_t k_heads, uint32_t dim, float eps, float q_factor) {
  TIERPACK_CHECK(dim <= kShortRow);
  const uint32_t rows = tokens * 2 * k_heads;
  if (rows == 0) return;
  launch(s, "unit_heads", blocks_for(rows, kWarps), kThreads, 0, unit_heads_kernel, mixed, rows, channels, k_heads, dim, eps, q_factor);
}

void delta_gates(Stream& s, float* beta, float* decay, const float* dt_bias, const float* a, uint32_t tokens, uint32_t v_heads) {
  const uint32_t count = tokens * v_heads;
  if (count == 0) return;
  launch(s, "delta_gates", blocks_for(count, kThreads), kThreads, 0, delta_gates_kernel, beta, decay, dt_bias, a, count, v_heads);
}

void delta_rule(Stream& s, float* state, const float* mixed, size_t channels, const float* decay, const float* beta, uint32_t tokens,
                uint32_t k_heads, uint32_t v_heads, uint32_t dim, float* out) {
  TIERPACK_CHECK(dim > 0 && dim <= 256 && dim % kRows == 0 && in_fours(channels, {mixed}) && k_heads > 0);
  if (tokens == 0 || v_heads == 0) return;
  const auto kernel = dim == 64    ? delta_rule_kernel<2, true>
                      : dim == 128 ? delta_rule_kernel<4, true>
                      : dim == 256 ? delta_rule_kernel<8, true>
                      : dim < 128  ? delta_rule_kernel<4, false>
                                   : delta_rule_kernel<8, false>;
  launch(s, "delta_rule", dim3((dim + kBlockRows - 1) / kBlockRows, v_heads), kThreads, 2 * tile_floats(dim) * sizeof(float), kernel,
         DeltaArgs{state, mixed, channels, decay, beta, tokens, k_heads, v_heads, dim, out});
}

void gated_norm(Stream& s, float* o, const float* z, const float* weight, float eps, uint32_t dim, size_t rows) {
  TIERPACK_CHECK(dim <= kShortRow && rows <= INT32_MAX);
  if (rows == 0) return;
  launch(s, "gated_norm", blocks_for(rows, kWarps), kThreads, 0, gated_norm_kernel, o, z, weight, eps, dim, static_cast<uint32_t>(rows));
}

}  // namespace tierpack::kernels::cuda

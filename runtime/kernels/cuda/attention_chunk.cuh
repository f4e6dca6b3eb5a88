// One chunk of docs/arithmetic.md, section 10, for some query heads ("rows") that share a KV head: what attention.cu's kernels are made of.
//
// A block takes its rows through tiles of keys and then of values, which it copies as they are stored from the cache to a ring in shared
// memory, two tiles ahead. Scores: 8 lanes for a key, 8 keys and kRows rows for a warp at a time (dot_tile.cuh). Values: a thread has 4
// dimensions of kRows rows and goes through the chunk's tokens in order.
#pragma once

#include "runtime/kernels/cuda/dot_tile.cuh"
#include "runtime/kernels/cuda/float.cuh"
#include "runtime/kernels/cuda/operations.h"

namespace tierpack::kernels::cuda {

inline constexpr unsigned kAttentionThreads = 256;    // at most
inline constexpr unsigned kAttentionRowsMost = 16;    // of a block
inline constexpr unsigned kAttentionWarpsLeast = 4;
inline constexpr unsigned kRingTiles = 3;
inline constexpr unsigned kAttentionRowFloats = 8;  // of shared memory, beside the query and the scores: a multiple of 4
inline constexpr unsigned kScoreKeys = 2 * kDotGroups;  // of a warp at a time

// What the host works out once for all blocks.
struct AttentionShape {
  uint32_t group;          // query heads of a KV head
  uint32_t unit_rows;      // rows that may share a block: the group of one token with lists, of all tokens without
  uint32_t unit_blocks;    // blocks for them
  uint32_t block_rows;     // a multiple of kRows
  uint32_t score_stride;   // block_rows, or more: so that a row's scores lie in several banks
  uint32_t dim4;           // dim, rounded up to a multiple of 4
  uint32_t row_bytes;      // of the cache
  uint32_t tile_words;     // of a row in the ring
  uint32_t tile_shift;     // a tile has 1 << tile_shift tokens
  bool copy_16;            // cache rows are made of aligned 16 bytes
  bool vectors;            // so are those of `out`
  uint32_t chunks;         // in scratch, of each head of each token
};

// Shared memory of a block, in floats.
struct AttentionShared {
  SharedPointer<float> q;        // (block_rows, dim4)
  SharedPointer<float> p;        // (chunk, score_stride): scores, then weights
  SharedPointer<float> count;    // (block_rows), integers: tokens that the row sees
  SharedPointer<float> keep;     // (block_rows): factors of the earlier chunks and of this one
  SharedPointer<float> take;
  SharedPointer<float> largest;  // (block_rows): of the chunks so far
  SharedPointer<float> total;
  SharedPointer<float> ring;     // kRingTiles tiles of cache rows
};

__device__ __forceinline__ AttentionShared carve(SharedPointer<float> shared, const AttentionShape& shape) {
  AttentionShared s;
  s.q = shared;
  s.p = s.q + shape.block_rows * shape.dim4;
  s.count = s.p + shape.score_stride * kAttentionChunk;
  s.keep = s.count + shape.block_rows;
  s.take = s.keep + shape.block_rows;
  s.largest = s.take + shape.block_rows;
  s.total = s.largest + shape.block_rows;
  s.ring = s.count + shape.block_rows * kAttentionRowFloats;
  return s;
}
inline size_t shared_bytes_of(const AttentionShape& shape) {
  const size_t rows = size_t{shape.block_rows} * (shape.dim4 + kAttentionRowFloats) + size_t{shape.score_stride} * kAttentionChunk;
  return (rows + (size_t{kRingTiles} * shape.tile_words << shape.tile_shift)) * sizeof(float);
}

// The rows of a block.
struct AttentionRows {
  uint32_t kv_head;
  uint32_t unit;
  uint32_t first;  // row of the unit
  uint32_t count;  // of rows; the block's others repeat the last one and leave nothing behind
};
__device__ __forceinline__ uint32_t token_of(const AttentionArgs& a, const AttentionShape& shape, const AttentionRows& rows, uint32_t i) {
  return a.visible != nullptr ? rows.unit : (rows.first + min(i, rows.count - 1)) / shape.group;
}
// The query head of row i: token * heads + head.
__device__ __forceinline__ size_t head_of(const AttentionArgs& a, const AttentionShape& shape, const AttentionRows& rows, uint32_t i) {
  const uint32_t row = rows.first + min(i, rows.count - 1);
  const uint32_t token = a.visible != nullptr ? rows.unit : row / shape.group;
  const uint32_t head = a.visible != nullptr ? row : row - token * shape.group;
  return static_cast<size_t>(token) * a.heads + rows.kv_head * shape.group + head;
}
__device__ __forceinline__ uint32_t seen_by(const AttentionArgs& a, uint32_t token) {
  return a.visible != nullptr ? a.visible_count[token] : a.first + token + 1;
}
// How many of the chunk's tokens a row with `count` in all sees.
__device__ __forceinline__ uint32_t seen_in_chunk(uint32_t count, uint32_t begin) {
  return count <= begin ? 0 : min(count - begin, kAttentionChunk);
}

// Elements e .. e + 3 of a row in the ring.
template <KvType kType>
__device__ __forceinline__ Quad read_quad(SharedPointer<float> ring, uint32_t row, uint32_t e, uint32_t dim) {
  if constexpr (kType == KvType::kF32) {
    const float4 x = load_shared<float4>(ring, row + e);
    return {{x.x, x.y, x.z, x.w}};
  } else if constexpr (kType == KvType::kF16) {
    const uint2 x = load_shared<uint2>(ring, row + e / 2);
    return {{half_to_float(static_cast<uint16_t>(x.x)), half_to_float(static_cast<uint16_t>(x.x >> 16)),
             half_to_float(static_cast<uint16_t>(x.y)), half_to_float(static_cast<uint16_t>(x.y >> 16))}};
  } else {
    const uint32_t codes = __float_as_uint(ring[row + e / 4]) ^ 0x80808080u;  // code + 128
    const float scale = ring[row + dim / 4 + e / 32];
    Quad x;
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const uint32_t integer = __byte_perm(codes, 0x4B000000u, 0x7440u + i);  // 2^23 + code + 128
      x.v[i] = (__uint_as_float(integer) - 8388736.0f) * scale;
    }
    return x;
  }
}

// Word i of a cache row whose parts are not aligned to 16 bytes.
template <KvType kType>
__device__ __forceinline__ float read_word(const std::byte* row, uint32_t i, uint32_t dim) {
  if constexpr (kType == KvType::kF16) {
    const uint16_t* const halves = reinterpret_cast<const uint16_t*>(row);
    const uint32_t low = 2 * i < dim ? halves[2 * i] : 0u;
    const uint32_t high = 2 * i + 1 < dim ? halves[2 * i + 1] : 0u;
    return __uint_as_float(low | high << 16);
  } else if constexpr (kType == KvType::kF32) {
    return i < dim ? reinterpret_cast<const float*>(row)[i] : 0.0f;
  } else {
    return reinterpret_cast<const float*>(row)[i];
  }
}

// Copies the rows of tokens [base, base + tile) of a chunk to the ring: those below `tokens`. `visible`: of this chunk, or null.
template <KvType kType>
__device__ __forceinline__ void stage_tile(const AttentionShape& shape, uint32_t dim, const std::byte* cache, const uint32_t* visible,
                                           uint32_t begin, uint32_t base, uint32_t tokens, SharedPointer<float> tile) {
  const unsigned lane = threadIdx.x % kDotLanes;
  const uint32_t end = min(base + (1u << shape.tile_shift), tokens);
  const uint32_t words = kType == KvType::kF32 ? shape.dim4 : kType == KvType::kF16 ? shape.dim4 / 2 : shape.row_bytes / 4;
#pragma unroll 1
  for (uint32_t j = base + threadIdx.x / kDotLanes; j < end; j += blockDim.x / kDotLanes) {
    const uint32_t position = visible != nullptr ? visible[j] : begin + j;
    const std::byte* const from = cache + static_cast<size_t>(position) * shape.row_bytes;
    const uint32_t to = (j - base) * shape.tile_words;
    if (shape.copy_16) {
#pragma unroll 2
      for (uint32_t i = lane; i < shape.row_bytes / 16; i += kDotLanes) copy_async_16(tile, to + i * 4, from + i * 16);
    } else {
#pragma unroll 1
      for (uint32_t i = lane; i < words; i += kDotLanes) tile[to + i] = read_word<kType>(from, i, dim);
    }
  }
}

// p[base + j][row] = dot(q_row, key_j) * scale for the tile's keys j < keys.
template <KvType kType, unsigned kRows>
__device__ __forceinline__ void score_tile(const AttentionShape& shape, const AttentionShared& s, uint32_t dim, float scale,
                                           SharedPointer<float> tile, uint32_t base, uint32_t keys) {
  constexpr unsigned kPairs = 2 * kRows;
  const unsigned lane = threadIdx.x % kDotLanes;
  const unsigned key_group = threadIdx.x % kWarp / kDotLanes;
  const uint32_t row_tiles = shape.block_rows / kRows;
  const uint32_t items = (keys + kScoreKeys - 1) / kScoreKeys * row_tiles;
  for (uint32_t item = threadIdx.x / kWarp; item < items; item += blockDim.x / kWarp) {
    const uint32_t key = item / row_tiles * kScoreKeys + key_group;
    const uint32_t row = item % row_tiles * kRows;
    const uint32_t last = keys - 1;
    const uint32_t at[2] = {min(key, last) * shape.tile_words, min(key + kDotGroups, last) * shape.tile_words};
    Quad sums[kPairs] = {};
#pragma unroll 2
    for (uint32_t e = lane * 4; e < shape.dim4; e += kWarp) {
      const Quad k0 = read_quad<kType>(tile, at[0], e, dim);
      const Quad k1 = read_quad<kType>(tile, at[1], e, dim);
#pragma unroll
      for (unsigned r = 0; r < kRows; ++r) {
        const float4 x = load_shared<float4>(s.q, (row + r) * shape.dim4 + e);
        const Quad q = {{x.x, x.y, x.z, x.w}};
        multiply_add(sums[r], q, k0);
        multiply_add(sums[kRows + r], q, k1);
      }
    }
    const float score = add_quads<kPairs>(sums, lane) * scale;
    const uint32_t pair = lane * kPairs / kDotLanes;
    const uint32_t its_key = key + pair / kRows * kDotGroups;
    if (lane * kPairs % kDotLanes == 0 && its_key < keys) s.p[(base + its_key) * shape.score_stride + row + pair % kRows] = score;
  }
}

// m and l of a row, or m' and l'.
struct RowWeights {
  float largest;
  float total;
};

// Scores of one row -> weights. A whole warp; `tokens` > 0 of the chunk. Every lane gets m' and l'.
__device__ __forceinline__ RowWeights weigh_row(SharedPointer<float> p, uint32_t stride, uint32_t tokens) {
  const unsigned lane = threadIdx.x % kWarp;
  const float minus_infinity = __uint_as_float(0xFF800000u);
  const bool second = lane + kWarp < tokens;
  float a[2] = {minus_infinity, minus_infinity};
  if (lane < tokens) a[0] = p[lane * stride];
  if (second) a[1] = p[(lane + kWarp) * stride];
  float largest = minus_infinity;
  largest = a[0] > largest ? a[0] : largest;
  largest = a[1] > largest ? a[1] : largest;
#pragma unroll
  for (int half = 16; half > 0; half /= 2) {
    const float other = __shfl_xor_sync(kFullWarp, largest, half);
    largest = other > largest ? other : largest;
  }
  float sum = 0.0f;
  if (lane < tokens) {
    const float weight = exponential(a[0] - largest);
    p[lane * stride] = weight;
    sum = sum + weight;
  }
  if (second) {
    const float weight = exponential(a[1] - largest);
    p[(lane + kWarp) * stride] = weight;
    sum = sum + weight;
  }
  return {largest, warp_tree(sum)};
}

// Weights of a token for kRows rows.
template <unsigned kRows>
__device__ __forceinline__ void read_weights(SharedPointer<float> p, uint32_t at, float (&weights)[kRows]) {
  if constexpr (kRows == 4) {
    const float4 x = load_shared<float4>(p, at);
    weights[0] = x.x;
    weights[1] = x.y;
    weights[2] = x.z;
    weights[3] = x.w;
  } else if constexpr (kRows == 2) {
    const float2 x = load_shared<float2>(p, at);
    weights[0] = x.x;
    weights[1] = x.y;
  } else {
    weights[0] = p[at];
  }
}

// sums[r] := fma(p_j, value_j[e ..], sums[r]) for the tile's tokens that row r sees, in order. seen: of the chunk.
template <KvType kType, unsigned kRows>
__device__ __forceinline__ void add_values(const AttentionShape& shape, const AttentionShared& s, uint32_t dim, SharedPointer<float> tile,
                                           uint32_t base, const uint32_t (&seen)[kRows], uint32_t row, uint32_t e, Quad (&sums)[kRows]) {
  [[maybe_unused]] constexpr int kUnroll = kType == KvType::kF16 ? 4 : 2;  // as far as the registers reach
  uint32_t fewest = seen[0];
  uint32_t most = seen[0];
#pragma unroll
  for (unsigned r = 1; r < kRows; ++r) {
    fewest = min(fewest, seen[r]);
    most = max(most, seen[r]);
  }
  const uint32_t end = min(base + (1u << shape.tile_shift), most);
  const uint32_t by_all = min(end, fewest);
  uint32_t j = base;
  uint32_t at = 0;
#pragma unroll(kUnroll)
  for (; j < by_all; ++j, at += shape.tile_words) {
    const Quad value = read_quad<kType>(tile, at, e, dim);
    float weights[kRows];
    read_weights<kRows>(s.p, j * shape.score_stride + row, weights);
#pragma unroll
    for (unsigned r = 0; r < kRows; ++r) {
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) sums[r].v[i] = __fmaf_rn(weights[r], value.v[i], sums[r].v[i]);
    }
  }
#pragma unroll 1
  for (; j < end; ++j, at += shape.tile_words) {
    const Quad value = read_quad<kType>(tile, at, e, dim);
    float weights[kRows];
    read_weights<kRows>(s.p, j * shape.score_stride + row, weights);
#pragma unroll
    for (unsigned r = 0; r < kRows; ++r) {
      if (j >= seen[r]) continue;
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) sums[r].v[i] = __fmaf_rn(weights[r], value.v[i], sums[r].v[i]);
    }
  }
}

}  // namespace tierpack::kernels::cuda

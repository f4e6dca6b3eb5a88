// Attention over the cache (docs/arithmetic.md, section 10): attention_chunk.cuh has the steps. Two ways to the same bits: every chunk
// by a block of its own, merged in order by a second kernel; or all chunks by one block, merged as it goes.
#include "base/error.h"
#include "runtime/kernels/cuda/attention_chunk.cuh"
#include "runtime/kernels/cuda/launch.cuh"

namespace tierpack::kernels::cuda {
namespace {

constexpr uint32_t kTileBytes = 9472;         // of a tile, at most, unless one token has more
constexpr uint32_t kBlockElements = 4096;     // rows times dim of a block
constexpr uint32_t kFewBlocks = 128;          // below which the context is split
constexpr unsigned kMergeThreads = 128;
constexpr uint32_t kScratchExtra = 4;         // floats of a chunk behind its dim4 sums: largest, total

__host__ __device__ __forceinline__ uint32_t padded(uint32_t dim) { return (dim + 3) / 4 * 4; }

__device__ __forceinline__ Quad load_quad(const float* x, uint32_t left, bool vector) {
  if (vector) {
    const float4 v = *reinterpret_cast<const float4*>(x);
    return {{v.x, v.y, v.z, v.w}};
  }
  Quad q;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) q.v[i] = i < left ? x[i] : 0.0f;
  return q;
}
__device__ __forceinline__ void store_quad(float* x, const Quad& q, uint32_t left, bool vector) {
  if (vector) {
    *reinterpret_cast<float4*>(x) = make_float4(q.v[0], q.v[1], q.v[2], q.v[3]);
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    if (i < left) x[i] = q.v[i];
  }
}

// What the chunks of a query head leave behind: dim4 sums, largest, total.
__device__ __forceinline__ float* chunk_scratch(const AttentionArgs& a, const AttentionShape& shape, size_t head, uint32_t chunk) {
  return a.scratch + (head * shape.chunks + chunk) * (shape.dim4 + kScratchExtra);
}

// Step 2 for the largest and the total of a row, and the factors for its sums: a whole warp.
__device__ __forceinline__ void merge_row(const AttentionShared& s, uint32_t row, bool first, const RowWeights& chunk) {
  RowWeights merged = chunk;
  float keep = 0.0f;
  float take = 0.0f;
  if (!first) {
    const float largest = s.largest[row];
    const float total = s.total[row];
    merged.largest = chunk.largest > largest ? chunk.largest : largest;
    keep = exponential(largest - merged.largest);
    take = exponential(chunk.largest - merged.largest);
    merged.total = __fmaf_rn(chunk.total, take, total * keep);
  }
  __syncwarp();
  if (threadIdx.x % kWarp == 0) {
    s.keep[row] = keep;
    s.take[row] = take;
    s.largest[row] = merged.largest;
    s.total[row] = merged.total;
  }
}

// Step 3 for a thread's dimensions of kRows rows, and the gate.
template <unsigned kRows>
__device__ __forceinline__ void finish_rows(const AttentionArgs& a, const AttentionShape& shape, const AttentionShared& s,
                                            const AttentionRows& rows, uint32_t row, uint32_t e) {
#pragma unroll
  for (unsigned r = 0; r < kRows; ++r) {
    if (row + r >= rows.count) continue;
    const size_t head = head_of(a, shape, rows, row + r);
    float* const out = a.out + head * a.dim + e;
    Quad result = {};
    if (__float_as_uint(s.count[row + r]) > 0) {
      result = load_quad(out, a.dim - e, shape.vectors);
      const float total = s.total[row + r];
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) result.v[i] = result.v[i] / total;
    }
    if (a.gate != nullptr) {
      const float* const gate = a.gate + head * a.q_stride + e;
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        if (e + i < a.dim) result.v[i] = sigmoid(gate[i]) * result.v[i];
      }
    }
    store_quad(out, result, a.dim - e, shape.vectors);
  }
}

// Grid: split (chunks, KV heads, blocks of rows), in order (blocks of rows, KV heads).
template <KvType kType, unsigned kRows, bool kSplit>
__global__ void __launch_bounds__(kAttentionThreads, 2) attention_kernel(AttentionArgs a, AttentionShape shape) {
  TIERPACK_DYNAMIC_SHARED(float, shared);
  const AttentionShared s = carve(shared, shape);
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned warps = blockDim.x / kWarp;

  // The last rows see most and come first.
  const uint32_t piece = kSplit ? blockIdx.z : gridDim.x - 1 - blockIdx.x;
  AttentionRows rows;
  rows.kv_head = blockIdx.y;
  rows.unit = piece / shape.unit_blocks;
  rows.first = piece % shape.unit_blocks * shape.block_rows;
  rows.count = min(shape.block_rows, shape.unit_rows - rows.first);
  const uint32_t most = seen_by(a, token_of(a, shape, rows, rows.count - 1));
  const uint32_t first_chunk = kSplit ? blockIdx.x : 0;
  const uint32_t end_chunk = (most + kAttentionChunk - 1) / kAttentionChunk;
  if (kSplit && first_chunk >= end_chunk) return;

  // A step is a tile: those of the keys of a chunk, then of its values, then the next chunk.
  const uint32_t tiles_shift = 6 - shape.tile_shift;
  static_assert(kAttentionChunk == 1u << 6);
  const uint32_t tiles = 1u << tiles_shift;
  const uint32_t steps = ((kSplit ? 1 : end_chunk) * 2) << tiles_shift;
  const uint32_t tile_floats = shape.tile_words << shape.tile_shift;
  const size_t head_bytes = static_cast<size_t>(a.capacity) * shape.row_bytes;
  const std::byte* const keys = a.keys + rows.kv_head * head_bytes;
  const std::byte* const values = a.values + rows.kv_head * head_bytes;
  const uint32_t* const visible = a.visible != nullptr ? a.visible + rows.unit * a.visible_stride : nullptr;
  const auto stage = [&](uint32_t step) {
    if (step < steps) {
      const uint32_t begin = (first_chunk + (step >> (tiles_shift + 1))) * kAttentionChunk;
      const uint32_t base = (step & (tiles - 1)) << shape.tile_shift;
      const bool of_values = (step >> tiles_shift & 1) != 0;
      stage_tile<kType>(shape, a.dim, of_values ? values : keys, visible != nullptr ? visible + begin : nullptr, begin, base,
                        min(most - begin, kAttentionChunk), s.ring + step % kRingTiles * tile_floats);
    }
    copy_async_commit();
  };
  stage(0);
  stage(1);

  for (uint32_t i = warp; i < shape.block_rows; i += warps) {
    const float* const q = a.q + head_of(a, shape, rows, i) * a.q_stride;
    for (uint32_t d = lane; d < shape.dim4; d += kWarp) s.q[i * shape.dim4 + d] = d < a.dim ? q[d] : 0.0f;
    if (lane == 0) s.count[i] = __uint_as_float(seen_by(a, token_of(a, shape, rows, i)));
  }

  // A thread's share of the values: 4 dimensions of kRows rows.
  const uint32_t quads = shape.dim4 / 4;
  const uint32_t row = threadIdx.x / quads * kRows;
  const uint32_t e = threadIdx.x % quads * 4;
  const bool has_values = row < shape.block_rows;
  uint32_t step = 0;
  const auto next_tile = [&] {
    copy_async_wait<1>();
    __syncthreads();
    stage(step + 2);
    return s.ring + step++ % kRingTiles * tile_floats;
  };

  const uint32_t tile_tokens = 1u << shape.tile_shift;
  for (uint32_t begin = first_chunk * kAttentionChunk; step < steps; begin += kAttentionChunk) {
    const uint32_t tokens = min(most - begin, kAttentionChunk);
    for (uint32_t base = 0; base < kAttentionChunk; base += tile_tokens) {
      const SharedPointer<float> tile = next_tile();
      if (base < tokens) score_tile<kType, kRows>(shape, s, a.dim, a.scale, tile, base, min(tile_tokens, tokens - base));
    }
    __syncthreads();
    for (uint32_t its = warp; its < rows.count; its += warps) {
      const uint32_t seen = seen_in_chunk(__float_as_uint(s.count[its]), begin);
      if (seen == 0) continue;
      const RowWeights chunk = weigh_row(s.p + its, shape.score_stride, seen);
      if constexpr (kSplit) {
        if (lane == 0) {
          float* const extra = chunk_scratch(a, shape, head_of(a, shape, rows, its), first_chunk) + shape.dim4;
          extra[0] = chunk.largest;
          extra[1] = chunk.total;
        }
      } else {
        merge_row(s, its, begin == 0, chunk);
      }
    }

    Quad sums[kRows] = {};
    uint32_t seen[kRows] = {};
    if (has_values) {
#pragma unroll
      for (unsigned r = 0; r < kRows; ++r) seen[r] = seen_in_chunk(__float_as_uint(s.count[row + r]), begin);
    }
    for (uint32_t base = 0; base < kAttentionChunk; base += tile_tokens) {
      const SharedPointer<float> tile = next_tile();
      if (has_values) add_values<kType, kRows>(shape, s, a.dim, tile, base, seen, row, e, sums);
    }
    if (!has_values) continue;
#pragma unroll
    for (unsigned r = 0; r < kRows; ++r) {
      if (row + r >= rows.count || seen[r] == 0) continue;
      const size_t head = head_of(a, shape, rows, row + r);
      if constexpr (kSplit) {
        store_quad(chunk_scratch(a, shape, head, first_chunk) + e, sums[r], 4, true);
      } else {
        float* const out = a.out + head * a.dim + e;
        if (begin > 0) {
          const Quad so_far = load_quad(out, a.dim - e, shape.vectors);
          const float keep = s.keep[row + r];
          const float take = s.take[row + r];
#pragma unroll
          for (unsigned i = 0; i < 4; ++i) sums[r].v[i] = __fmaf_rn(sums[r].v[i], take, so_far.v[i] * keep);
        }
        store_quad(out, sums[r], a.dim - e, shape.vectors);
      }
    }
  }

  if constexpr (!kSplit) {
    if (steps == 0) __syncthreads();  // else the counts are there for all
    if (!has_values) return;
    finish_rows<kRows>(a, shape, s, rows, row, e);
  }
}

// Step 2 of section 10 for one query head of one token (blockIdx.x) and some dimensions, a thread each.
__global__ void __launch_bounds__(kMergeThreads) merge_chunks_kernel(AttentionArgs a, AttentionShape shape) {
  TIERPACK_SHARED(float, keep, kMergeThreads);
  TIERPACK_SHARED(float, take, kMergeThreads);
  TIERPACK_SHARED(float, totals, kMergeThreads);
  TIERPACK_SHARED(float, largest_of_warps, kMergeThreads / kWarp);
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const size_t head = blockIdx.x;
  const uint32_t d = blockIdx.y * kMergeThreads + threadIdx.x;
  const uint32_t seen = seen_by(a, blockIdx.x / a.heads);
  const uint32_t chunks = (seen + kAttentionChunk - 1) / kAttentionChunk;
  const uint32_t stride = shape.dim4 + kScratchExtra;
  const float* const scratch = chunk_scratch(a, shape, head, 0);
  const float minus_infinity = __uint_as_float(0xFF800000u);

  float before = minus_infinity;  // the largest of all chunks before the batch
  float total = 0.0f;
  float sum = 0.0f;
  for (uint32_t batch = 0; batch < chunks; batch += kMergeThreads) {
    // The running maximum is a prefix maximum: the factors of all chunks at once.
    const bool has_chunk = batch + threadIdx.x < chunks;
    const float* const extra = scratch + static_cast<size_t>(batch + threadIdx.x) * stride + shape.dim4;
    const float own = has_chunk ? extra[0] : minus_infinity;
    float merged = own;
#pragma unroll
    for (unsigned step = 1; step < kWarp; step *= 2) {
      const float other = __shfl_up_sync(kFullWarp, merged, step);
      if (lane >= step) merged = merged > other ? merged : other;
    }
    if (lane == kWarp - 1) largest_of_warps[warp] = merged;
    __syncthreads();
    float earlier = before;
    for (unsigned w = 0; w < kMergeThreads / kWarp; ++w) {
      const float other = largest_of_warps[w];
      if (w < warp) earlier = other > earlier ? other : earlier;
      before = other > before ? other : before;
    }
    const float neighbour = __shfl_up_sync(kFullWarp, merged, 1);
    const float previous = lane > 0 && neighbour > earlier ? neighbour : earlier;
    merged = merged > earlier ? merged : earlier;
    keep[threadIdx.x] = exponential(previous - merged);
    take[threadIdx.x] = exponential(own - merged);
    totals[threadIdx.x] = has_chunk ? extra[1] : 0.0f;
    __syncthreads();
    const uint32_t end = min(chunks - batch, kMergeThreads);
    const float* column = scratch + static_cast<size_t>(batch) * stride + min(d, shape.dim4 - 1);
#pragma unroll 8
    for (uint32_t c = 0; c < end; ++c) {
      const float weighted = column[static_cast<size_t>(c) * stride];
      const float chunk_total = totals[c];
      if (batch + c == 0) {
        sum = weighted;
        total = chunk_total;
      } else {
        sum = __fmaf_rn(weighted, take[c], sum * keep[c]);
        total = __fmaf_rn(chunk_total, take[c], total * keep[c]);
      }
    }
    __syncthreads();
  }
  if (d >= a.dim) return;
  float result = chunks > 0 ? sum / total : 0.0f;
  if (a.gate != nullptr) result = sigmoid(a.gate[head * a.q_stride + d]) * result;
  a.out[head * a.dim + d] = result;
}

using Kernel = void (*)(AttentionArgs, AttentionShape);

template <KvType kType, unsigned kRows>
Kernel kernel_of(bool split) {
  return split ? attention_kernel<kType, kRows, true> : attention_kernel<kType, kRows, false>;
}
template <KvType kType>
Kernel kernel_of(uint32_t rows, bool split) {
  return rows == 4 ? kernel_of<kType, 4>(split) : rows == 2 ? kernel_of<kType, 2>(split) : kernel_of<kType, 1>(split);
}

// Bytes of a cache row in the ring: so that the 4 keys that a warp reads at a time lie in different banks.
uint32_t tile_row_bytes(KvType type, uint32_t dim) {
  const auto bytes = static_cast<uint32_t>(kv_row_bytes(type, type == KvType::kQ8 ? dim : padded(dim)));
  const uint32_t whole = (bytes + 15) / 16 * 16;
  if (type == KvType::kF32) return whole;
  const uint32_t offset = type == KvType::kF16 ? 64 : 32;
  return whole + (offset + 128 - whole % 128) % 128;
}

bool aligned_16(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

}  // namespace

size_t attention_scratch_bytes(uint32_t heads, uint32_t dim, uint32_t context) {
  const size_t chunks = (size_t{context} + kAttentionChunk - 1) / kAttentionChunk;
  return heads * chunks * (padded(dim) + kScratchExtra) * sizeof(float);
}

void attention(Stream& s, const AttentionArgs& args) {
  if (args.tokens == 0) return;
  TIERPACK_CHECK(args.dim > 0 && args.dim <= kAttentionDimMax && args.kv_heads > 0 && args.heads % args.kv_heads == 0);
  TIERPACK_CHECK(args.type != KvType::kQ8 || args.dim % 32 == 0);
  AttentionShape shape{};
  shape.group = args.heads / args.kv_heads;
  const bool listed = args.visible != nullptr;
  const uint32_t units = listed ? args.tokens : 1;
  shape.unit_rows = listed ? shape.group : args.tokens * shape.group;
  shape.dim4 = padded(args.dim);
  shape.row_bytes = static_cast<uint32_t>(kv_row_bytes(args.type, args.dim));
  const uint32_t row_bytes = tile_row_bytes(args.type, args.dim);
  shape.tile_words = row_bytes / 4;
  shape.tile_shift = 6;
  while (shape.tile_shift > 0 && row_bytes << shape.tile_shift > kTileBytes) --shape.tile_shift;
  shape.copy_16 = shape.row_bytes % 16 == 0 && aligned_16(args.keys) && aligned_16(args.values);
  shape.vectors = args.dim % 4 == 0 && aligned_16(args.out);

  const uint32_t rows = shape.unit_rows > 2 ? 4 : shape.unit_rows;
  const uint32_t quads = shape.dim4 / 4;
  const uint32_t row_tiles = min(min(kBlockElements / shape.dim4, kAttentionRowsMost) / rows, (shape.unit_rows + rows - 1) / rows);
  shape.block_rows = row_tiles * rows;
  shape.score_stride = shape.block_rows % 8 == 0 ? shape.block_rows + 4 : shape.block_rows;
  shape.unit_blocks = (shape.unit_rows + shape.block_rows - 1) / shape.block_rows;
  const uint32_t threads = max((row_tiles * quads + kWarp - 1) / kWarp * kWarp, kAttentionWarpsLeast * kWarp);
  TIERPACK_CHECK(row_tiles > 0 && threads <= kAttentionThreads);

  const uint32_t pieces = units * shape.unit_blocks;
  const uint32_t most = listed ? args.visible_most : args.first + args.tokens;
  shape.chunks = (most + kAttentionChunk - 1) / kAttentionChunk;
  const bool split = shape.chunks > 1 && size_t{pieces} * args.kv_heads < kFewBlocks &&
                     args.scratch_bytes >= args.tokens * attention_scratch_bytes(args.heads, args.dim, most) && aligned_16(args.scratch);

  const Kernel kernel = args.type == KvType::kF32   ? kernel_of<KvType::kF32>(rows, split)
                        : args.type == KvType::kF16 ? kernel_of<KvType::kF16>(rows, split)
                                                    : kernel_of<KvType::kQ8>(rows, split);
  const size_t shared_bytes = shared_bytes_of(shape);
  if (!split) {
    launch(s, "attention", dim3(pieces, args.kv_heads), threads, shared_bytes, kernel, args, shape);
    return;
  }
  launch(s, "attention of chunks", dim3(shape.chunks, args.kv_heads, pieces), threads, shared_bytes, kernel, args, shape);
  const dim3 grid(args.tokens * args.heads, (args.dim + kMergeThreads - 1) / kMergeThreads);
  launch(s, "merge of chunks", grid, kMergeThreads, 0, merge_chunks_kernel, args, shape);
}

}  // namespace tierpack::kernels::cuda

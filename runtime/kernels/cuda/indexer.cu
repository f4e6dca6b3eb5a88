// The indexer of sparse attention: keys of blocks, scores of queries over them, and the choice of blocks (docs/arithmetic.md, sections 11
// and 13).
#include "base/error.h"
#include "runtime/kernels/cuda/dot_tile.cuh"
#include "runtime/kernels/cuda/launch.cuh"
#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/cuda/radix_select.cuh"

namespace tierpack::kernels::cuda {
namespace {

// --- keys: a warp each ---

constexpr unsigned kKeysPerBlock = 4;

__global__ void __launch_bounds__(kKeysPerBlock * kWarp)
    index_keys_kernel(const float* raw, uint32_t blocks, uint32_t ratio, uint32_t dim, float share, const float* weight, float eps,
                      const float* cos, const float* sin, uint32_t pairs, float* keys) {
  TIERPACK_DYNAMIC_SHARED(float, shared);
  const unsigned lane = threadIdx.x % kWarp;
  const uint32_t block = blockIdx.x * kKeysPerBlock + threadIdx.x / kWarp;
  if (block >= blocks) return;
  const SharedPointer<float> key = shared + threadIdx.x / kWarp * dim;
  const float* const first = raw + static_cast<size_t>(block) * ratio * dim;
  float square = 0.0f;
  for (uint32_t d = lane; d < dim; d += kWarp) {
    float sum = first[d];
#pragma unroll 8
    for (uint32_t i = 1; i < ratio; ++i) sum = sum + first[static_cast<size_t>(i) * dim + d];
    const float mean = sum * share;
    key[d] = mean;
    square = __fmaf_rn(mean, mean, square);
  }
  const float r = 1.0f / __fsqrt_rn(warp_tree(square) / static_cast<float>(dim) + eps);
  for (uint32_t d = lane; d < dim; d += kWarp) key[d] = (key[d] * r) * weight[d];
  __syncwarp();
  float* const out = keys + static_cast<size_t>(block) * dim;
  for (uint32_t d = lane; d < dim; d += kWarp) {
    const bool second = d >= pairs;
    if (d >= 2 * pairs) {
      out[d] = key[d];
      continue;
    }
    const uint32_t pair = second ? d - pairs : d;
    const float a = key[pair];
    const float b = key[pair + pairs];
    const float c = cos[static_cast<size_t>(block) * pairs + pair];
    const float s = sin[static_cast<size_t>(block) * pairs + pair];
    out[d] = second ? __fmaf_rn(a, s, b * c) : __fmaf_rn(a, c, -(b * s));
  }
}

// --- scores: 8 keys and 4 heads of a query for a warp at a time (dot_tile.cuh) ---

constexpr unsigned kScoreWarps = 8;
constexpr unsigned kKeysPerWarp = 2 * kDotGroups;
constexpr unsigned kScoreHeads = 4;

// 4 elements of a row of dim.
template <bool kAligned>
__device__ __forceinline__ Quad load_elements(const float* x, uint32_t e, uint32_t dim) {
  if constexpr (kAligned) {
    const float4 v = *reinterpret_cast<const float4*>(x + e);
    return {{v.x, v.y, v.z, v.w}};
  } else {
    Quad q;
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) q.v[i] = e + i < dim ? x[e + i] : 0.0f;
    return q;
  }
}

// Grid: keys, queries.
template <bool kAligned>
__global__ void __launch_bounds__(kScoreWarps* kWarp)
    index_scores_kernel(const float* q, uint32_t heads, uint32_t dim, uint32_t dim4, const float* keys, uint32_t blocks, float* scores) {
  TIERPACK_DYNAMIC_SHARED(float, query);  // (heads rounded up to kScoreHeads, dim4)
  q += static_cast<size_t>(blockIdx.y) * heads * dim;
  const uint32_t padded_heads = (heads + kScoreHeads - 1) / kScoreHeads * kScoreHeads;
  for (uint32_t h = threadIdx.x / kWarp; h < padded_heads; h += kScoreWarps) {
    for (uint32_t d = threadIdx.x % kWarp; d < dim4; d += kWarp) {
      query[h * dim4 + d] = h < heads && d < dim ? q[static_cast<size_t>(h) * dim + d] : 0.0f;
    }
  }
  __syncthreads();
  const unsigned lane = threadIdx.x % kDotLanes;
  const unsigned warp_lane = threadIdx.x % kWarp;
  const uint32_t first = (blockIdx.x * kScoreWarps + threadIdx.x / kWarp) * kKeysPerWarp;
  if (first >= blocks) return;
  const uint32_t key = first + warp_lane / kDotLanes;
  const float* const k0 = keys + static_cast<size_t>(min(key, blocks - 1)) * dim;
  const float* const k1 = keys + static_cast<size_t>(min(key + kDotGroups, blocks - 1)) * dim;
  float score = 0.0f;
  for (uint32_t h = 0; h < heads; h += kScoreHeads) {
    Quad sums[2 * kScoreHeads] = {};
    for (uint32_t e = lane * 4; e < dim4; e += kWarp) {
      const Quad a = load_elements<kAligned>(k0, e, dim);
      const Quad b = load_elements<kAligned>(k1, e, dim);
#pragma unroll
      for (unsigned i = 0; i < kScoreHeads; ++i) {
        const float4 x = load_shared<float4>(query, (h + i) * dim4 + e);
        const Quad head = {{x.x, x.y, x.z, x.w}};
        multiply_add(sums[i], a, head);
        multiply_add(sums[kScoreHeads + i], b, head);
      }
    }
    // Lane c has key c / 4, head c % 4; the lanes of a key add its heads in order.
    const float dot = add_quads<2 * kScoreHeads>(sums, lane);
    const float positive = dot < 0.0f ? 0.0f : dot;  // NaN stays
#pragma unroll
    for (unsigned i = 0; i < kScoreHeads; ++i) {
      const float its = __shfl_sync(kFullWarp, positive, static_cast<int>(warp_lane / kScoreHeads * kScoreHeads + i));
      if (h + i < heads) score = score + its;
    }
  }
  const uint32_t its_key = key + lane / kScoreHeads * kDotGroups;
  if (lane % kScoreHeads == 0 && its_key < blocks) scores[static_cast<size_t>(blockIdx.y) * blocks + its_key] = score;
}

// --- selection: a block for a query ---

__global__ void __launch_bounds__(kSelectThreadsMost)
    select_blocks_kernel(const float* scores, size_t stride, uint32_t first, uint32_t ratio, uint32_t keep, uint32_t* visible,
                         size_t visible_stride, uint32_t* count) {
  TIERPACK_SHARED(uint32_t, words, kSelectWords);
  const uint32_t query = blockIdx.x;
  const uint32_t seen = (first + query + 1) / ratio;
  const uint32_t chosen = keep * ratio;
  uint32_t* const out = visible + query * visible_stride;
  if (keep > 0) {
    const float* const x = scores + query * stride;
    const Selection selection = select_key(x, seen, keep, words);
    for_selected(x, seen, selection, words, [&](uint32_t rank, uint32_t block) { out[rank * ratio] = block * ratio; });
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < chosen; i += blockDim.x) {
      const uint32_t within = i % ratio;
      if (within > 0) out[i] = out[i - within] + within;
    }
  }
  const uint32_t tail = first + query + 1 - seen * ratio;
  for (uint32_t i = threadIdx.x; i < tail; i += blockDim.x) out[chosen + i] = seen * ratio + i;
  if (threadIdx.x == 0) count[query] = chosen + tail;
}

}  // namespace

void index_keys(Stream& s, const float* raw, uint32_t blocks, uint32_t ratio, uint32_t dim, const float* weight, float eps,
                const float* cos, const float* sin, uint32_t pairs, float* keys) {
  TIERPACK_CHECK(ratio > 0 && dim > 0 && dim <= kAttentionDimMax && 2 * pairs <= dim);
  if (blocks == 0) return;
  launch(s, "index_keys", dim3((blocks + kKeysPerBlock - 1) / kKeysPerBlock), kKeysPerBlock * kWarp, kKeysPerBlock * dim * sizeof(float),
         index_keys_kernel, raw, blocks, ratio, dim, 1.0f / static_cast<float>(ratio), weight, eps, cos, sin, pairs, keys);
}

void index_scores(Stream& s, const float* q, uint32_t queries, uint32_t heads, uint32_t dim, const float* keys, uint32_t blocks,
                  float* scores) {
  if (queries == 0 || blocks == 0) return;
  const uint32_t dim4 = (dim + 3) / 4 * 4;
  const size_t shared_bytes = size_t{heads + kScoreHeads - 1} / kScoreHeads * kScoreHeads * dim4 * sizeof(float);
  TIERPACK_CHECK(dim > 0 && queries <= UINT16_MAX && shared_bytes <= (64u << 10));  // what every GPU from sm_75 on has
  const dim3 grid((blocks + kScoreWarps * kKeysPerWarp - 1) / (kScoreWarps * kKeysPerWarp), queries);
  const bool aligned = dim % 4 == 0 && reinterpret_cast<uintptr_t>(keys) % 16 == 0;
  launch(s, "index_scores", grid, kScoreWarps * kWarp, shared_bytes, aligned ? index_scores_kernel<true> : index_scores_kernel<false>, q,
         heads, dim, dim4, keys, blocks, scores);
}

void select_blocks(Stream& s, const float* scores, size_t stride, uint32_t queries, uint32_t first, uint32_t ratio, uint32_t keep,
                   uint32_t* visible, size_t visible_stride, uint32_t* count) {
  TIERPACK_CHECK(ratio > 0 && keep <= (first + 1) / ratio);
  if (queries == 0) return;
  const uint32_t most = (first + queries) / ratio;
  const unsigned threads = most > 4 * kSelectBins ? kSelectThreadsMost : kSelectBins;
  launch(s, "select_blocks", dim3(queries), threads, 0, select_blocks_kernel, scores, stride, first, ratio, keep, visible,
         visible_stride, count);
}

}  // namespace tierpack::kernels::cuda

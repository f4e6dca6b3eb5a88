// Experts: which of them a token uses, what enters their last product, and the weighted sum of what they give.
#include "base/error.h"
#include "runtime/kernels/cuda/float.cuh"
#include "runtime/kernels/cuda/launch.cuh"
#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/cuda/quantize_block.cuh"
#include "runtime/kernels/cuda/rows.cuh"

namespace tierpack::kernels::cuda {
namespace {

constexpr unsigned kThreads = 128;
constexpr unsigned kWarps = kThreads / kWarp;
constexpr uint32_t kExpertsMax = 4096;

// Whether element i comes before element j in section 11's order.
__device__ __forceinline__ bool before(SharedPointer<float> p, uint32_t i, uint32_t j) {
  const float a = p[i];
  const float b = p[j];
  if (a > b) return true;
  if (a < b) return false;
  const bool a_nan = a != a;
  const bool b_nan = b != b;
  return a_nan != b_nan ? b_nan : i < j;
}

// How many of the `count` listed elements come before element i.
__device__ __forceinline__ uint32_t rank(SharedPointer<float> p, SharedPointer<uint16_t> list, uint32_t count, uint32_t i) {
  uint32_t rank = 0;
#pragma unroll 4
  for (uint32_t j = 0; j < count; ++j) rank += before(p, list[j], i) ? 1 : 0;
  return rank;
}

__device__ __forceinline__ float larger(float a, float b) { return b > a ? b : a; }

// A block for a token. The `used` best of its probabilities: the best of every lane's elements are ranked; what comes before the used-th
// of those, or is it, is a candidate, and the first `used` candidates are the answer.
__global__ void route_kernel(float* logits, uint32_t experts, uint32_t used, uint32_t* ids, float* weights) {
  TIERPACK_DYNAMIC_SHARED(float, p);
  TIERPACK_SHARED(float, largest_of_warp, kWarps);
  TIERPACK_SHARED(uint32_t, limit, 1);
  TIERPACK_SHARED(uint32_t, chosen, kWarp);
  TIERPACK_SHARED(uint16_t, best, kWarp);
  TIERPACK_SHARED(uint16_t, list, kExpertsMax);
  const size_t token = blockIdx.x;
  float* const row = logits + token * experts;
  const uint32_t lane = threadIdx.x % kWarp;

  // softmax
  float largest = -__int_as_float(0x7F800000);
  for (uint32_t e = threadIdx.x; e < experts; e += kThreads) {
    const float x = row[e];
    p[e] = x;
    largest = larger(largest, x);
  }
#pragma unroll
  for (int half = kWarp / 2; half > 0; half /= 2) largest = larger(largest, __shfl_xor_sync(kFullWarp, largest, half));
  if (lane == 0) largest_of_warp[threadIdx.x / kWarp] = largest;
  __syncthreads();
#pragma unroll
  for (uint32_t w = 0; w < kWarps; ++w) largest = larger(largest, largest_of_warp[w]);
  for (uint32_t e = threadIdx.x; e < experts; e += kThreads) p[e] = exponential(p[e] - largest);
  __syncthreads();
  const float total = warp_sum(p, experts);
  __syncthreads();
  for (uint32_t e = threadIdx.x; e < experts; e += kThreads) {
    const float x = p[e] / total;
    p[e] = x;
    row[e] = x;
  }
  __syncthreads();
  if (threadIdx.x >= kWarp) return;

  uint32_t mine = lane;
  for (uint32_t e = lane + kWarp; e < experts; e += kWarp) mine = before(p, e, mine) ? e : mine;
  best[lane] = static_cast<uint16_t>(mine);
  __syncwarp();
  const uint32_t lanes = min(experts, kWarp);
  if (lane < lanes && rank(p, best, lanes, mine) == used - 1) limit[0] = mine;
  __syncwarp();
  const uint32_t last = limit[0];
  uint32_t count = 0;
  for (uint32_t begin = 0; begin < experts; begin += kWarp) {
    const uint32_t e = begin + lane;
    const bool candidate = e < experts && !before(p, last, e);
    const uint32_t mask = __ballot_sync(kFullWarp, candidate);
    if (candidate) list[count + __popc(mask & ((1u << lane) - 1))] = static_cast<uint16_t>(e);
    count += __popc(mask);
  }
  __syncwarp();
  for (uint32_t c = lane; c < count; c += kWarp) {
    const uint32_t e = list[c];
    const uint32_t place = rank(p, list, count, e);
    if (place < used) chosen[place] = e;
  }
  __syncwarp();
  float sum = 0.0f;
  for (uint32_t i = 0; i < used; ++i) sum = sum + p[chosen[i]];
  if (lane >= used) return;
  const uint32_t expert = chosen[lane];
  ids[token * used + lane] = expert;
  weights[token * used + lane] = p[expert] / sum;
}

// A lane for four columns of a row, eight lanes for a block.
template <bool Fours, bool Quantize>
__global__ void expert_hidden_kernel(const float* __restrict__ gate, const float* __restrict__ up, uint32_t ff, uint32_t columns,
                                     float* __restrict__ x, int8_t* __restrict__ q, float* __restrict__ scale, int32_t* __restrict__ sum) {
  const size_t row = blockIdx.x;
  const uint32_t c = (blockIdx.y * kThreads + threadIdx.x) * 4;
  const size_t from = row * ff + c;
  const size_t to = row * columns + c;
  float hidden[4] = {};
  if constexpr (Fours) {
    if (c < ff) {
      const Floats<4> g = load_floats<4>(gate + from);
      const Floats<4> u = load_floats<4>(up + from);
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) hidden[j] = silu(g.v[j]) * u.v[j];
    }
    if (c < columns) store_floats<4>(x + to, {{hidden[0], hidden[1], hidden[2], hidden[3]}});
  } else {
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      if (c + j < ff) hidden[j] = silu(gate[from + j]) * up[from + j];
      if (c + j < columns) x[to + j] = hidden[j];
    }
  }
  if constexpr (Quantize) {
    const QuantizedFour block = quantize_block(hidden);
    if (c >= columns) return;
    *reinterpret_cast<uint32_t*>(q + to) = block.codes;
    if (threadIdx.x % kQuantizeLanes != 0) return;
    scale[to / 32] = block.scale;
    sum[to / 32] = block.sum;
  }
}

template <unsigned W>
__global__ void combine_experts_kernel(const float* __restrict__ out, const uint32_t* __restrict__ rows, const float* __restrict__ weights,
                                       uint32_t used, const float* __restrict__ shared, const float* __restrict__ shared_weight,
                                       uint32_t dim, float* __restrict__ y) {
  const size_t token = blockIdx.x;
  const uint32_t d = (blockIdx.y * kThreads + threadIdx.x) * W;
  if (d >= dim) return;
  const size_t pair = token * used;
  Floats<W> sum = {};
#pragma unroll 8
  for (uint32_t i = 0; i < used; ++i) {
    const size_t row = rows != nullptr ? rows[pair + i] : pair + i;
    const float weight = weights[pair + i];
    const Floats<W> value = load_floats<W>(out + row * dim + d);
#pragma unroll
    for (uint32_t j = 0; j < W; ++j) sum.v[j] = i == 0 ? value.v[j] * weight : __fmaf_rn(weight, value.v[j], sum.v[j]);
  }
  if (shared != nullptr) {
    const Floats<W> value = load_floats<W>(shared + token * dim + d);
    const float weight = sigmoid(shared_weight[token]);
#pragma unroll
    for (uint32_t j = 0; j < W; ++j) sum.v[j] = __fmaf_rn(weight, value.v[j], sum.v[j]);
  }
  store_floats<W>(y + token * dim + d, sum);
}

}  // namespace

void route(Stream& s, float* logits, uint32_t tokens, uint32_t experts, uint32_t used, uint32_t* ids, float* weights) {
  TIERPACK_CHECK(used > 0 && used <= kWarp && used <= experts && experts <= kExpertsMax);
  if (tokens == 0) return;
  launch(s, "route", dim3(tokens), kThreads, experts * sizeof(float), route_kernel, logits, experts, used, ids,
         weights);
}

void expert_hidden(Stream& s, const float* gate, const float* up, size_t rows, uint32_t ff, uint32_t columns, float* x, int8_t* q,
                   float* scale, int32_t* sum) {
  TIERPACK_CHECK(ff <= columns && rows <= INT32_MAX && (q == nullptr || columns % 32 == 0));
  if (rows == 0 || columns == 0) return;
  const bool fours = in_fours(ff, {gate, up, x}) && columns % 4 == 0;
  const auto kernel = q != nullptr ? (fours ? expert_hidden_kernel<true, true> : expert_hidden_kernel<false, true>)
                                   : (fours ? expert_hidden_kernel<true, false> : expert_hidden_kernel<false, false>);
  launch(s, "expert_hidden", dim3(static_cast<unsigned>(rows), (columns + 4 * kThreads - 1) / (4 * kThreads)), kThreads, 0, kernel, gate,
         up, ff, columns, x, q, scale, sum);
}

void combine_experts(Stream& s, const float* out, const uint32_t* row, const float* weights, uint32_t used, const float* shared,
                     const float* shared_weight, uint32_t tokens, uint32_t dim, float* y) {
  TIERPACK_CHECK(used > 0);
  if (tokens == 0 || dim == 0) return;
  const bool fours = in_fours(dim, {out, shared, y});
  const unsigned step = kThreads * (fours ? 4 : 1);
  launch(s, "combine_experts", dim3(tokens, (dim + step - 1) / step), kThreads, 0,
         fours ? combine_experts_kernel<4> : combine_experts_kernel<1>, out, row, weights, used, shared, shared_weight, dim, y);
}

}  // namespace tierpack::kernels::cuda

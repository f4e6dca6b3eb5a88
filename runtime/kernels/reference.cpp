// The defining table (docs/arithmetic.md): every operation but the products, which are in reference_matmul.cpp.
#include "runtime/kernels/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "formats/dequant.h"
#include "runtime/kernels/float_math.h"
#include "runtime/kernels/reference_float.h"

namespace tierpack::kernels {
namespace {

using reference_ops::dot;
using reference_ops::sum;

float exp_one(float x) { return exp(ScalarFloat{x}).value; }
float sigmoid_one(float x) { return sigmoid(ScalarFloat{x}).value; }
float silu_one(float x) { return silu(ScalarFloat{x}).value; }
float softplus_one(float x) { return softplus(ScalarFloat{x}).value; }

void rms_norm(const float* x, const float* weight, float eps, uint32_t n, float* out) {
  const float mean = dot(x, x, n) / static_cast<float>(n);
  const float r = 1.0f / std::sqrt(mean + eps);
  for (uint32_t i = 0; i < n; ++i) {
    const float scaled = x[i] * r;
    out[i] = weight ? scaled * weight[i] : scaled;
  }
}

void l2_norm(const float* x, float eps, float factor, uint32_t n, float* out) {
  const float r = 1.0f / std::sqrt(dot(x, x, n) + eps);
  for (uint32_t i = 0; i < n; ++i) out[i] = (x[i] * r) * factor;
}

void silu_all(const float* x, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = silu_one(x[i]);
}

void sigmoid_all(const float* x, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = sigmoid_one(x[i]);
}

void softplus_all(const float* x, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = softplus_one(x[i]);
}

void exp_all(const float* x, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = exp_one(x[i]);
}

void silu_mul(const float* gate, const float* up, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = silu_one(gate[i]) * up[i];
}

void sigmoid_mul(const float* gate, const float* x, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = sigmoid_one(gate[i]) * x[i];
}

void mul(const float* a, const float* b, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}

void add(const float* a, const float* b, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

void scale_all(const float* x, float factor, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = x[i] * factor;
}

void add_scaled(const float* x, float factor, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = std::fma(factor, x[i], out[i]);
}

// The largest value; NaN is passed over, and the result of nothing is -inf.
float maximum(const float* x, uint32_t n) {
  float largest = -std::numeric_limits<float>::infinity();
  for (uint32_t i = 0; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

void softmax(const float* x, uint32_t n, float* out) {
  const float largest = maximum(x, n);
  for (uint32_t i = 0; i < n; ++i) out[i] = exp_one(x[i] - largest);
  const float total = sum(out, n);
  for (uint32_t i = 0; i < n; ++i) out[i] = out[i] / total;
}

void rope(float* head, const float* cos, const float* sin, uint32_t pairs) {
  for (uint32_t i = 0; i < pairs; ++i) {
    const float a = head[i];
    const float b = head[i + pairs];
    head[i] = std::fma(a, cos[i], -(b * sin[i]));
    head[i + pairs] = std::fma(a, sin[i], b * cos[i]);
  }
}

void conv(const float* const* taps, const float* weight, uint32_t kernel, uint32_t n, float* out) {
  for (uint32_t c = 0; c < n; ++c) {
    float total = 0.0f;
    for (uint32_t k = 0; k < kernel; ++k) total = std::fma(weight[static_cast<size_t>(c) * kernel + k], taps[k][c], total);
    out[c] = total;
  }
}

void delta_rule(float* state, const float* q, const float* k, const float* v, float decay, float beta, uint32_t dk,
                uint32_t dv, float* out) {
  for (uint32_t j = 0; j < dv; ++j) {
    float* row = state + static_cast<size_t>(j) * dk;
    for (uint32_t i = 0; i < dk; ++i) row[i] = row[i] * decay;
    const float d = beta * (v[j] - dot(row, k, dk));
    for (uint32_t i = 0; i < dk; ++i) row[i] = std::fma(d, k[i], row[i]);
    out[j] = dot(row, q, dk);
  }
}

// Element d of a cache row.
float kv_element(const std::byte* row, KvType type, uint32_t head_dim, uint32_t d) {
  switch (type) {
    case KvType::kF32: return reinterpret_cast<const float*>(row)[d];
    case KvType::kF16: return f16_to_f32(reinterpret_cast<const uint16_t*>(row)[d]);
    case KvType::kQ8: break;
  }
  const float* const scales = reinterpret_cast<const float*>(row + head_dim);
  return static_cast<float>(reinterpret_cast<const int8_t*>(row)[d]) * scales[d / 32];
}

// q . key in the order of dot.
float key_dot(const float* q, const std::byte* key, KvType type, uint32_t head_dim) {
  float sums[32] = {};
  for (uint32_t d = 0; d < head_dim; ++d) sums[d % 32] = std::fma(q[d], kv_element(key, type, head_dim, d), sums[d % 32]);
  for (uint32_t half = 16; half > 0; half /= 2) {
    for (uint32_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

void attend(const AttentionQuery& query, const KvView& cache, const uint32_t* visible, float scale) {
  const uint32_t head_dim = cache.head_dim;
  float* const out = query.out;
  std::fill_n(out, head_dim, 0.0f);
  float largest = 0.0f;
  float total = 0.0f;
  for (uint32_t begin = 0; begin < query.count; begin += kAttentionChunk) {
    const uint32_t tokens = std::min(kAttentionChunk, query.count - begin);
    size_t at[kAttentionChunk];
    float p[kAttentionChunk];
    for (uint32_t j = 0; j < tokens; ++j) {
      at[j] = (visible ? visible[begin + j] : begin + j) * cache.stride;
      p[j] = key_dot(query.q, cache.keys + at[j], cache.type, head_dim) * scale;
    }
    const float chunk_largest = maximum(p, tokens);
    for (uint32_t j = 0; j < tokens; ++j) p[j] = exp_one(p[j] - chunk_largest);
    const float chunk_total = sum(p, tokens);

    const float merged = begin == 0 || chunk_largest > largest ? chunk_largest : largest;
    const float keep = begin == 0 ? 0.0f : exp_one(largest - merged);
    const float take = exp_one(chunk_largest - merged);
    for (uint32_t d = 0; d < head_dim; ++d) {
      float weighted = 0.0f;
      for (uint32_t j = 0; j < tokens; ++j) {
        weighted = std::fma(p[j], kv_element(cache.values + at[j], cache.type, head_dim, d), weighted);
      }
      out[d] = begin == 0 ? weighted : std::fma(weighted, take, out[d] * keep);
    }
    total = begin == 0 ? chunk_total : std::fma(chunk_total, take, total * keep);
    largest = merged;
  }
  if (query.count == 0) return;
  for (uint32_t d = 0; d < head_dim; ++d) out[d] = out[d] / total;
}

void attention(const AttentionQuery* queries, uint32_t n, const KvView& cache, const uint32_t* visible, float scale) {
  for (uint32_t i = 0; i < n; ++i) attend(queries[i], cache, visible, scale);
}

void store_kv(const float* x, uint32_t n, KvType type, void* out) {
  if (type == KvType::kF32) {
    std::memcpy(out, x, n * sizeof(float));
    return;
  }
  if (type == KvType::kQ8) {
    TIERPACK_CHECK(n <= kAttentionDimMax);
    int32_t sums[kAttentionDimMax / 32];
    int8_t* const codes = static_cast<int8_t*>(out);
    reference_ops::quantize(x, n, codes, reinterpret_cast<float*>(codes + n), sums);
    return;
  }
  uint16_t* halves = static_cast<uint16_t*>(out);
  for (uint32_t i = 0; i < n; ++i) halves[i] = f32_to_f16(x[i]);
}

constexpr KernelTable kReference = {
    .name = "reference",
    .quantize = reference_ops::quantize,
    .matmul = reference_ops::matmul,
    .dot = reference_ops::dot,
    .rms_norm = rms_norm,
    .l2_norm = l2_norm,
    .silu = silu_all,
    .sigmoid = sigmoid_all,
    .softplus = softplus_all,
    .exp = exp_all,
    .silu_mul = silu_mul,
    .sigmoid_mul = sigmoid_mul,
    .mul = mul,
    .add = add,
    .scale = scale_all,
    .add_scaled = add_scaled,
    .softmax = softmax,
    .rope = rope,
    .conv = conv,
    .delta_rule = delta_rule,
    .attention = attention,
    .store_kv = store_kv,
    .decode_row = reference_ops::decode_row,
};

}  // namespace

const KernelTable& reference() { return kReference; }

}  // namespace tierpack::kernels

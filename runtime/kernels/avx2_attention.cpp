// Attention of one query head: per chunk, one pass over the keys for the scores and one over the values in strips that
// stay in registers. Follows `attention` in reference.cpp.
#include <limits>

#include "runtime/kernels/avx2.h"
#include "runtime/kernels/avx2_vector.h"
#include "runtime/kernels/float_math.h"

namespace tierpack::kernels::avx2_ops {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct F32Cache {
  const float* data;
  __m256 load8(size_t at) const { return _mm256_loadu_ps(data + at); }
  __m256 load_lanes(size_t at, uint32_t lanes) const { return load_part(data + at, lanes).value; }
};

struct F16Cache {
  const uint16_t* data;
  __m256 load8(size_t at) const { return half_to_float(data + at); }
  __m256 load_lanes(size_t at, uint32_t lanes) const { return half_to_float_part(data + at, lanes); }
};

template <typename Cache>
float key_dot(const float* q, Cache keys, size_t at, uint32_t head_dim) {
  Sums32 sums = Sums32::zero();
  for_each_part(head_dim, [&](uint32_t d, int part, uint32_t lanes) __attribute__((always_inline)) {
    const __m256 key = lanes == 8 ? keys.load8(at + d) : keys.load_lanes(at + d, lanes);
    sums.part[part] = fma_lanes(load_lanes(q + d, lanes).value, key, sums.part[part], lanes);
  });
  return sums.total();
}

// out[d .. d + 8 * Vectors) = first ? sum : fma(sum, take, out * keep), sum = sum_j p[j] * values[at[j] + d ...].
template <int Vectors, typename Cache>
void add_values(Cache values, const size_t* at, const float* p, uint32_t tokens, uint32_t d, bool first, float keep, float take,
                float* out) {
  __m256 sum[Vectors];
  for (int i = 0; i < Vectors; ++i) sum[i] = _mm256_setzero_ps();
  for (uint32_t j = 0; j < tokens; ++j) {
    const __m256 weight = _mm256_set1_ps(p[j]);
    for (int i = 0; i < Vectors; ++i) sum[i] = _mm256_fmadd_ps(weight, values.load8(at[j] + d + 8 * i), sum[i]);
  }
  for (int i = 0; i < Vectors; ++i) {
    float* place = out + d + 8 * i;
    const __m256 kept = _mm256_mul_ps(_mm256_loadu_ps(place), _mm256_set1_ps(keep));
    _mm256_storeu_ps(place, first ? sum[i] : _mm256_fmadd_ps(sum[i], _mm256_set1_ps(take), kept));
  }
}

template <typename Cache>
void add_values_part(Cache values, const size_t* at, const float* p, uint32_t tokens, uint32_t d, uint32_t lanes, bool first,
                     float keep, float take, float* out) {
  __m256 sum = _mm256_setzero_ps();
  for (uint32_t j = 0; j < tokens; ++j) sum = _mm256_fmadd_ps(_mm256_set1_ps(p[j]), values.load_lanes(at[j] + d, lanes), sum);
  const __m256 kept = _mm256_mul_ps(load_part(out + d, lanes).value, _mm256_set1_ps(keep));
  store_part(out + d, lanes, {first ? sum : _mm256_fmadd_ps(sum, _mm256_set1_ps(take), kept)});
}

float exp_one(float x) {
  return _mm256_cvtss_f32(exp(F32x8::of(x)).value);
}

template <typename Cache>
void attend(const float* q, Cache keys, Cache values, size_t stride, uint32_t head_dim, const uint32_t* visible, uint32_t count,
            float scale, float* out) {
  float largest = 0.0f;
  float total = 0.0f;
  for (uint32_t begin = 0; begin < count; begin += kAttentionChunk) {
    const uint32_t tokens = count - begin < kAttentionChunk ? count - begin : kAttentionChunk;
    size_t at[kAttentionChunk];
    alignas(32) float p[kAttentionChunk];
    float chunk_largest = kLowest;
    for (uint32_t j = 0; j < tokens; ++j) {
      at[j] = static_cast<size_t>(visible ? visible[begin + j] : begin + j) * stride;
      p[j] = key_dot(q, keys, at[j], head_dim) * scale;
      chunk_largest = p[j] > chunk_largest ? p[j] : chunk_largest;
    }
    Sums32 sums = Sums32::zero();
    const F32x8 shift = F32x8::of(chunk_largest);
    for_each_part(tokens, [&](uint32_t j, int part, uint32_t lanes) __attribute__((always_inline)) {
      const F32x8 e = exp(load_lanes(p + j, lanes) - shift);
      store_lanes(p + j, lanes, e);
      sums.part[part] = add_lanes(e.value, sums.part[part], lanes);
    });
    const float chunk_total = sums.total();

    const bool first = begin == 0;
    const float merged = first || chunk_largest > largest ? chunk_largest : largest;
    const float keep = first ? 0.0f : exp_one(largest - merged);
    const float take = exp_one(chunk_largest - merged);
    uint32_t d = 0;
    for (; d + 64 <= head_dim; d += 64) add_values<8>(values, at, p, tokens, d, first, keep, take, out);
    for (; d + 8 <= head_dim; d += 8) add_values<1>(values, at, p, tokens, d, first, keep, take, out);
    if (d < head_dim) add_values_part(values, at, p, tokens, d, head_dim - d, first, keep, take, out);
    total = first ? chunk_total : __builtin_fmaf(chunk_total, take, total * keep);
    largest = merged;
  }
  const F32x8 divisor = F32x8::of(total);
  for_each_8(head_dim, [&](uint32_t d, uint32_t lanes) { store_lanes(out + d, lanes, load_lanes(out + d, lanes) / divisor); });
}

}  // namespace

void attention(const float* q, const void* keys, const void* values, KvType type, size_t stride, uint32_t head_dim,
               const uint32_t* visible, uint32_t count, float scale, float* out) {
  std::memset(out, 0, head_dim * sizeof(float));
  if (count == 0) return;
  if (type == KvType::kF32) {
    attend(q, F32Cache{static_cast<const float*>(keys)}, F32Cache{static_cast<const float*>(values)}, stride, head_dim, visible,
           count, scale, out);
  } else {
    attend(q, F16Cache{static_cast<const uint16_t*>(keys)}, F16Cache{static_cast<const uint16_t*>(values)}, stride, head_dim,
           visible, count, scale, out);
  }
}

}  // namespace tierpack::kernels::avx2_ops

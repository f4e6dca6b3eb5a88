// Everything of the AVX2 table but products with weights, attention and the delta rule. Each function follows its twin in reference.cpp.
#include "runtime/kernels/avx2.h"

#include <limits>

#include "base/error.h"
#include "runtime/kernels/avx2_vector.h"
#include "runtime/kernels/float_math.h"
#include "runtime/kernels/reference.h"

namespace tierpack::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLowest = -std::numeric_limits<float>::infinity();

void quantize(const float* x, uint32_t n, int8_t* q, float* scale, int32_t* sum) {
  TIERPACK_CHECK(n % 32 == 0);
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  for (uint32_t b = 0; b < n / 32; ++b, x += 32, q += 32) {
    const __m256 v[4] = {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 16), _mm256_loadu_ps(x + 24)};
    __m256i largest = _mm256_setzero_si256();
    for (const __m256& part : v) largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(part), magnitude));
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xB1));
    const uint32_t amax_bits = static_cast<uint32_t>(_mm_cvtsi128_si32(four));
    const float amax = _mm_cvtss_f32(_mm_castsi128_ps(four));
    if (amax_bits >= 0x7F800000u || amax < kQuantizeFloor) {
      std::memset(q, 0, 32);
      scale[b] = amax_bits >= 0x7F800000u ? kNaN : 0.0f;
      sum[b] = 0;
      continue;
    }
    const __m256 inverse = _mm256_set1_ps(127.0f / amax);
    scale[b] = amax / 127.0f;
    __m256i codes[4];
    for (int i = 0; i < 4; ++i) codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    const __m256i pairs = _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]), _mm256_packs_epi32(codes[2], codes[3]));
    const __m256i ordered = _mm256_permutevar8x32_epi32(pairs, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), ordered);
    const __m256i first = _mm256_add_epi32(codes[0], codes[1]), second = _mm256_add_epi32(codes[2], codes[3]);
    const __m256i both = _mm256_packs_epi32(first, second);  // i16: of either half four sums in each 128-bit lane
    __m128i total = _mm_add_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
    total = _mm_hadd_epi16(total, total);
    total = _mm_hadd_epi16(total, total);
    sum[b] = _mm_cvtsi128_si32(total);
  }
}

float dot(const float* a, const float* b, uint32_t n) {
  Sums32 sums = Sums32::zero();
  for_each_part(n, [&](uint32_t i, int part, uint32_t lanes) __attribute__((always_inline)) {
    sums.part[part] = fma_lanes(load_lanes(a + i, lanes).value, load_lanes(b + i, lanes).value, sums.part[part], lanes);
  });
  return sums.total();
}

// out = f(x), elementwise.
template <typename Function>
void map(const float* x, uint32_t n, float* out, Function&& f) {
  for_each_8(n, [&](uint32_t i, uint32_t lanes) { store_lanes(out + i, lanes, f(load_lanes(x + i, lanes))); });
}

template <typename Function>
void map2(const float* x, const float* y, uint32_t n, float* out, Function&& f) {
  for_each_8(n, [&](uint32_t i, uint32_t lanes) {
    store_lanes(out + i, lanes, f(load_lanes(x + i, lanes), load_lanes(y + i, lanes)));
  });
}

void rms_norm(const float* x, const float* weight, float eps, uint32_t n, float* out) {
  const float mean = dot(x, x, n) / static_cast<float>(n);
  const F32x8 r = F32x8::of(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps))));
  if (weight) {
    map2(x, weight, n, out, [r](F32x8 v, F32x8 w) { return (v * r) * w; });
  } else {
    map(x, n, out, [r](F32x8 v) { return v * r; });
  }
}

void l2_norm(const float* x, float eps, float factor, uint32_t n, float* out) {
  const float square = dot(x, x, n);
  const F32x8 r = F32x8::of(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(square + eps))));
  const F32x8 f = F32x8::of(factor);
  map(x, n, out, [r, f](F32x8 v) { return (v * r) * f; });
}

void silu_all(const float* x, uint32_t n, float* out) {
  map(x, n, out, [](F32x8 v) { return silu(v); });
}

void sigmoid_all(const float* x, uint32_t n, float* out) {
  map(x, n, out, [](F32x8 v) { return sigmoid(v); });
}

void softplus_all(const float* x, uint32_t n, float* out) {
  map(x, n, out, [](F32x8 v) { return softplus(v); });
}

void exp_all(const float* x, uint32_t n, float* out) {
  map(x, n, out, [](F32x8 v) { return exp(v); });
}

void silu_mul(const float* gate, const float* up, uint32_t n, float* out) {
  map2(gate, up, n, out, [](F32x8 g, F32x8 u) { return silu(g) * u; });
}

void sigmoid_mul(const float* gate, const float* x, uint32_t n, float* out) {
  map2(gate, x, n, out, [](F32x8 g, F32x8 v) { return sigmoid(g) * v; });
}

void mul(const float* a, const float* b, uint32_t n, float* out) {
  map2(a, b, n, out, [](F32x8 u, F32x8 v) { return u * v; });
}

void add(const float* a, const float* b, uint32_t n, float* out) {
  map2(a, b, n, out, [](F32x8 u, F32x8 v) { return u + v; });
}

void scale_all(const float* x, float factor, uint32_t n, float* out) {
  const F32x8 f = F32x8::of(factor);
  map(x, n, out, [f](F32x8 v) { return v * f; });
}

void add_scaled(const float* x, float factor, uint32_t n, float* out) {
  const F32x8 f = F32x8::of(factor);
  map2(x, out, n, out, [f](F32x8 v, F32x8 o) { return fma(f, v, o); });
}

void softmax(const float* x, uint32_t n, float* out) {
  // vmaxps returns its second operand when one is NaN: NaN is passed over, as in the reference.
  __m256 largest = _mm256_set1_ps(kLowest);
  for_each_8(n, [&](uint32_t i, uint32_t lanes) {
    const __m256 v = lanes == 8 ? _mm256_loadu_ps(x + i)
                                : _mm256_blendv_ps(largest, load_part(x + i, lanes).value, _mm256_castsi256_ps(lane_mask(lanes)));
    largest = _mm256_max_ps(v, largest);
  });
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  const F32x8 shift = F32x8::of(_mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four))));
  Sums32 sums = Sums32::zero();
  for_each_part(n, [&](uint32_t i, int part, uint32_t lanes) __attribute__((always_inline)) {
    const F32x8 e = exp(load_lanes(x + i, lanes) - shift);
    store_lanes(out + i, lanes, e);
    sums.part[part] = add_lanes(e.value, sums.part[part], lanes);
  });
  const F32x8 total = F32x8::of(sums.total());
  map(out, n, out, [total](F32x8 v) { return v / total; });
}

void rope(float* head, const float* cos, const float* sin, uint32_t pairs) {
  for_each_8(pairs, [&](uint32_t i, uint32_t lanes) {
    const __m256 a = load_lanes(head + i, lanes).value;
    const __m256 b = load_lanes(head + i + pairs, lanes).value;
    const __m256 c = load_lanes(cos + i, lanes).value;
    const __m256 s = load_lanes(sin + i, lanes).value;
    store_lanes(head + i, lanes, {_mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s))});
    store_lanes(head + i + pairs, lanes, {_mm256_fmadd_ps(a, s, _mm256_mul_ps(b, c))});
  });
}

// Weights of 8 channels x 4 taps, transposed to one vector a tap.
inline void transpose_taps(const float* weight, __m256 (&tap)[4]) {
  const auto row = [weight](int i) {  // channel i in the low half, channel i + 4 in the high one
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(weight + 4 * i)), _mm_loadu_ps(weight + 4 * i + 16), 1);
  };
  const __m256 low01 = _mm256_unpacklo_ps(row(0), row(1));
  const __m256 high01 = _mm256_unpackhi_ps(row(0), row(1));
  const __m256 low23 = _mm256_unpacklo_ps(row(2), row(3));
  const __m256 high23 = _mm256_unpackhi_ps(row(2), row(3));
  tap[0] = _mm256_shuffle_ps(low01, low23, 0x44);
  tap[1] = _mm256_shuffle_ps(low01, low23, 0xEE);
  tap[2] = _mm256_shuffle_ps(high01, high23, 0x44);
  tap[3] = _mm256_shuffle_ps(high01, high23, 0xEE);
}

void conv(const float* const* taps, const float* weight, uint32_t kernel, uint32_t n, float* out) {
  uint32_t c = 0;
  if (kernel == 4) {
    for (; c + 8 <= n; c += 8) {
      __m256 w[4];
      transpose_taps(weight + size_t{4} * c, w);
      __m256 total = _mm256_setzero_ps();
      for (int k = 0; k < 4; ++k) total = _mm256_fmadd_ps(w[k], _mm256_loadu_ps(taps[k] + c), total);
      _mm256_storeu_ps(out + c, total);
    }
  }
  for (; c < n; ++c) {
    float total = 0.0f;
    for (uint32_t k = 0; k < kernel; ++k) total = __builtin_fmaf(weight[static_cast<size_t>(c) * kernel + k], taps[k][c], total);
    out[c] = total;
  }
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
    quantize(x, n, codes, reinterpret_cast<float*>(codes + n), sums);
    return;
  }
  uint16_t* halves = static_cast<uint16_t*>(out);
  for_each_8(n, [&](uint32_t i, uint32_t lanes) {
    const __m128i h = _mm256_cvtps_ph(load_lanes(x + i, lanes).value, _MM_FROUND_TO_NEAREST_INT);
    std::memcpy(halves + i, &h, lanes * sizeof(uint16_t));
  });
}

constexpr KernelTable kAvx2 = {
    .name = "avx2",
    .quantize = quantize,
    .matmul = avx2_ops::matmul,
    .dot = dot,
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
    .delta_rule = avx2_ops::delta_rule,
    .attention = avx2_ops::attention,
    .store_kv = store_kv,
    .decode_row = reference_ops::decode_row,
};

}  // namespace

const KernelTable& avx2() { return kAvx2; }

}  // namespace tierpack::kernels

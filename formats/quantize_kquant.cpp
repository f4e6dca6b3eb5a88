// Encoders of Q4_K, Q5_K and Q6_K: sub-blocks with integer scales, which share f16 scales in their block of 256.
//
// First every sub-block is fitted on its own with real scales: codes for a range of candidate steps, and for each the
// least-squares scale (and minimum). Then the block's f16 scales are chosen, the sub-blocks' integer scales around the
// fitted ones are compared by the error that the decoder will make, and the f16 scales are fitted anew to the codes
// that won; passes go on while they help.
#include <algorithm>
#include <array>

#include "formats/block_search.h"

namespace tierpack::block_search {
namespace {

constexpr int kElements = 256;
constexpr int kPasses = 3;

// --- Q4_K and Q5_K: eight sub-blocks of 32, value = d * scale * q - dmin * min.

constexpr int kGroups = 8;
constexpr int kGroup = 32;
constexpr int kScaleMax = 63;

struct Affine {
  float scale = 0;
  float min = 0;  // subtracted, not negative
};

// Sums over a sub-block of z = x - low, and for codes q of it.
struct AffineSums {
  double w = 0, z = 0, zz = 0;
  double q = 0, qq = 0, zq = 0;
};

// Least squares for z = scale * q - offset with offset >= low; the error of it is returned.
double solve(const AffineSums& s, double low, double& scale, double& offset) {
  const double spread = s.w * s.qq - s.q * s.q;
  if (spread > 0) {
    scale = (s.w * s.zq - s.z * s.q) / spread;
    offset = (scale * s.q - s.z) / s.w;
  }
  if (!(spread > 0) || offset < low) {  // the minimum would be negative: it is 0
    offset = low;
    scale = s.qq > 0 ? (s.zq + low * s.q) / s.qq : 0;
  }
  return s.zz - 2 * scale * s.zq + 2 * offset * s.z + scale * scale * s.qq - 2 * scale * offset * s.q +
         offset * offset * s.w;
}

// Codes of z for a step of 1 / inverse from z = start on.
template <int kMax>
void sum_codes(const float* z, const float* w, float inverse, float start, AffineSums& sums) {
  Lanes q1{}, qq{}, zq{};
  for (int i = 0; i < kGroup; i += 4) {
    const Lanes v = load(z + i);
    const Lanes q = round(clamp((v - start) * inverse, all(0), all(kMax)));
    const Lanes wq = load(w + i) * q;
    q1 += wq;
    qq += wq * q;
    zq += wq * v;
  }
  sums.q = sum(q1), sums.qq = sum(qq), sums.zq = sum(zq);
}

template <int kMax>
Affine fit_group(const float* x, const float* w) {
  float low = 0, high = x[0];
  bool varied = false;
  for (int i = 0; i < kGroup; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    varied |= x[i] != x[0];
  }
  if (!varied && x[0] <= 0) return {0, -x[0]};

  float z[kGroup];
  Lanes w1{}, z1{}, zz{};
  for (int i = 0; i < kGroup; i += 4) {
    const Lanes v = load(x + i) - low;
    const Lanes wi = load(w + i);
    store(z + i, v);
    w1 += wi;
    z1 += wi * v;
    zz += wi * v * v;
  }
  AffineSums sums;
  sums.w = sum(w1), sums.z = sum(z1), sums.zz = sum(zz);

  double scale = 0, offset = low, error = sums.zz;
  const auto attempt = [&](float inverse, float start) {
    sum_codes<kMax>(z, w, inverse, start, sums);
    double one_scale = 0, one_offset = 0;
    const double one = solve(sums, low, one_scale, one_offset);
    // Sums are exact to about 1e-7 of zz: what is not better by more than that leaves the earlier, plainer choice.
    if (!(one_scale > 0) || !(one < error - 2e-7 * sums.zz)) return false;
    scale = one_scale, offset = one_offset, error = one;
    return true;
  };
  // The whole range first. Steps that use more of it cut the ends; those that use less give up codes.
  attempt(kMax / (high - low), 0);
  for (int step = -8; step <= 16; ++step) {
    const float codes = kMax * (1 + 0.0125f * static_cast<float>(step));
    const float inverse = codes / (high - low);
    attempt(inverse, 0);
    if (step > 0) {  // and one cut at the upper end alone, one at the middle
      const float cut = (high - low) * (1 - kMax / codes);
      attempt(inverse, cut / 2);
      attempt(inverse, cut);
    }
  }
  for (int pass = 0; pass < 4 && scale > 0; ++pass) {
    if (!attempt(static_cast<float>(1 / scale), static_cast<float>(-offset))) break;
  }
  return {static_cast<float>(scale), static_cast<float>(offset - double{low})};
}

template <int kMax>
struct AffineBlock {
  Scale d, dmin;
  std::array<int, kGroups> scale{}, min{};
  double error = 0;
};

template <int kMax>
Lanes affine_codes(Lanes v, float inverse, float min) {
  return round(clamp((v + min) * inverse, all(0), all(kMax)));
}

template <int kMax>
float affine_error(const float* x, const float* w, float scale, float min) {
  const float inverse = scale > 0 ? 1 / scale : 0;
  Lanes error{};
  for (int i = 0; i < kGroup; i += 4) {
    const Lanes v = load(x + i);
    const Lanes off = v - (affine_codes<kMax>(v, inverse, min) * scale - min);
    error += load(w + i) * off * off;
  }
  return sum(error);
}

int nearest_int(float value, float unit, int limit) {
  if (!(unit > 0)) return 0;
  return static_cast<int>(round(std::clamp(value / unit, 0.0f, static_cast<float>(limit))));
}

// The best integer scale and minimum of one sub-block, near the fitted ones.
template <int kMax>
void choose_group(const float* x, const float* w, const Affine& fitted, int g, AffineBlock<kMax>& block) {
  const int scale = nearest_int(fitted.scale, block.d.value, kScaleMax);
  const int min = nearest_int(fitted.min, block.dmin.value, kScaleMax);
  // Without any code the error is that of zeros, which is the best where the f16 scales are too coarse.
  float best = affine_error<kMax>(x, w, 0, 0);
  block.scale[static_cast<size_t>(g)] = block.min[static_cast<size_t>(g)] = 0;
  for (int s = std::max(0, scale - 1); s <= std::min(kScaleMax, scale + 1); ++s) {
    for (int m = std::max(0, min - 1); m <= std::min(kScaleMax, min + 1); ++m) {
      const float error =
          affine_error<kMax>(x, w, block.d.value * static_cast<float>(s), block.dmin.value * static_cast<float>(m));
      if (!(error < best)) continue;
      best = error;
      block.scale[static_cast<size_t>(g)] = s;
      block.min[static_cast<size_t>(g)] = m;
    }
  }
  block.error += double{best};
}

// Real d and dmin that fit the codes of a block best; false when there is no such pair.
template <int kMax>
bool refit(const float* x, const float* w, const AffineBlock<kMax>& block, float& d, float& dmin) {
  double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;  // a = scale * q, b = min: x = d * a - dmin * b
  for (int g = 0; g < kGroups; ++g) {
    const int first = g * kGroup;
    const float scale = static_cast<float>(block.scale[static_cast<size_t>(g)]);
    const float min = static_cast<float>(block.min[static_cast<size_t>(g)]);
    const float step = block.d.value * scale;
    const float inverse = step > 0 ? 1 / step : 0;
    Lanes w1{}, wq{}, wqq{}, wx{}, wxq{};
    for (int i = first; i < first + kGroup; i += 4) {
      const Lanes v = load(x + i), wi = load(w + i);
      const Lanes q = affine_codes<kMax>(v, inverse, block.dmin.value * min);
      w1 += wi;
      wq += wi * q;
      wqq += wi * q * q;
      wx += wi * v;
      wxq += wi * v * q;
    }
    aa += double{scale} * scale * sum(wqq);
    ab += double{scale} * min * sum(wq);
    bb += double{min} * min * sum(w1);
    xa += double{scale} * sum(wxq);
    xb += double{min} * sum(wx);
  }
  const double spread = aa * bb - ab * ab;
  if (bb > 0 && spread > 1e-6 * aa * bb) {
    d = static_cast<float>((xa * bb - xb * ab) / spread);
    dmin = static_cast<float>((xa * ab - xb * aa) / spread);
    return d > 0 && dmin > 0;
  }
  if (bb > 0 || !(aa > 0)) return false;
  d = static_cast<float>(xa / aa);
  dmin = 0;
  return d > 0;
}

template <int kMax>
AffineBlock<kMax> search_affine(const float* x, const float* w, const Unit& unit) {
  std::array<Affine, kGroups> fitted;
  float scale = 0, min = 0;
  for (int g = 0; g < kGroups; ++g) {
    const Affine one = fit_group<kMax>(x + g * kGroup, w + g * kGroup);
    fitted[static_cast<size_t>(g)] = one;
    scale = std::max(scale, one.scale);
    min = std::max(min, one.min);
  }
  AffineBlock<kMax> best;
  float d = scale / kScaleMax, dmin = min / kScaleMax;
  for (int pass = 0; pass < kPasses; ++pass) {
    AffineBlock<kMax> block;
    block.d = nearest_scale(d, unit);
    block.dmin = nearest_scale(dmin, unit);
    for (int g = 0; g < kGroups; ++g) {
      choose_group<kMax>(x + g * kGroup, w + g * kGroup, fitted[static_cast<size_t>(g)], g, block);
    }
    const bool better = pass == 0 || block.error < best.error;
    if (better) best = block;
    if (!better || !refit<kMax>(x, w, block, d, dmin)) break;
  }
  return best;
}

// Codes of a whole block, one a byte, and the packed six-bit scales: four low pairs lie open, the other four share the
// last four bytes and the top bits of the first eight.
template <int kMax>
void put_affine(const float* x, const AffineBlock<kMax>& block, uint8_t* codes, uint8_t* packed) {
  for (int g = 0; g < kGroups; ++g) {
    const float scale = block.d.value * static_cast<float>(block.scale[static_cast<size_t>(g)]);
    const float min = block.dmin.value * static_cast<float>(block.min[static_cast<size_t>(g)]);
    const float inverse = scale > 0 ? 1 / scale : 0;
    for (int i = g * kGroup; i < (g + 1) * kGroup; i += 4) {
      const Lanes q = affine_codes<kMax>(load(x + i), inverse, min);
      for (int l = 0; l < 4; ++l) codes[i + l] = static_cast<uint8_t>(q[l]);
    }
  }
  for (size_t g = 0; g < 4; ++g) {
    const int s = block.scale[g], m = block.min[g], s4 = block.scale[g + 4], m4 = block.min[g + 4];
    packed[g] = static_cast<uint8_t>(s | (s4 >> 4) << 6);
    packed[g + 4] = static_cast<uint8_t>(m | (m4 >> 4) << 6);
    packed[g + 8] = static_cast<uint8_t>((s4 & 15) | (m4 & 15) << 4);
  }
}

// Four low bits: 32 bytes serve two sub-blocks.
void put_low_nibbles(const uint8_t* codes, uint8_t* qs) {
  for (int i = 0; i < kElements / 2; ++i) {
    const int first = i / 32 * 64 + i % 32;
    qs[i] = static_cast<uint8_t>((codes[first] & 15) | (codes[first + 32] & 15) << 4);
  }
}

// --- Q6_K: sixteen sub-blocks of 16, value = d * scale * q with q from -32 to 31 and scales of both signs.

constexpr int kSixGroups = 16;
constexpr int kSixGroup = 16;
constexpr double kBetter = 1 + 1e-6;  // beyond the rounding of sums

Lanes six_codes(Lanes v) { return round(clamp(v, all(-32), all(31))); }

// The real scale of one sub-block. Its largest value takes the side with one more code.
float fit_six(const float* x, const float* w) {
  const float largest = signed_largest<kSixGroup>(x);
  if (largest == 0) return 0;
  Fit found = fit<kSixGroup>(x, w, -32 / largest, six_codes);
  for (int step = -10; step <= 14; ++step) {
    const Fit one = fit<kSixGroup>(x, w, -(32 + 0.25f * static_cast<float>(step)) / largest, six_codes);
    if (one.gain() > found.gain() * kBetter) found = one;
  }
  for (int pass = 0; pass < 2 && found.qq > 0; ++pass) {
    const Fit one = fit<kSixGroup>(x, w, 1 / found.scale(), six_codes);
    if (!(one.gain() > found.gain())) break;
    found = one;
  }
  return found.scale();
}

struct SixBlock {
  Scale d;
  std::array<int, kSixGroups> scale{};
  double error = 0;
};

void choose_six(const float* x, const float* w, float fitted, int g, SixBlock& block) {
  const float ratio = block.d.value != 0 ? fitted / block.d.value : 0;
  const int scale = static_cast<int>(round(std::clamp(ratio, -128.0f, 127.0f)));
  float best = 0;
  bool first = true;
  for (int s = std::max(-128, scale - 2); s <= std::min(127, scale + 2); ++s) {
    const float error = error_of<kSixGroup>(x, w, block.d.value * static_cast<float>(s), six_codes);
    if (!first && !(error < best)) continue;
    best = error, first = false;
    block.scale[static_cast<size_t>(g)] = s;
  }
  block.error += double{best};
}

float refit_six(const float* x, const float* w, const SixBlock& block) {
  double aa = 0, xa = 0;
  for (int g = 0; g < kSixGroups; ++g) {
    const float scale = static_cast<float>(block.scale[static_cast<size_t>(g)]);
    if (scale == 0) continue;
    const Fit one = fit<kSixGroup>(x + g * kSixGroup, w + g * kSixGroup, 1 / (block.d.value * scale), six_codes);
    aa += double{scale} * scale * one.qq;
    xa += double{scale} * one.xq;
  }
  return aa > 0 ? static_cast<float>(xa / aa) : 0;
}

}  // namespace

void encode(const float* x, const float* w, const Unit& unit, BlockQ4_K& out) {
  const AffineBlock<15> block = search_affine<15>(x, w, unit);
  uint8_t codes[kElements];
  put_affine(x, block, codes, out.scales);
  out.d = block.d.bits;
  out.dmin = block.dmin.bits;
  put_low_nibbles(codes, out.qs);
}

void encode(const float* x, const float* w, const Unit& unit, BlockQ5_K& out) {
  const AffineBlock<31> block = search_affine<31>(x, w, unit);
  uint8_t codes[kElements];
  put_affine(x, block, codes, out.scales);
  out.d = block.d.bits;
  out.dmin = block.dmin.bits;
  put_low_nibbles(codes, out.qs);
  for (int i = 0; i < kGroup; ++i) {
    int bits = 0;
    for (int g = 0; g < kGroups; ++g) bits |= codes[g * kGroup + i] >> 4 << g;
    out.qh[i] = static_cast<uint8_t>(bits);
  }
}

void encode(const float* x, const float* w, const Unit& unit, BlockQ6_K& out) {
  std::array<float, kSixGroups> fitted;
  float largest = 0;
  for (int g = 0; g < kSixGroups; ++g) {
    fitted[static_cast<size_t>(g)] = fit_six(x + g * kSixGroup, w + g * kSixGroup);
    const float one = fitted[static_cast<size_t>(g)];
    if ((one < 0 ? -one : one) > (largest < 0 ? -largest : largest)) largest = one;
  }
  SixBlock best;
  float d = largest / -128;
  for (int pass = 0; pass < kPasses; ++pass) {
    SixBlock block;
    block.d = nearest_scale(d, unit);
    for (int g = 0; g < kSixGroups; ++g) {
      choose_six(x + g * kSixGroup, w + g * kSixGroup, fitted[static_cast<size_t>(g)], g, block);
    }
    const bool better = pass == 0 || block.error < best.error;
    if (better) best = block;
    d = refit_six(x, w, block);
    if (!better || d == 0) break;
  }
  out.d = best.d.bits;
  for (int e = 0; e < kElements; ++e) {
    const int scale = best.scale[static_cast<size_t>(e / kSixGroup)];
    out.scales[e / kSixGroup] = static_cast<int8_t>(scale);
    const float step = best.d.value * static_cast<float>(scale);
    const Lanes q = six_codes(all(x[e] * (step != 0 ? 1 / step : 0)));
    const int code = static_cast<int>(q[0]) + 32;
    const int half = e / 128, g = e % 128 / 32, l = e % 32;
    uint8_t& low = out.ql[64 * half + l + 32 * (g & 1)];
    uint8_t& high = out.qh[32 * half + l];
    low = static_cast<uint8_t>(low | (code & 15) << (g < 2 ? 0 : 4));
    high = static_cast<uint8_t>(high | (code >> 4) << (2 * g));
  }
}

}  // namespace tierpack::block_search

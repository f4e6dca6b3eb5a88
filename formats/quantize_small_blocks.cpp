// Encoders of blocks with one kind of scale: Q8_0, IQ4_NL and NVFP4.
#include <algorithm>

#include "formats/block_search.h"
#include "formats/iq_grids.h"
#include "formats/small_floats.h"

namespace tierpack::block_search {
namespace {

// --- Q8_0

Lanes q8_codes(Lanes v) { return clamp(round(v), all(-127), all(127)); }

// --- IQ4_NL: boundaries halfway between neighbouring values.

struct Iq4Table {
  float first = 0;
  float middle[15]{};
  float step[15]{};
};

constexpr Iq4Table make_iq4_table() {
  Iq4Table t;
  t.first = static_cast<float>(kIq4nlValues[0]);
  for (int k = 0; k < 15; ++k) {
    const float low = static_cast<float>(kIq4nlValues[k]), high = static_cast<float>(kIq4nlValues[k + 1]);
    t.middle[k] = (low + high) / 2;
    t.step[k] = high - low;
  }
  return t;
}
constexpr Iq4Table kIq4 = make_iq4_table();

Lanes iq4_values(Lanes v) {
  Lanes value = all(kIq4.first);
  for (int k = 0; k < 15; ++k) value += v > all(kIq4.middle[k]) ? all(kIq4.step[k]) : all(0);
  return value;
}

uint8_t iq4_code(float v) {
  uint8_t code = 0;
  for (int k = 0; k < 15; ++k) code = static_cast<uint8_t>(code + (v > kIq4.middle[k]));
  return code;
}

// --- NVFP4

constexpr float kE2m1Middle[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};

Lanes e2m1_values(Lanes v) {
  const Lanes magnitude = v < all(0) ? -v : v;
  Lanes value = all(0);
  for (int k = 0; k < 7; ++k) {
    value += magnitude > all(kE2m1Middle[k]) ? all(kE2m1Values[k + 1] - kE2m1Values[k]) : all(0);
  }
  return v < all(0) ? -value : value;
}

uint8_t e2m1_code(float v) {
  const float magnitude = v < 0 ? -v : v;
  uint8_t code = 0;
  for (int k = 0; k < 7; ++k) code = static_cast<uint8_t>(code + (magnitude > kE2m1Middle[k]));
  return static_cast<uint8_t>(v < 0 && code != 0 ? code | 8 : code);
}

// Scale code of 16 values. The largest value may stand at 6, at 4 or between, or be cut: the scales around all of these
// are tried.
uint8_t nvfp4_scale(const float* x, const float* w, const Unit& unit) {
  constexpr int kLargest = 0x7E;
  float largest = signed_largest<16>(x);
  largest = (largest < 0 ? -largest : largest) * unit.up;
  const auto begin = kUe4m3Values.begin();
  const int at_six = static_cast<int>(std::lower_bound(begin, begin + kLargest, largest / 6) - begin);
  const int first = std::max(0, at_six - 5), last = std::min(kLargest, at_six + 8);
  int best = first;
  float best_error = 0;
  for (int code = first; code <= last; ++code) {
    const float error = error_of<16>(x, w, kUe4m3Values[static_cast<size_t>(code)] * unit.down, e2m1_values);
    if (code == first || error < best_error) best = code, best_error = error;
  }
  return static_cast<uint8_t>(best);
}

}  // namespace

void encode(const float* x, const float* w, const Unit& unit, BlockQ8_0& out) {
  constexpr int kCount = 32;
  const float largest = signed_largest<kCount>(x);
  const Scale whole = nearest_scale((largest < 0 ? -largest : largest) / 127, unit);
  // Neighbouring scales round every element anew; one of them is usually better than the one that fits the largest.
  Scale best = whole;
  float best_error = error_of<kCount>(x, w, whole.value, q8_codes);
  for (int off = -6; off <= 8; ++off) {
    const int bits = whole.bits + off;
    if (off == 0 || bits < 0 || bits > 0x7BFF) continue;
    const Scale scale = scale_of_bits(static_cast<uint16_t>(bits), unit);
    const float error = error_of<kCount>(x, w, scale.value, q8_codes);
    if (error < best_error) best = scale, best_error = error;
  }
  out.d = best.bits;
  const float inverse = best.value != 0 ? 1 / best.value : 0;
  float codes[kCount];
  for (int i = 0; i < kCount; i += 4) store(codes + i, q8_codes(load(x + i) * inverse));
  for (int i = 0; i < kCount; ++i) out.qs[i] = static_cast<int8_t>(codes[i]);
}

void encode(const float* x, const float* w, const Unit& unit, BlockIQ4_NL& out) {
  constexpr int kCount = 32;
  const float largest = signed_largest<kCount>(x);
  Fit found;
  // The largest value may stand at either end of the uneven table, inside it, or be cut.
  for (const float end : {-127.0f, 113.0f}) {
    for (int step = -10; step <= 6; ++step) {
      const float inverse = end * (1 - 0.03f * static_cast<float>(step)) / largest;
      const Fit one = fit<kCount>(x, w, inverse, iq4_values);
      if (one.gain() > found.gain()) found = one;
    }
  }
  Scale best;
  float best_error = error_of<kCount>(x, w, 0, iq4_values);
  float scale = found.scale();
  for (int pass = 0; pass < 3 && scale != 0; ++pass) {
    const Scale nearest = nearest_scale(scale, unit);
    for (int off = -1; off <= 1; ++off) {
      const int bits = nearest.bits + off;
      if ((bits & 0x8000) != (nearest.bits & 0x8000) || bits < 0 || (bits & 0x7FFF) > 0x7BFF) continue;
      const Scale one = scale_of_bits(static_cast<uint16_t>(bits), unit);
      const float error = error_of<kCount>(x, w, one.value, iq4_values);
      if (error < best_error) best = one, best_error = error;
    }
    if (best.value == 0) break;
    scale = fit<kCount>(x, w, 1 / best.value, iq4_values).scale();
  }
  out.d = best.bits;
  const float inverse = best.value != 0 ? 1 / best.value : 0;
  for (int i = 0; i < 16; ++i) {
    out.qs[i] = static_cast<uint8_t>(iq4_code(x[i] * inverse) | iq4_code(x[i + 16] * inverse) << 4);
  }
}

void encode(const float* x, const float* w, const Unit& unit, BlockNVFP4& out) {
  for (int s = 0; s < 4; ++s) {
    const float* const part = x + 16 * s;
    out.d[s] = nvfp4_scale(part, w + 16 * s, unit);
    const float scale = kUe4m3Values[out.d[s]] * unit.down;
    const float inverse = scale != 0 ? 1 / scale : 0;
    for (int j = 0; j < 8; ++j) {
      out.qs[8 * s + j] = static_cast<uint8_t>(e2m1_code(part[j] * inverse) | e2m1_code(part[j + 8] * inverse) << 4);
    }
  }
}

}  // namespace tierpack::block_search

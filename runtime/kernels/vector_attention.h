// Attention of the query heads that share one KV head; follows `attention` in reference.cpp. Compiled by each instruction
// set's file, after its vector header.
//
// Chunk by chunk of visible tokens: four keys at a time are made f32 and meet all queries, then the values in strips of
// some vectors. Keys and values are read and converted once a call; tiles of queries keep their sums in registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "runtime/kernels/float_math.h"
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/vector_lanes.h"

namespace tierpack::kernels {
namespace {

constexpr uint32_t kKeyTile = 4;
constexpr uint32_t kScoreQueries = 2;                          // x kKeyTile: pairs whose sums are transposed together
constexpr uint32_t kValueQueries = kWideLanes == 16 ? 4 : 2;   // x kValueVectors sums in registers
constexpr uint32_t kValueVectors = 4;
constexpr uint32_t kStrip = kValueVectors * kWideLanes;        // elements of values made f32 at a time

// Rows of a cache as f32: either where they lie or through `scratch`, elements [begin, begin + n).
struct F32Reader {
  const float* read(const std::byte* row, uint32_t begin, uint32_t, uint32_t, float*) const {
    return reinterpret_cast<const float*>(row) + begin;
  }
};

struct F16Reader {
  const float* read(const std::byte* row, uint32_t begin, uint32_t n, uint32_t, float* scratch) const {
    const uint16_t* const halves = reinterpret_cast<const uint16_t*>(row) + begin;
    uint32_t i = 0;
    for (; i + kWideLanes <= n; i += kWideLanes) store(scratch + i, Wide{half_to_float(halves + i)});
    if (i < n) store_part(scratch + i, n - i, Wide{half_to_float_part(halves + i, n - i)});
    return scratch;
  }
};

struct Q8Reader {  // n and begin are multiples of 32
  const float* read(const std::byte* row, uint32_t begin, uint32_t n, uint32_t head_dim, float* scratch) const {
    const int8_t* const codes = reinterpret_cast<const int8_t*>(row) + begin;
    const float* const scales = reinterpret_cast<const float*>(row + head_dim) + begin / 32;
    for (uint32_t i = 0; i < n; i += 32) {
      const Wide scale = Wide::of(scales[i / 32]);
#pragma GCC unroll 4
      for (uint32_t part = 0; part < kSumParts; ++part) {
        const uint32_t at = i + part * kWideLanes;
        store(scratch + at, code_to_float(codes + at) * scale);
      }
    }
    return scratch;
  }
};

// p[i][0 .. 4) = q[i] . key[j] * scale.
template <uint32_t Queries>
[[gnu::always_inline]] inline void score_tile(const float* const (&q)[Queries], const float* const (&key)[kKeyTile],
                                              uint32_t head_dim, float scale, float* const (&p)[Queries]) {
  Wide joined[kScoreQueries * kKeyTile];
  for (Wide& one : joined) one = Wide::of(0.0f);
  if constexpr (kSumParts == 2) {
    Sums32 sums[Queries][kKeyTile];
    for (auto& of_query : sums) {
      for (Sums32& s : of_query) s = Sums32::zero();
    }
    for_each_wide(head_dim, [&](uint32_t d, uint32_t part, uint32_t lanes) __attribute__((always_inline)) {
      Wide k[kKeyTile];
#pragma GCC unroll 4
      for (uint32_t j = 0; j < kKeyTile; ++j) k[j] = load_lanes(key[j] + d, lanes);
#pragma GCC unroll 2
      for (uint32_t i = 0; i < Queries; ++i) {
        const Wide x = load_lanes(q[i] + d, lanes);
#pragma GCC unroll 4
        for (uint32_t j = 0; j < kKeyTile; ++j) {
          sums[i][j].part[part] = fma_lanes(x.value, k[j].value, sums[i][j].part[part], lanes);
        }
      }
    });
#pragma GCC unroll 2
    for (uint32_t i = 0; i < Queries; ++i) {
#pragma GCC unroll 4
      for (uint32_t j = 0; j < kKeyTile; ++j) joined[i * kKeyTile + j] = join_parts(sums[i][j]);
    }
  } else {
    // One part at a time fits the registers. Parts 0 and 2, then 1 and 3 are added, then both.
    Wide done[2][Queries][kKeyTile];
    for (const uint32_t part : {0u, 2u, 1u, 3u}) {
      Wide sum[Queries][kKeyTile];
#pragma GCC unroll 2
      for (uint32_t i = 0; i < Queries; ++i) {
#pragma GCC unroll 4
        for (uint32_t j = 0; j < kKeyTile; ++j) sum[i][j] = Wide::of(0.0f);
      }
      const auto step = [&](uint32_t d, uint32_t lanes) __attribute__((always_inline)) {
        Wide k[kKeyTile];
#pragma GCC unroll 4
        for (uint32_t j = 0; j < kKeyTile; ++j) k[j] = load_lanes(key[j] + d, lanes);
#pragma GCC unroll 2
        for (uint32_t i = 0; i < Queries; ++i) {
          const Wide x = load_lanes(q[i] + d, lanes);
#pragma GCC unroll 4
          for (uint32_t j = 0; j < kKeyTile; ++j) sum[i][j] = Wide{fma_lanes(x.value, k[j].value, sum[i][j].value, lanes)};
        }
      };
      uint32_t d = part * kWideLanes;
      for (; d + kWideLanes <= head_dim; d += 32) step(d, kWideLanes);
      if (d < head_dim) step(d, head_dim - d);
#pragma GCC unroll 2
      for (uint32_t i = 0; i < Queries; ++i) {
#pragma GCC unroll 4
        for (uint32_t j = 0; j < kKeyTile; ++j) {
          Wide& place = done[part % 2][i][j];
          place = part < 2 ? sum[i][j] : place + sum[i][j];
        }
      }
    }
    for (uint32_t i = 0; i < Queries; ++i) {
      for (uint32_t j = 0; j < kKeyTile; ++j) joined[i * kKeyTile + j] = done[0][i][j] + done[1][i][j];
    }
  }
  alignas(64) float result[kWideLanes];
  store(result, tree_sums(joined) * Wide::of(scale));
#pragma GCC unroll 2
  for (uint32_t i = 0; i < Queries; ++i) std::memcpy(p[i], result + i * kKeyTile, kKeyTile * sizeof(float));
}

// What one query has after the chunks so far, and its scores, then weights, of this one.
struct AttentionState {
  alignas(64) float p[kAttentionChunk];
  float largest;
  float total;
  float keep;       // of the earlier chunks
  float take;       // of this one
  uint32_t tokens;  // of this chunk that it sees
};

float exp_one(float x) {
  alignas(64) float out[kWideLanes];
  store(out, exp(Wide::of(x)));
  return out[0];
}

// Scores -> weights; the running maximum and total.
void weigh(AttentionState& s, bool first) {
  Wide largest = Wide::of(-std::numeric_limits<float>::infinity());
  uint32_t j = 0;
  for (; j + kWideLanes <= s.tokens; j += kWideLanes) largest = larger(load(s.p + j), largest);
  float chunk_largest = largest_lane(largest);
  for (; j < s.tokens; ++j) chunk_largest = s.p[j] > chunk_largest ? s.p[j] : chunk_largest;
  const Wide shift = Wide::of(chunk_largest);
  Sums32 sums = Sums32::zero();
  for_each_wide(s.tokens, [&](uint32_t i, uint32_t part, uint32_t lanes) __attribute__((always_inline)) {
    const Wide e = exp(load_lanes(s.p + i, lanes) - shift);
    store_lanes(s.p + i, lanes, e);
    sums.part[part] = add_lanes(e.value, sums.part[part], lanes);
  });
  const float chunk_total = sums.total();
  const float merged = first || chunk_largest > s.largest ? chunk_largest : s.largest;
  s.keep = first ? 0.0f : exp_one(s.largest - merged);
  s.take = exp_one(chunk_largest - merged);
  s.total = first ? chunk_total : __builtin_fmaf(chunk_total, s.take, s.total * s.keep);
  s.largest = merged;
}

// out[i][d .. d + Vectors * lanes) = first ? sum : fma(sum, take, out * keep), sum = sum_j p_j * value[j][...]; all queries
// see as many tokens. `lanes` < kWideLanes only with one vector.
template <uint32_t Queries, uint32_t Vectors>
[[gnu::always_inline]] inline void value_tile(const AttentionState* states, const AttentionQuery* queries,
                                              const float* const* value, uint32_t offset, uint32_t d, uint32_t lanes, bool first) {
  Wide sum[Queries][Vectors];
#pragma GCC unroll 4
  for (uint32_t i = 0; i < Queries; ++i) {
#pragma GCC unroll 4
    for (uint32_t k = 0; k < Vectors; ++k) sum[i][k] = Wide::of(0.0f);
  }
  const uint32_t tokens = states[0].tokens;
  for (uint32_t j = 0; j < tokens; ++j) {
    Wide v[Vectors];
#pragma GCC unroll 4
    for (uint32_t k = 0; k < Vectors; ++k) {
      v[k] = Vectors > 1 ? load(value[j] + offset + k * kWideLanes) : load_lanes(value[j] + offset, lanes);
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < Queries; ++i) {
      const Wide weight = Wide::of(states[i].p[j]);
#pragma GCC unroll 4
      for (uint32_t k = 0; k < Vectors; ++k) sum[i][k] = fma(weight, v[k], sum[i][k]);
    }
  }
#pragma GCC unroll 4
  for (uint32_t i = 0; i < Queries; ++i) {
#pragma GCC unroll 4
    for (uint32_t k = 0; k < Vectors; ++k) {
      float* const place = queries[i].out + d + k * kWideLanes;
      const Wide kept = load_lanes(place, lanes) * Wide::of(states[i].keep);
      store_lanes(place, lanes, first ? sum[i][k] : fma(sum[i][k], Wide::of(states[i].take), kept));
    }
  }
}

// Queries [begin, begin + count) of one number of tokens, n elements from d on.
template <uint32_t Queries>
[[gnu::always_inline]] inline void value_strip(const AttentionState* states, const AttentionQuery* queries,
                                               const float* const* value, uint32_t d, uint32_t n, bool first) {
  if (n == kStrip) {
    value_tile<Queries, kValueVectors>(states, queries, value, 0, d, kWideLanes, first);
    return;
  }
  for (uint32_t i = 0; i < n; i += kWideLanes) {
    value_tile<Queries, 1>(states, queries, value, i, d + i, n - i < kWideLanes ? n - i : kWideLanes, first);
  }
}

template <typename Reader>
void attend(const AttentionQuery* queries, uint32_t n, const KvView& cache, const uint32_t* visible, float scale, Reader reader) {
  const uint32_t head_dim = cache.head_dim;
  AttentionState states[kAttentionQueries];
  alignas(64) float scratch[kAttentionChunk * kStrip > kKeyTile * kAttentionDimMax ? kAttentionChunk * kStrip
                                                                                   : kKeyTile * kAttentionDimMax];
  uint32_t longest = 0;
  for (uint32_t i = 0; i < n; ++i) longest = queries[i].count > longest ? queries[i].count : longest;

  for (uint32_t begin = 0; begin < longest; begin += kAttentionChunk) {
    const uint32_t tokens = longest - begin < kAttentionChunk ? longest - begin : kAttentionChunk;
    size_t at[kAttentionChunk];
    for (uint32_t j = 0; j < tokens; ++j) at[j] = (visible ? visible[begin + j] : begin + j) * cache.stride;
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t left = queries[i].count > begin ? queries[i].count - begin : 0;
      states[i].tokens = left < tokens ? left : tokens;
    }

    for (uint32_t j = 0; j < tokens; j += kKeyTile) {
      const float* key[kKeyTile];
      for (uint32_t k = 0; k < kKeyTile; ++k) {
        const uint32_t last = tokens - 1;  // a tile that reaches beyond the chunk repeats it
        const std::byte* const row = cache.keys + at[j + k < last ? j + k : last];
        key[k] = reader.read(row, 0, head_dim, head_dim, scratch + size_t{k} * head_dim);
      }
      uint32_t i = 0;
      for (; i + kScoreQueries <= n; i += kScoreQueries) {
        score_tile<kScoreQueries>({queries[i].q, queries[i + 1].q}, key, head_dim, scale, {states[i].p + j, states[i + 1].p + j});
      }
      if (i < n) score_tile<1>({queries[i].q}, key, head_dim, scale, {states[i].p + j});
    }

    const bool first = begin == 0;
    for (uint32_t i = 0; i < n; ++i) {
      if (states[i].tokens > 0) weigh(states[i], first);
    }

    for (uint32_t d = 0; d < head_dim; d += kStrip) {
      const uint32_t strip = head_dim - d < kStrip ? head_dim - d : kStrip;
      const float* value[kAttentionChunk];
      for (uint32_t j = 0; j < tokens; ++j) {
        value[j] = reader.read(cache.values + at[j], d, strip, head_dim, scratch + size_t{j} * kStrip);
      }
      for (uint32_t i = 0; i < n;) {
        uint32_t alike = 1;  // queries from i on that see as many tokens
        while (alike < kValueQueries && i + alike < n && states[i + alike].tokens == states[i].tokens) ++alike;
        if (states[i].tokens == 0) {
          i += alike;
        } else if (alike == kValueQueries) {
          value_strip<kValueQueries>(states + i, queries + i, value, d, strip, first);
          i += kValueQueries;
        } else {
          value_strip<1>(states + i, queries + i, value, d, strip, first);
          ++i;
        }
      }
    }
  }

  for (uint32_t i = 0; i < n; ++i) {
    if (queries[i].count == 0) continue;
    const Wide divisor = Wide::of(states[i].total);
    float* const out = queries[i].out;
    for_each_wide(head_dim, [&](uint32_t d, uint32_t, uint32_t lanes) {
      store_lanes(out + d, lanes, load_lanes(out + d, lanes) / divisor);
    });
  }
}

void vector_attention(const AttentionQuery* queries, uint32_t n, const KvView& cache, const uint32_t* visible, float scale) {
  TIERPACK_CHECK(n <= kAttentionQueries && cache.head_dim <= kAttentionDimMax);
  for (uint32_t i = 0; i < n; ++i) std::memset(queries[i].out, 0, cache.head_dim * sizeof(float));
  switch (cache.type) {
    case KvType::kF32: return attend(queries, n, cache, visible, scale, F32Reader{});
    case KvType::kF16: return attend(queries, n, cache, visible, scale, F16Reader{});
    case KvType::kQ8: return attend(queries, n, cache, visible, scale, Q8Reader{});
  }
}

}  // namespace
}  // namespace tierpack::kernels

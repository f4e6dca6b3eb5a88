// Attention of the query heads that share one KV head; follows `attention` in reference.cpp. Compiled by each instruction
// set's file, after its vector header.
//
// Chunk by chunk of visible tokens: some keys at a time meet all queries, then the values in strips. Every key and value
// comes from memory once a call, asked for a chunk's part ahead; those that several tiles of queries read are made f32 once. Tiles of
// queries keep their sums in registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "runtime/kernels/float_math.h"
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/vector_lanes.h"

namespace tierpack::kernels {
namespace {

constexpr uint32_t kKeyTile = 8;                               // a query's sums over so many keys are transposed together
constexpr uint32_t kPassPairs = kWideLanes == 16 ? 8 : 4;      // x 2 parts: sums in registers
constexpr uint32_t kScoreQueries = 2;
constexpr uint32_t kValueQueries = 4;
constexpr uint32_t kValueSums = kWideLanes == 16 ? 16 : 8;     // in registers
constexpr uint32_t kStrip = 64;                                // elements of values made f32 at a time
constexpr uint32_t kLine = 64;                                 // bytes

// Elements [d, d + lanes) of a cache row as f32. Up to kDirect queries, values are cheaper converted for each tile of them than once
// through memory.
struct F32Reader {
  static constexpr uint32_t kDirect = kAttentionQueries;
  Wide at(const std::byte* row, uint32_t d, uint32_t lanes, uint32_t) const {
    return load_lanes(reinterpret_cast<const float*>(row) + d, lanes);
  }
};

struct F16Reader {
  static constexpr uint32_t kDirect = 2 * kValueQueries;
  Wide at(const std::byte* row, uint32_t d, uint32_t lanes, uint32_t) const {
    const uint16_t* const halves = reinterpret_cast<const uint16_t*>(row) + d;
    return Wide{lanes == kWideLanes ? half_to_float(halves) : half_to_float_part(halves, lanes)};
  }
};

struct Q8Reader {  // all lanes, because head_dim is a multiple of 32
  static constexpr uint32_t kDirect = kValueQueries;
  Wide at(const std::byte* row, uint32_t d, uint32_t, uint32_t head_dim) const {
    float scale;
    std::memcpy(&scale, row + head_dim + d / 32 * sizeof scale, sizeof scale);
    return code_to_float(reinterpret_cast<const int8_t*>(row) + d) * Wide::of(scale);
  }
};

// Elements [d, d + n) of a row into out.
template <typename Reader>
[[gnu::always_inline]] inline void read_row(Reader reader, const std::byte* row, uint32_t d, uint32_t n, uint32_t head_dim, float* out) {
  uint32_t i = 0;
#pragma GCC unroll 8
  for (; i + kWideLanes <= n; i += kWideLanes) store(out + i, reader.at(row, d + i, kWideLanes, head_dim));
  if (i < n) store_part(out + i, n - i, reader.at(row, d + i, n - i, head_dim));
}

// joined[i * Keys + j] = the 32 partial sums of q[i] . key[j], added up to one vector. Two parts that meet first a pass.
template <uint32_t Queries, uint32_t Keys, typename Reader>
[[gnu::always_inline]] inline void dot_pairs(const float* const* q, const std::byte* const* key, uint32_t head_dim, Reader reader,
                                             Wide* joined) {
  static_assert(Queries * Keys == kPassPairs);
  constexpr uint32_t kPasses = kSumParts / 2;
#pragma GCC unroll 2
  for (uint32_t pass = 0; pass < kPasses; ++pass) {
    Wide sums[2][Queries][Keys];
#pragma GCC unroll 2
    for (uint32_t half = 0; half < 2; ++half) {
#pragma GCC unroll 2
      for (uint32_t i = 0; i < Queries; ++i) {
#pragma GCC unroll 8
        for (uint32_t j = 0; j < Keys; ++j) sums[half][i][j] = Wide::of(0.0f);
      }
    }
    const auto step = [&](uint32_t d, uint32_t lanes, uint32_t half) __attribute__((always_inline)) {
      Wide k[Keys];
#pragma GCC unroll 8
      for (uint32_t j = 0; j < Keys; ++j) k[j] = reader.at(key[j], d, lanes, head_dim);
#pragma GCC unroll 2
      for (uint32_t i = 0; i < Queries; ++i) {
        const Wide x = load_lanes(q[i] + d, lanes);
#pragma GCC unroll 8
        for (uint32_t j = 0; j < Keys; ++j) sums[half][i][j] = Wide{fma_lanes(x.value, k[j].value, sums[half][i][j].value, lanes)};
      }
    };
    uint32_t d = pass * kWideLanes;
    const uint32_t whole = head_dim / 32 * 32;
#pragma GCC unroll 4
    for (; d < whole; d += 32) {
      step(d, kWideLanes, 0);
      step(d + 16, kWideLanes, 1);
    }
    if (d < head_dim) step(d, head_dim - d < kWideLanes ? head_dim - d : kWideLanes, 0);
    d += 16;
    if (d < head_dim) step(d, head_dim - d < kWideLanes ? head_dim - d : kWideLanes, 1);
#pragma GCC unroll 2
    for (uint32_t i = 0; i < Queries; ++i) {
#pragma GCC unroll 8
      for (uint32_t j = 0; j < Keys; ++j) {
        Wide& place = joined[i * Keys + j];
        const Wide both = sums[0][i][j] + sums[1][i][j];
        place = pass == 0 ? both : place + both;
      }
    }
  }
}

// p[i][0 .. kKeyTile) = q[i] . key[j] * scale.
template <uint32_t Queries, typename Reader>
[[gnu::always_inline]] inline void score_tile(const float* const* q, const std::byte* const* key, uint32_t head_dim, float scale,
                                              Reader reader, float* const* p) {
  constexpr uint32_t kKeys = kPassPairs / Queries;
  constexpr uint32_t kTreeKeys = 8 / Queries;  // a tree adds up 8 vectors
  for (uint32_t first = 0; first < kKeyTile; first += kTreeKeys) {
    Wide joined[8];
#pragma GCC unroll 2
    for (uint32_t part = 0; part < kTreeKeys; part += kKeys) {
      dot_pairs<Queries, kKeys>(q, key + first + part, head_dim, reader, joined + part * Queries);
    }
    alignas(64) float sums[kWideLanes];
    store(sums, tree_sums(joined) * Wide::of(scale));
#pragma GCC unroll 2
    for (uint32_t part = 0; part < kTreeKeys; part += kKeys) {
#pragma GCC unroll 2
      for (uint32_t i = 0; i < Queries; ++i) {
        std::memcpy(p[i] + first + part, sums + part * Queries + i * kKeys, kKeys * sizeof(float));
      }
    }
  }
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
  alignas(64) float factors[kWideLanes] = {first ? merged : s.largest, chunk_largest};
  store(factors, exp(load(factors) - Wide::of(merged)));
  s.keep = first ? 0.0f : factors[0];
  s.take = factors[1];
  s.total = first ? chunk_total : __builtin_fmaf(chunk_total, s.take, s.total * s.keep);
  s.largest = merged;
}

// out[i][d .. d + Vectors * lanes) = first ? sum : fma(sum, take, out * keep), sum = sum_j p_j * value[j][...]; all queries
// see as many tokens. Rows hold width elements, of which the first wanted is `offset`. `lanes` < kWideLanes only with one vector.
template <uint32_t Queries, uint32_t Vectors, typename Reader>
[[gnu::always_inline]] inline void value_tile(const AttentionState* states, const AttentionQuery* queries, const std::byte* const* value,
                                              uint32_t offset, uint32_t d, uint32_t lanes, uint32_t width, Reader reader, bool first) {
  Wide sum[Queries][Vectors];
#pragma GCC unroll 4
  for (uint32_t i = 0; i < Queries; ++i) {
#pragma GCC unroll 8
    for (uint32_t k = 0; k < Vectors; ++k) sum[i][k] = Wide::of(0.0f);
  }
  const uint32_t tokens = states[0].tokens;
  for (uint32_t j = 0; j < tokens; ++j) {
    Wide v[Vectors];
#pragma GCC unroll 8
    for (uint32_t k = 0; k < Vectors; ++k) {
      v[k] = reader.at(value[j], offset + k * kWideLanes, Vectors > 1 ? kWideLanes : lanes, width);
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < Queries; ++i) {
      const Wide weight = Wide::of(states[i].p[j]);
#pragma GCC unroll 8
      for (uint32_t k = 0; k < Vectors; ++k) sum[i][k] = fma(weight, v[k], sum[i][k]);
    }
  }
#pragma GCC unroll 4
  for (uint32_t i = 0; i < Queries; ++i) {
#pragma GCC unroll 8
    for (uint32_t k = 0; k < Vectors; ++k) {
      float* const place = queries[i].out + d + k * kWideLanes;
      const Wide kept = load_lanes(place, lanes) * Wide::of(states[i].keep);
      store_lanes(place, lanes, first ? sum[i][k] : fma(sum[i][k], Wide::of(states[i].take), kept));
    }
  }
}

// The same for n elements.
template <uint32_t Queries, typename Reader>
void value_strip(const AttentionState* states, const AttentionQuery* queries, const std::byte* const* value, uint32_t offset,
                 uint32_t d, uint32_t n, uint32_t width, Reader reader, bool first) {
  constexpr uint32_t kVectors = kValueSums / Queries < kStrip / kWideLanes ? kValueSums / Queries : kStrip / kWideLanes;
  uint32_t i = 0;
  for (; i + kVectors * kWideLanes <= n; i += kVectors * kWideLanes) {
    value_tile<Queries, kVectors>(states, queries, value, offset + i, d + i, kWideLanes, width, reader, first);
  }
  for (; i < n; i += kWideLanes) {
    value_tile<Queries, 1>(states, queries, value, offset + i, d + i, n - i < kWideLanes ? n - i : kWideLanes, width, reader, first);
  }
}

// The same for all queries, by tiles of those that see as many tokens.
template <typename Reader>
void value_strips(const AttentionState* states, const AttentionQuery* queries, uint32_t count, const std::byte* const* value,
                  uint32_t offset, uint32_t d, uint32_t n, uint32_t width, Reader reader, bool first) {
  for (uint32_t i = 0; i < count;) {
    uint32_t alike = 1;
    while (alike < kValueQueries && i + alike < count && states[i + alike].tokens == states[i].tokens) ++alike;
    if (states[i].tokens > 0) {
      const auto strip = alike == 1   ? value_strip<1, Reader>
                         : alike == 2 ? value_strip<2, Reader>
                         : alike == 3 ? value_strip<3, Reader>
                                      : value_strip<4, Reader>;
      strip(states + i, queries + i, value, offset, d, n, width, reader, first);
    }
    i += alike;
  }
}

// Asks for rows [begin, end) of a chunk, into the second-level cache: requests into the first are too few at a time.
inline void request(const std::byte* rows, const size_t* at, uint32_t begin, uint32_t end, uint32_t bytes) {
  for (uint32_t j = begin; j < end; ++j) {
    for (uint32_t b = 0; b < bytes; b += kLine) __builtin_prefetch(rows + at[j] + b, 0, 2);
  }
}

template <typename Reader>
void attend(const AttentionQuery* queries, uint32_t n, const KvView& cache, const uint32_t* visible, float scale, Reader reader) {
  const uint32_t head_dim = cache.head_dim;
  const auto bytes = static_cast<uint32_t>(kv_row_bytes(cache.type, head_dim));
  AttentionState states[kAttentionQueries];
  alignas(64) float scratch[kKeyTile * kAttentionDimMax];
  static_assert(kKeyTile * kAttentionDimMax >= kAttentionChunk * kStrip);
  uint32_t longest = 0;
  for (uint32_t i = 0; i < n; ++i) longest = queries[i].count > longest ? queries[i].count : longest;
  const auto rows_of = [&](uint32_t begin, size_t* at) {  // offsets of a chunk's rows; how many
    const uint32_t tokens = longest - begin < kAttentionChunk ? longest - begin : kAttentionChunk;
    for (uint32_t j = 0; j < tokens; ++j) at[j] = (visible ? visible[begin + j] : begin + j) * cache.stride;
    return tokens;
  };
  size_t offsets[2][kAttentionChunk];
  uint32_t tokens = rows_of(0, offsets[0]);

  for (uint32_t begin = 0; begin < longest; begin += kAttentionChunk) {
    const size_t* const at = offsets[begin / kAttentionChunk % 2];
    size_t* const next_at = offsets[(begin / kAttentionChunk + 1) % 2];
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t left = queries[i].count > begin ? queries[i].count - begin : 0;
      states[i].tokens = left < tokens ? left : tokens;
    }

    for (uint32_t j = 0; j < tokens; j += kKeyTile) {
      const std::byte* key[kKeyTile];
      for (uint32_t k = 0; k < kKeyTile; ++k) {
        const uint32_t last = tokens - 1;  // a tile that reaches beyond the chunk repeats it
        key[k] = cache.keys + at[j + k < last ? j + k : last];
      }
      request(cache.values, at, j, j + kKeyTile < tokens ? j + kKeyTile : tokens, bytes);
      const auto score_all = [&](auto key_reader) __attribute__((always_inline)) {
        uint32_t i = 0;
        for (; i + kScoreQueries <= n; i += kScoreQueries) {
          const float* const q[] = {queries[i].q, queries[i + 1].q};
          float* const p[] = {states[i].p + j, states[i + 1].p + j};
          score_tile<kScoreQueries>(q, key, head_dim, scale, key_reader, p);
        }
        if (i == n) return;
        float* const p = states[i].p + j;
        score_tile<1>(&queries[i].q, key, head_dim, scale, key_reader, &p);
      };
      if (n <= kScoreQueries) {
        score_all(reader);
        continue;
      }
      if constexpr (!std::is_same_v<Reader, F32Reader>) {
        for (uint32_t k = 0; k < kKeyTile; ++k) {
          float* const row = scratch + size_t{k} * head_dim;
          read_row(reader, key[k], 0, head_dim, head_dim, row);
          key[k] = reinterpret_cast<const std::byte*>(row);
        }
      }
      score_all(F32Reader{});
    }

    const bool first = begin == 0;
    for (uint32_t i = 0; i < n; ++i) {
      if (states[i].tokens > 0) weigh(states[i], first);
    }

    const uint32_t next = begin + kAttentionChunk < longest ? rows_of(begin + kAttentionChunk, next_at) : 0;
    const std::byte* value[kAttentionChunk];
    for (uint32_t d = 0; d < head_dim; d += kStrip) {
      const uint32_t strip = head_dim - d < kStrip ? head_dim - d : kStrip;
      request(cache.keys, next_at, next * d / head_dim, next * (d + strip) / head_dim, bytes);
      if (n <= Reader::kDirect) {
        for (uint32_t j = 0; j < tokens; ++j) value[j] = cache.values + at[j];
        value_strips(states, queries, n, value, d, d, strip, head_dim, reader, first);
        continue;
      }
      for (uint32_t j = 0; j < tokens; ++j) {
        float* const row = scratch + size_t{j} * kStrip;
        if (strip == kStrip) read_row(reader, cache.values + at[j], d, kStrip, head_dim, row);
        else read_row(reader, cache.values + at[j], d, strip, head_dim, row);
        value[j] = reinterpret_cast<const std::byte*>(row);
      }
      value_strips(states, queries, n, value, 0, d, strip, kStrip, F32Reader{}, first);
    }
    tokens = next;
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

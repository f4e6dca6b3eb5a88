// Fields of packed blocks in the registers of a thread: units of 4 bytes and scales of 4, 2 or 1 rows that lie side by side.
//
// A source is where a decoder (device_decoders.cuh) gets the fields of one packed block from:
//   GroupColumn<4>, <2>   a column of a row group (formats/row_groups.h): 4 or 2 rows from a multiple of 4 or 2 on, by loads of 16 or
//                         8 bytes for a unit; the group begins at a multiple of 16 bytes
//   PlainBlock            a block of a row behind the last whole group, at any address: byte by byte
//   Recording, Replaying  a source read ahead into registers, and what was read
// Only *.cu and *.cuh include this.
#pragma once

#include "runtime/kernels/cuda/dialect.cuh"

namespace tierpack::kernels::cuda {

#define TIERPACK_DEVICE __device__ __forceinline__

// One 32-bit word, and one float, for each of N rows.
template <unsigned N>
struct Words {
  uint32_t of[N];
};
template <unsigned N>
struct Floats {
  float of[N];
};

template <unsigned N, typename F>
TIERPACK_DEVICE Words<N> each_word(F f) {
  Words<N> result;
#pragma unroll
  for (unsigned r = 0; r < N; ++r) result.of[r] = f(r);
  return result;
}
template <unsigned N, typename F>
TIERPACK_DEVICE Floats<N> each_float(F f) {
  Floats<N> result;
#pragma unroll
  for (unsigned r = 0; r < N; ++r) result.of[r] = f(r);
  return result;
}
// f(r) for each of N rows, as many as `like` has.
template <unsigned N, typename F>
TIERPACK_DEVICE Words<N> each_row(const Words<N>&, F f) {
  return each_word<N>(f);
}
// f(word) for each.
template <unsigned N, typename F>
TIERPACK_DEVICE Words<N> map(Words<N> words, F f) {
  return each_word<N>([&](unsigned r) { return f(words.of[r]); });
}
template <unsigned N, typename F>
TIERPACK_DEVICE Floats<N> map_float(Words<N> words, F f) {
  return each_float<N>([&](unsigned r) { return f(words.of[r]); });
}
template <unsigned N>
TIERPACK_DEVICE Words<N> operator&(Words<N> a, uint32_t mask) {
  return map(a, [&](uint32_t word) { return word & mask; });
}
template <unsigned N>
TIERPACK_DEVICE Words<N> operator|(Words<N> a, Words<N> b) {
  return each_word<N>([&](unsigned r) { return a.of[r] | b.of[r]; });
}
template <unsigned N>
TIERPACK_DEVICE Words<N> operator>>(Words<N> a, unsigned count) {
  return map(a, [&](uint32_t word) { return word >> count; });
}
template <unsigned N>
TIERPACK_DEVICE Words<N> operator<<(Words<N> a, unsigned count) {
  return map(a, [&](uint32_t word) { return word << count; });
}
template <unsigned N>
TIERPACK_DEVICE Words<N> select(bool condition, Words<N> yes, Words<N> no) {
  return each_word<N>([&](unsigned r) { return condition ? yes.of[r] : no.of[r]; });
}
template <unsigned N>
TIERPACK_DEVICE Floats<N> from_halves(Words<N> bits) {
  return map_float(bits, [&](uint32_t word) { return half_to_float(static_cast<uint16_t>(word)); });
}

template <unsigned Rows>
struct GroupColumn {
  static_assert(Rows == 4 || Rows == 2);
  static constexpr unsigned rows = Rows;
  const uint8_t* column;
  unsigned row;  // the first
  const uint32_t* grids;

  // Unit u of the field at byte `offset` of the block.
  TIERPACK_DEVICE Words<Rows> unit(unsigned offset, unsigned u) const {
    const uint8_t* at = column + (16 * offset + 64 * u + 4 * row);
    if constexpr (Rows == 4) {
      const uint4 v = __ldg(reinterpret_cast<const uint4*>(at));
      return {{v.x, v.y, v.z, v.w}};
    } else {
      const uint2 v = __ldg(reinterpret_cast<const uint2*>(at));
      return {{v.x, v.y}};
    }
  }
  // A field of two bytes, of one.
  TIERPACK_DEVICE Words<Rows> shorts(unsigned offset) const {
    const uint8_t* at = column + (16 * offset + 2 * row);
    if constexpr (Rows == 4) {
      const uint2 v = __ldg(reinterpret_cast<const uint2*>(at));
      return {{v.x & 0xFFFFu, v.x >> 16, v.y & 0xFFFFu, v.y >> 16}};
    } else {
      const uint32_t v = __ldg(reinterpret_cast<const uint32_t*>(at));
      return {{v & 0xFFFFu, v >> 16}};
    }
  }
  TIERPACK_DEVICE Words<Rows> single_bytes(unsigned offset) const {
    const uint8_t* at = column + (16 * offset + row);
    if constexpr (Rows == 4) {
      const uint32_t v = __ldg(reinterpret_cast<const uint32_t*>(at));
      return {{v & 255u, (v >> 8) & 255u, (v >> 16) & 255u, v >> 24}};
    } else {
      const uint32_t v = __ldg(reinterpret_cast<const uint16_t*>(at));
      return {{v & 255u, v >> 8}};
    }
  }
  // Word `index` of the grid tables (grid_layout.h), and their 16 bits `index`.
  TIERPACK_DEVICE uint32_t grid_word(uint32_t index) const { return __ldg(grids + index); }
  TIERPACK_DEVICE uint32_t grid_short(uint32_t index) const { return __ldg(reinterpret_cast<const uint16_t*>(grids) + index); }
};

struct PlainBlock {
  static constexpr unsigned rows = 1;
  const uint8_t* block;
  const uint32_t* grids;

  TIERPACK_DEVICE Words<1> unit(unsigned offset, unsigned u) const {
    const uint8_t* at = block + (offset + 4 * u);
    const uint32_t b0 = __ldg(at), b1 = __ldg(at + 1), b2 = __ldg(at + 2), b3 = __ldg(at + 3);
    return {{b0 | b1 << 8 | b2 << 16 | b3 << 24}};
  }
  TIERPACK_DEVICE Words<1> shorts(unsigned offset) const {
    const uint32_t b0 = __ldg(block + offset), b1 = __ldg(block + offset + 1);
    return {{b0 | b1 << 8}};
  }
  TIERPACK_DEVICE Words<1> single_bytes(unsigned offset) const { return {{static_cast<uint32_t>(__ldg(block + offset))}}; }
  TIERPACK_DEVICE uint32_t grid_word(uint32_t index) const { return __ldg(grids + index); }
  TIERPACK_DEVICE uint32_t grid_short(uint32_t index) const { return __ldg(reinterpret_cast<const uint16_t*>(grids) + index); }
};

// Fields that were read ahead. A decoder asks for fields whose number and order depend on its type alone, and which of them it asks
// for does not depend on their values; so what it reads in one pass whose results are dropped serves a second pass. Table words are
// looked up in the second.
inline constexpr unsigned kFieldsAhead = 24;
template <unsigned Rows>
struct FieldsAhead {
  Words<Rows> field[kFieldsAhead];
};

template <class Source>
struct Recording {
  static constexpr unsigned rows = Source::rows;
  Source source;
  FieldsAhead<rows>& ahead;
  mutable unsigned count = 0;

  TIERPACK_DEVICE Recording(Source s, FieldsAhead<rows>& a) : source(s), ahead(a) {}
  TIERPACK_DEVICE Words<rows> unit(unsigned offset, unsigned u) const { return ahead.field[count++] = source.unit(offset, u); }
  TIERPACK_DEVICE Words<rows> shorts(unsigned offset) const { return ahead.field[count++] = source.shorts(offset); }
  TIERPACK_DEVICE Words<rows> single_bytes(unsigned offset) const { return ahead.field[count++] = source.single_bytes(offset); }
  TIERPACK_DEVICE uint32_t grid_word(uint32_t) const { return 0; }
  TIERPACK_DEVICE uint32_t grid_short(uint32_t) const { return 0; }
};

template <unsigned Rows>
struct Replaying {
  static constexpr unsigned rows = Rows;
  const FieldsAhead<Rows>& ahead;
  const uint32_t* grids;
  mutable unsigned count = 0;

  TIERPACK_DEVICE Replaying(const FieldsAhead<Rows>& a, const uint32_t* g) : ahead(a), grids(g) {}
  TIERPACK_DEVICE Words<Rows> unit(unsigned, unsigned) const { return ahead.field[count++]; }
  TIERPACK_DEVICE Words<Rows> shorts(unsigned) const { return ahead.field[count++]; }
  TIERPACK_DEVICE Words<Rows> single_bytes(unsigned) const { return ahead.field[count++]; }
  TIERPACK_DEVICE uint32_t grid_word(uint32_t index) const { return __ldg(grids + index); }
  TIERPACK_DEVICE uint32_t grid_short(uint32_t index) const { return __ldg(reinterpret_cast<const uint16_t*>(grids) + index); }
};

}  // namespace tierpack::kernels::cuda

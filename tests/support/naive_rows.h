// Rows of a source written from the table in formats/source_rows.h one nibble at a time: slow, and independent of RowMover.
#pragma once

#include <vector>

#include "formats/dtype.h"
#include "formats/source_rows.h"

namespace tierpack::testing_support {

// Column of the tensor that column c of the source is.
inline uint64_t naive_column(const RowLayout& layout, uint64_t c) {
  const ColumnTiles& tiles = layout.tiles;
  if (tiles.groups == 0) return layout.first_column + c;
  const uint64_t block = c / tiles.block;
  const uint64_t g = block / tiles.per_group;
  const uint64_t j = block % tiles.per_group;
  return layout.first_column + (j * tiles.groups + g) * tiles.block + c % tiles.block;
}

// A reference to a nibble or byte of a row.
struct NaivePlace {
  uint64_t byte = 0;
  int shift = -1;  // of a nibble; -1: the whole byte
};

inline NaivePlace naive_target(RowField field, uint64_t column) {
  switch (field) {
    case RowField::kNvfp4Codes: {
      const uint64_t s = column % 64 / 16, e = column % 16;
      return {column / 64 * 36 + 4 + 8 * s + e % 8, e < 8 ? 0 : 4};
    }
    case RowField::kNvfp4Scales: return {column / 64 * 36 + column % 64 / 16, -1};
    case RowField::kMxfp4Codes: {
      const uint64_t e = column % 32;
      return {column / 32 * 17 + 1 + e % 16, e < 16 ? 0 : 4};
    }
    case RowField::kMxfp4Scales: return {column / 32 * 17, -1};
    case RowField::kValues: break;
  }
  return {};
}

// Calls move(place in the source's row, place in the target's row) for everything that a row of the layout holds.
template <typename Move>
void naive_moves(const RowLayout& layout, const Move& move) {
  for (uint64_t c = 0; c < layout.columns; ++c) {
    const uint64_t column = naive_column(layout, c);
    switch (layout.field) {
      case RowField::kValues: {
        const uint64_t bytes = traits(layout.dtype).block_bytes;
        for (uint64_t i = 0; i < bytes; ++i) move(NaivePlace{c * bytes + i, -1}, NaivePlace{column * bytes + i, -1});
        break;
      }
      case RowField::kNvfp4Codes:
      case RowField::kMxfp4Codes: move(NaivePlace{c / 2, c % 2 == 0 ? 0 : 4}, naive_target(layout.field, column)); break;
      case RowField::kNvfp4Scales:
        if (c % 16 == 0) move(NaivePlace{c / 16, -1}, naive_target(layout.field, column));
        break;
      case RowField::kMxfp4Scales:
        if (c % 32 == 0) move(NaivePlace{c / 32, -1}, naive_target(layout.field, column));
        break;
    }
  }
}

inline void naive_copy(const std::byte* from, NaivePlace from_place, std::byte* to, NaivePlace to_place) {
  if (from_place.shift < 0) {
    to[to_place.byte] = from[from_place.byte];
    return;
  }
  const std::byte nibble = (from[from_place.byte] >> from_place.shift) & std::byte{15};
  to[to_place.byte] = (to[to_place.byte] & ~(std::byte{15} << to_place.shift)) | nibble << to_place.shift;
}

inline uint64_t naive_row_bytes(const RowLayout& layout) {
  switch (layout.field) {
    case RowField::kValues: return layout.columns * traits(layout.dtype).block_bytes;
    case RowField::kNvfp4Codes:
    case RowField::kMxfp4Codes: return layout.columns / 2;
    case RowField::kNvfp4Scales: return layout.columns / 16;
    case RowField::kMxfp4Scales: return layout.columns / 32;
  }
  return 0;
}

// One row of the source from a row of the tensor.
inline std::vector<std::byte> naive_source_row(const RowLayout& layout, const std::byte* target) {
  std::vector<std::byte> out(naive_row_bytes(layout));
  naive_moves(layout, [&](NaivePlace source, NaivePlace place) { naive_copy(target, place, out.data(), source); });
  return out;
}

}  // namespace tierpack::testing_support

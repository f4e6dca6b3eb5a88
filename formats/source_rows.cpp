#include "formats/source_rows.h"

#include <cstring>

#include "base/error.h"

namespace tierpack {

namespace {

// Nibble i of the result's byte i, for the 8 nibbles of x.
uint64_t spread_nibbles(uint32_t x) {
  uint64_t v = x;
  v = (v | v << 16) & 0x0000FFFF0000FFFFull;
  v = (v | v << 8) & 0x00FF00FF00FF00FFull;
  return (v | v << 4) & 0x0F0F0F0F0F0F0F0Full;
}

// The low nibbles of the 8 bytes of v.
uint32_t gather_nibbles(uint64_t v) {
  v &= 0x0F0F0F0F0F0F0F0Full;
  v = (v | v >> 4) & 0x00FF00FF00FF00FFull;
  v = (v | v >> 8) & 0x0000FFFF0000FFFFull;
  return static_cast<uint32_t>(v | v >> 16);
}

// Nibbles 0 .. 15 in order <-> byte j = nibble j, nibble j + 8.
uint64_t split_halves(uint64_t in_order) {
  return spread_nibbles(static_cast<uint32_t>(in_order)) | spread_nibbles(static_cast<uint32_t>(in_order >> 32)) << 4;
}
uint64_t join_halves(uint64_t halves) {
  return gather_nibbles(halves) | uint64_t{gather_nibbles(halves >> 4)} << 32;
}

constexpr uint64_t kNvfp4Block = 64, kNvfp4Bytes = 36, kNvfp4Scales = 4;
constexpr uint64_t kMxfp4Block = 32, kMxfp4Bytes = 17;

std::byte* nvfp4_codes_at(std::byte* row, uint64_t column) {
  return row + column / kNvfp4Block * kNvfp4Bytes + kNvfp4Scales + column % kNvfp4Block / 2;
}
std::byte* nvfp4_scale_at(std::byte* row, uint64_t column) {
  return row + column / kNvfp4Block * kNvfp4Bytes + column % kNvfp4Block / 16;
}

// One run of columns in one direction; `Insert` writes the target's row, else the source's.
template <bool Insert>
void move_run(RowField field, uint32_t element_bytes, std::byte* source, uint64_t source_column, std::byte* target,
              uint64_t target_column, uint64_t columns) {
  const auto copy = [](std::byte* in_source, std::byte* in_target, size_t n) {
    Insert ? std::memcpy(in_target, in_source, n) : std::memcpy(in_source, in_target, n);
  };
  switch (field) {
    case RowField::kValues:
      copy(source + source_column * element_bytes, target + target_column * element_bytes, columns * element_bytes);
      return;
    case RowField::kNvfp4Codes:
      for (uint64_t c = 0; c < columns; c += 16) {
        std::byte* const s = source + (source_column + c) / 2;
        std::byte* const t = nvfp4_codes_at(target, target_column + c);
        Insert ? store(t, split_halves(load<uint64_t>(s))) : store(s, join_halves(load<uint64_t>(t)));
      }
      return;
    case RowField::kNvfp4Scales:
      for (uint64_t c = 0; c < columns; c += 16) {
        copy(source + (source_column + c) / 16, nvfp4_scale_at(target, target_column + c), 1);
      }
      return;
    case RowField::kMxfp4Codes:
      for (uint64_t c = 0; c < columns; c += 32) {
        std::byte* const s = source + (source_column + c) / 2;
        std::byte* const t = target + (target_column + c) / kMxfp4Block * kMxfp4Bytes + 1;
        if (Insert) {
          const auto low = load<uint64_t>(s);
          const auto high = load<uint64_t>(s + 8);
          store(t, spread_nibbles(static_cast<uint32_t>(low)) | spread_nibbles(static_cast<uint32_t>(high)) << 4);
          store(t + 8, spread_nibbles(static_cast<uint32_t>(low >> 32)) | spread_nibbles(static_cast<uint32_t>(high >> 32)) << 4);
        } else {
          const auto first = load<uint64_t>(t);
          const auto second = load<uint64_t>(t + 8);
          store(s, gather_nibbles(first) | uint64_t{gather_nibbles(second)} << 32);
          store(s + 8, gather_nibbles(first >> 4) | uint64_t{gather_nibbles(second >> 4)} << 32);
        }
      }
      return;
    case RowField::kMxfp4Scales:
      for (uint64_t c = 0; c < columns; c += 32) {
        copy(source + (source_column + c) / 32, target + (target_column + c) / kMxfp4Block * kMxfp4Bytes, 1);
      }
      return;
  }
}

bool field_fits(RowField field, DType dtype) {
  switch (field) {
    case RowField::kValues: return !traits(dtype).quantised && traits(dtype).block_elements == 1;
    case RowField::kNvfp4Codes:
    case RowField::kNvfp4Scales: return dtype == DType::kNVFP4;
    case RowField::kMxfp4Codes:
    case RowField::kMxfp4Scales: return dtype == DType::kMXFP4;
  }
  return false;
}

}  // namespace

uint32_t field_columns(RowField field) {
  switch (field) {
    case RowField::kValues: return 1;
    case RowField::kNvfp4Codes:
    case RowField::kNvfp4Scales: return 16;
    case RowField::kMxfp4Codes:
    case RowField::kMxfp4Scales: return 32;
  }
  TIERPACK_CHECK(false);
  return 1;
}

uint64_t field_row_bytes(RowField field, DType dtype, uint64_t columns) {
  switch (field) {
    case RowField::kValues: return row_bytes(dtype, columns);
    case RowField::kNvfp4Codes:
    case RowField::kMxfp4Codes: return columns / 2;
    case RowField::kNvfp4Scales: return columns / 16;
    case RowField::kMxfp4Scales: return columns / 32;
  }
  TIERPACK_CHECK(false);
  return 0;
}

std::optional<const char*> layout_problem(const RowLayout& layout) {
  if (!field_fits(layout.field, layout.dtype)) return "the field is not one of the tensor's type";
  const uint32_t step = field_columns(layout.field);
  if (!makes_rows(layout.dtype, layout.target_columns)) return "the target is not made of whole blocks";
  if (layout.columns == 0 || layout.columns % step != 0 || layout.first_column % step != 0) return "columns are cut inside a block";
  if (layout.first_column > layout.target_columns || layout.columns > layout.target_columns - layout.first_column) {
    return "columns leave the tensor";
  }
  const ColumnTiles& tiles = layout.tiles;
  if (tiles.groups == 0) return tiles == ColumnTiles{} ? std::nullopt : std::optional("tiles without groups");
  if (tiles.per_group == 0 || tiles.block == 0 || tiles.block % step != 0) return "tiles are cut inside a block";
  const std::optional<uint64_t> blocks = checked_mul(tiles.groups, tiles.per_group);
  const std::optional<uint64_t> columns = blocks ? checked_mul(*blocks, tiles.block) : std::nullopt;
  if (!columns || *columns != layout.columns) return "tiles do not make up the columns";
  return std::nullopt;
}

RowMover::RowMover(const RowLayout& layout) : layout_(layout) {
  TIERPACK_CHECK(!layout_problem(layout));
  source_row_bytes_ = field_row_bytes(layout.field, layout.dtype, layout.columns);
  target_row_bytes_ = row_bytes(layout.dtype, layout.target_columns);
  const ColumnTiles& tiles = layout.tiles;
  if (tiles.groups == 0) {
    runs_.push_back({0, layout.first_column, layout.columns});
    return;
  }
  for (uint64_t g = 0; g < tiles.groups; ++g) {
    for (uint64_t j = 0; j < tiles.per_group; ++j) {
      runs_.push_back({(g * tiles.per_group + j) * tiles.block, layout.first_column + (j * tiles.groups + g) * tiles.block, tiles.block});
    }
  }
}

bool RowMover::identity() const {
  return layout_.field == RowField::kValues && runs_.size() == 1 && layout_.columns == layout_.target_columns;
}

void RowMover::insert(uint64_t rows, const std::byte* source, uint64_t source_stride, std::byte* target) const {
  if (identity() && source_stride == source_row_bytes_) {
    std::memcpy(target, source, rows * source_stride);
    return;
  }
  for (uint64_t r = 0; r < rows; ++r) {
    for (const Run& run : runs_) {
      move_run<true>(layout_.field, traits(layout_.dtype).block_bytes, const_cast<std::byte*>(source) + r * source_stride, run.source,
                     target + r * target_row_bytes_, run.target, run.columns);
    }
  }
}

void RowMover::extract(uint64_t rows, const std::byte* target, std::byte* source, uint64_t source_stride) const {
  if (identity() && source_stride == source_row_bytes_) {
    std::memcpy(source, target, rows * source_stride);
    return;
  }
  for (uint64_t r = 0; r < rows; ++r) {
    for (const Run& run : runs_) {
      move_run<false>(layout_.field, traits(layout_.dtype).block_bytes, source + r * source_stride, run.source,
                      const_cast<std::byte*>(target) + r * target_row_bytes_, run.target, run.columns);
    }
  }
}

}  // namespace tierpack

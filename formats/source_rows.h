// How rows of a source's tensor lie in the rows of a pack's tensor, and the way there and back. A pack keeps weights in ggml's blocks; a
// safetensors checkpoint keeps the codes and the block scales of a weight apart, in another order of nibbles, sometimes with other
// columns. Each of these is a permutation of bytes, so the source comes back exactly.
//
//   field          bytes of a source row                 place in the target's row
//   values         columns * element                     as they are (plain numbers)
//   nvfp4_codes    columns / 2, element 2k in the low    qs of blocks of 64: byte 8s + j of a block holds elements 16s + j (low)
//                  nibble of byte k, 2k + 1 in the high  and 16s + j + 8 (high)
//   nvfp4_scales   columns / 16                          d[s] of the blocks
//   mxfp4_codes    columns / 2, nibbles as above         qs of blocks of 32: byte j holds elements j (low) and j + 16 (high)
//   mxfp4_scales   columns / 32                          e of the blocks
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "formats/dtype.h"

namespace tierpack {

enum class RowField : uint32_t { kValues = 0, kNvfp4Codes = 1, kNvfp4Scales = 2, kMxfp4Codes = 3, kMxfp4Scales = 4 };
inline constexpr uint32_t kRowFields = 5;

// A permutation of blocks of columns: block g * per_group + j of the source is block j * groups + g of the target. None when groups = 0.
struct ColumnTiles {
  uint32_t groups = 0;
  uint32_t per_group = 0;
  uint32_t block = 0;  // elements
  bool operator==(const ColumnTiles&) const = default;
};

// The columns of a source's rows in those of the target.
struct RowLayout {
  DType dtype = DType::kF32;     // of the target
  uint64_t target_columns = 0;
  RowField field = RowField::kValues;
  uint64_t first_column = 0;     // of the target
  uint64_t columns = 0;          // of the source
  ColumnTiles tiles;
};

// Columns that cannot be parted: 1 for values, 16 and 32 for the block types.
uint32_t field_columns(RowField field);
// Bytes of a row of `columns` elements in the source; `columns` is a multiple of field_columns().
uint64_t field_row_bytes(RowField field, DType dtype, uint64_t columns);
// Why a layout is none: the field is not one of the type, columns are cut inside a block, or leave the target. nullopt when it is one.
std::optional<const char*> layout_problem(const RowLayout& layout);

// Moves rows between the two orders. A target's row has row_bytes(dtype, target_columns) bytes; of those the layout's share is written
// or read. A source's row begins `source_stride` bytes after the one before it.
class RowMover {
 public:
  explicit RowMover(const RowLayout& layout);
  const RowLayout& layout() const { return layout_; }
  uint64_t source_row_bytes() const { return source_row_bytes_; }
  uint64_t target_row_bytes() const { return target_row_bytes_; }
  // True when a row is the same bytes on both sides.
  bool identity() const;
  void insert(uint64_t rows, const std::byte* source, uint64_t source_stride, std::byte* target) const;
  void extract(uint64_t rows, const std::byte* target, std::byte* source, uint64_t source_stride) const;

 private:
  struct Run {
    uint64_t source = 0, target = 0, columns = 0;
  };
  RowLayout layout_;
  std::vector<Run> runs_;
  uint64_t source_row_bytes_ = 0;
  uint64_t target_row_bytes_ = 0;
};

}  // namespace tierpack

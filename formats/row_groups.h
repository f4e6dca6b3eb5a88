// Row groups: how quantised matrices lie in a pack, so that one layout serves AVX2, AVX-512 and CUDA without reshuffling.
//
// Sixteen consecutive rows form a group. A group is a sequence of columns of blocks; the 16 blocks of a column, one of each
// row, are stored together field by field in the order of the block's struct (formats/dtype_blocks.h): a field is cut into units
// of 4 bytes (fields of 2 bytes and of 1 byte are one unit), and unit u of rows 0 .. 15 follow each other:
//
//   column c of a group:   field 0: unit 0 of row 0, of row 1, ... of row 15; unit 1 of row 0, ...   field 1: ...
//
// A group takes the bytes its rows took, and begins where they began: 16 * row_bytes from one group to the next. Rows behind the last
// whole group stay as they were, and so do matrices of plain numbers. Only bytes are permuted; nothing is lost or added.
//
// Why 16 and 4: a unit of quants holds the same columns of one row, so a vector of 8 (AVX2) or 16 (AVX-512) lanes of 32 bits has
// one row a lane. Activations are then broadcast, integer sums never cross lanes, and the scales of all lanes lie side by side. On a
// GPU 16 rows by 32 columns of 8 bits are 512 contiguous bytes and the A operand of mma.m16n8k32: lane l (g = l / 4, t = l mod 4) needs
// units t and t + 4 of two rows, and with rows 2g and 2g + 1 as rows g and g + 8 of A these are 8 bytes at t * 64 + 8 g and 8 bytes 256
// further: coalesced, without a shuffle. docs/pack_format.md has the variant with loads of 16 bytes and the types of 4 bits.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "formats/dtype.h"

namespace tierpack {

inline constexpr uint32_t kGroupRows = 16;

// Bytes of the largest block that is grouped (Q8_K).
inline constexpr uint32_t kBlockBytesMax = 292;

// A field of a packed block, in the order of the struct.
struct GroupField {
  uint16_t offset;  // in the block
  uint16_t bytes;
  uint16_t unit;    // 4, 2 or 1; divides bytes
};

// The fields of a quantised type; empty for plain numbers, which are never grouped.
std::span<const GroupField> group_fields(DType type);

// Rows in whole groups.
constexpr uint64_t grouped_rows(uint64_t rows) { return rows - rows % kGroupRows; }

// Whether a matrix lies otherwise than row by row: it is quantised and has a whole group.
bool has_row_groups(DType type, uint64_t rows);

// Permutes `rows` rows of `cols` elements between the two layouts. A part of a matrix may be given as long as it begins with a
// group and ends with one or with the matrix. `in` and `out` hold rows * row_bytes(type, cols) bytes and must not overlap.
void to_row_groups(DType type, uint64_t rows, uint64_t cols, Bytes in, MutableBytes out);
void from_row_groups(DType type, uint64_t rows, uint64_t cols, Bytes in, MutableBytes out);

// A whole group of the first 1 .. 15 rows that `in` holds row by row, and of rows of zero bytes. `out` holds 16 * row_bytes(type, cols)
// bytes and must not overlap.
void pad_row_group(DType type, uint32_t rows, uint64_t cols, const std::byte* in, std::byte* out);

// Block `column` of row `row` (0 .. 15) of the group that begins at `group`, as it lies in a row: block_bytes bytes.
void load_grouped_block(DType type, const std::byte* group, uint64_t column, uint32_t row, std::byte* block);

// Row `row` of a grouped matrix as it was: row_bytes(type, cols) bytes.
void load_grouped_row(DType type, const std::byte* matrix, uint64_t rows, uint64_t cols, uint64_t row, std::byte* out);

}  // namespace tierpack

// The formulas of a pack's layout, each written once: where parts lie in an expert record, how rows fill pages, and how a
// page proves itself. Used by the writer to place and by the reader to check.
#pragma once

#include <cstdint>
#include <optional>

#include "formats/pack.h"

namespace tierpack {

// Bytes of a tensor; nullopt when the shape is not made of whole blocks, has an empty dimension, or overflows.
std::optional<uint64_t> checked_tensor_bytes(DType dtype, const Shape& shape);

// Sets offset and bytes of the three parts and record_bytes from the parts' dtypes and shapes: gate at 0, up and down
// each at the next multiple of kPartAlignment, then likewise the scales of those parts that have any. False when a part is not made of whole blocks or the sizes overflow.
bool place_parts(ExpertLayer& layer);

// Bytes of the largest row group of a pack. A reader of any bytes of a group holds the whole of it, so it has a bound.
inline constexpr uint64_t kGroupBytesMax = uint64_t{16} << 20;

// Whether the groups of a matrix of whole blocks, {in, out}, keep to it.
bool groups_fit(DType dtype, uint64_t in, uint64_t out);

// A table with longer rows gains nothing from pages and is stored as an ordinary tensor.
inline constexpr uint64_t kRowBytesMax = uint64_t{64} << 10;

// The geometry of a table whose pages begin at `first_page`; nullopt when its rows are not made of whole blocks, are
// longer than kRowBytesMax, or its pages overflow.
std::optional<RowTable> place_rows(std::string name, DType dtype, const Shape& shape, uint64_t first_page);

// The checksum of a unit of pages (a whole number of pages, its last 16 bytes not counted) that begins at page
// `page` of the segment.
Xxh128 unit_checksum(Bytes unit, uint64_t page);
// Writes it into the unit's last 16 bytes.
void seal_unit(MutableBytes unit, uint64_t page);
bool unit_is_intact(Bytes unit, uint64_t page);

}  // namespace tierpack

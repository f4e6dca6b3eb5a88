#include "formats/pack_layout.h"

#include "formats/row_groups.h"

namespace tierpack {

std::optional<uint64_t> checked_tensor_bytes(DType dtype, const Shape& shape) {
  const DTypeTraits& type = traits(dtype);
  if (!makes_rows(dtype, shape.ne[0])) return std::nullopt;
  std::optional<uint64_t> bytes = checked_mul(stored_elements(dtype, shape.ne[0]) / type.block_elements, type.block_bytes);
  std::optional<uint64_t> elements = shape.ne[0];
  for (int i = 1; i < 4; ++i) {
    if (shape.ne[i] == 0 || !bytes || !elements) return std::nullopt;
    bytes = checked_mul(*bytes, shape.ne[i]);
    elements = checked_mul(*elements, shape.ne[i]);
  }
  return elements ? bytes : std::nullopt;
}

bool place_parts(ExpertLayer& layer) {
  std::optional<uint64_t> end = 0;
  for (ExpertPart* part : {&layer.gate, &layer.up, &layer.down}) {
    Shape shape;
    shape.ne = {part->in, part->out, 1, 1};
    const std::optional<uint64_t> bytes = checked_tensor_bytes(part->dtype, shape);
    end = checked_align_up(*end, kPartAlignment);
    if (!bytes || !end) return false;
    part->offset = *end;
    part->bytes = *bytes;
    end = checked_add(*end, *bytes);
    if (!end) return false;
  }
  for (ExpertPart* part : {&layer.gate, &layer.up, &layer.down}) {
    if (part->scale_rows == 0) continue;
    const std::optional<uint64_t> at = checked_align_up(*end, kPartAlignment);
    const std::optional<uint64_t> scales = checked_mul(uint64_t{part->scale_rows} * part->scale_columns, sizeof(float));
    end = at && scales ? checked_add(*at, *scales) : std::nullopt;
    if (!end) return false;
    part->scale_offset = *at;
  }
  layer.record_bytes = *end;
  return true;
}

bool groups_fit(DType dtype, uint64_t in, uint64_t out) {
  return !has_row_groups(dtype, out) || row_bytes(dtype, in) <= kGroupBytesMax / kGroupRows;
}

std::optional<RowTable> place_rows(std::string name, DType dtype, const Shape& shape, uint64_t first_page) {
  if (!checked_tensor_bytes(dtype, shape)) return std::nullopt;
  RowTable table;
  table.name = std::move(name);
  table.dtype = dtype;
  table.shape = shape;
  table.row_bytes = row_bytes(dtype, shape.ne[0]);
  if (table.row_bytes > kRowBytesMax) return std::nullopt;
  table.rows_per_page = (kPageBytes - kPageChecksumBytes) / table.row_bytes;
  table.pages_per_row = table.rows_per_page > 0 ? 1 : ceil_div(table.row_bytes + kPageChecksumBytes, kPageBytes);
  table.first_page = first_page;
  const std::optional<uint64_t> pages = checked_mul(ceil_div(shape.rows(), table.unit_rows()), table.pages_per_row);
  const std::optional<uint64_t> end = pages ? checked_add(first_page, *pages) : std::nullopt;
  if (!end || !checked_mul(*end, kPageBytes)) return std::nullopt;
  table.pages = *pages;
  return table;
}

Xxh128 unit_checksum(Bytes unit, uint64_t page) {
  return xxh3_128(unit.first(unit.size() - kPageChecksumBytes), page);
}

void seal_unit(MutableBytes unit, uint64_t page) {
  const Xxh128 checksum = unit_checksum(unit, page);
  std::byte* const tail = unit.data() + unit.size() - kPageChecksumBytes;
  store(tail, checksum.low);
  store(tail + 8, checksum.high);
}

bool unit_is_intact(Bytes unit, uint64_t page) {
  const std::byte* const tail = unit.data() + unit.size() - kPageChecksumBytes;
  return unit_checksum(unit, page) == Xxh128{load<uint64_t>(tail), load<uint64_t>(tail + 8)};
}

}  // namespace tierpack

#include "repack/extent_codec.h"

#include <algorithm>

#include "base/error.h"
#include "formats/pack_layout.h"
#include "formats/row_groups.h"

namespace tierpack::repack {

namespace {

// Rows as they lie in the source -> checksummed units of pages.
void fill_pages(const RowTable& table, uint64_t page, Bytes rows, MutableBytes pages) {
  std::fill(pages.begin(), pages.end(), std::byte{0});
  const uint64_t payload = table.unit_rows() * table.row_bytes;
  for (uint64_t at = 0; at < pages.size(); at += table.unit_bytes(), page += table.pages_per_row) {
    const Bytes part = rows.first(std::min<uint64_t>(payload, rows.size()));
    std::copy(part.begin(), part.end(), pages.begin() + static_cast<ptrdiff_t>(at));
    seal_unit(pages.subspan(at, table.unit_bytes()), page);
    rows = rows.subspan(part.size());
  }
}

// The inverse; false when a unit is not what its checksum promises or is not filled up with zeros.
bool rows_of_pages(const RowTable& table, uint64_t page, Bytes pages, MutableBytes rows) {
  const uint64_t payload = table.unit_rows() * table.row_bytes;
  for (uint64_t at = 0; at < pages.size(); at += table.unit_bytes(), page += table.pages_per_row) {
    const Bytes unit = pages.subspan(at, table.unit_bytes());
    const uint64_t used = std::min<uint64_t>(payload, rows.size());
    if (!unit_is_intact(unit, page) || !all_zeros(unit.subspan(used, unit.size() - kPageChecksumBytes - used))) return false;
    std::copy_n(unit.begin(), used, rows.begin());
    rows = rows.subspan(used);
  }
  return rows.empty();
}

// Source row i is target column column + i, source column j target row j.
template <bool Insert>
void transpose(const Gather& gather, const GatherInput& input, std::byte* source, std::byte* rows) {
  const uint64_t element = traits(gather.dtype).block_bytes;
  const uint64_t stride = row_bytes(gather.dtype, gather.columns);
  for (uint64_t i = 0; i < input.rows; ++i) {
    for (uint64_t j = 0; j < input.columns; ++j) {
      std::byte* const s = source + (i * input.columns + j) * element;
      std::byte* const t = rows + (input.target_row + j) * stride + (input.target_column + i) * element;
      Insert ? std::copy_n(s, element, t) : std::copy_n(t, element, s);
    }
  }
}

}  // namespace

bool all_zeros(Bytes bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

Bytes ExtentCodec::encode(const Extent& extent, Bytes source, MutableBytes buffer) const {
  const MutableBytes stored = buffer.first(std::min<uint64_t>(extent.target_bytes, buffer.size()));
  TIERPACK_CHECK(stored.size() == extent.target_bytes || extent.kind == Extent::Kind::kCopy);
  switch (extent.kind) {
    case Extent::Kind::kCopy: return source;
    case Extent::Kind::kGroups:
      to_row_groups(extent.dtype, source.size() / row_bytes(extent.dtype, extent.columns), extent.columns, source, stored);
      return stored;
    case Extent::Kind::kRows:
      fill_pages(plan_.manifest.rows[extent.table], extent.target_offset / kPageBytes, source, stored);
      return stored;
    case Extent::Kind::kZeros:
    case Extent::Kind::kSpan:
    case Extent::Kind::kTranscode:
    case Extent::Kind::kSkip: break;
  }
  TIERPACK_CHECK(false);
  return {};
}

std::optional<Bytes> ExtentCodec::decode(const Extent& extent, Bytes stored, MutableBytes buffer) const {
  if (extent.kind == Extent::Kind::kCopy) return stored;
  const MutableBytes source = buffer.first(extent.source_bytes);
  if (extent.kind == Extent::Kind::kGroups) {
    from_row_groups(extent.dtype, stored.size() / row_bytes(extent.dtype, extent.columns), extent.columns, stored, source);
    return source;
  }
  TIERPACK_CHECK(extent.kind == Extent::Kind::kRows);
  if (!rows_of_pages(plan_.manifest.rows[extent.table], extent.target_offset / kPageBytes, stored, source)) return std::nullopt;
  return source;
}

// Calls move(mover, rows, first source byte, source stride, first byte of the rows) for each output that the input reaches.
template <typename Move>
void ExtentCodec::each_way(const Gather& gather, const GatherInput& input, const Move& move) const {
  const RowMover& mover = plan_.movers[input.mover];
  const uint64_t stride = mover.target_row_bytes();
  for (uint32_t way = 0; way < input.ways; ++way) {
    move(mover, input.rows / input.ways, way * mover.source_row_bytes(), input.ways * mover.source_row_bytes(),
         (way * gather.rows + input.target_row) * stride);
  }
}

void ExtentCodec::insert(const Gather& gather, const GatherInput& input, Bytes source, MutableBytes rows) const {
  if (input.transposed) return transpose<true>(gather, input, const_cast<std::byte*>(source.data()), rows.data());
  each_way(gather, input, [&](const RowMover& mover, uint64_t count, uint64_t from, uint64_t stride, uint64_t to) {
    mover.insert(count, source.data() + from, stride, rows.data() + to);
  });
}

void ExtentCodec::extract(const Gather& gather, const GatherInput& input, Bytes rows, MutableBytes source) const {
  if (input.transposed) return transpose<false>(gather, input, source.data(), const_cast<std::byte*>(rows.data()));
  each_way(gather, input, [&](const RowMover& mover, uint64_t count, uint64_t to, uint64_t stride, uint64_t from) {
    mover.extract(count, rows.data() + from, source.data() + to, stride);
  });
}

Bytes ExtentCodec::store_rows(const Gather& gather, uint32_t output, Bytes rows, MutableBytes buffer) const {
  const Gather::Output& out = gather.output[output];
  const MutableBytes stored = buffer.first(out.bytes);
  if (gather.table != UINT32_MAX) {
    fill_pages(plan_.manifest.rows[gather.table], out.offset / kPageBytes, rows, stored);
    return stored;
  }
  if (!gather.grouped) return rows;
  to_row_groups(gather.dtype, gather.rows, gather.columns, rows, stored);
  return stored;
}

bool ExtentCodec::load_rows(const Gather& gather, uint32_t output, Bytes stored, MutableBytes rows) const {
  if (gather.table != UINT32_MAX) {
    return rows_of_pages(plan_.manifest.rows[gather.table], gather.output[output].offset / kPageBytes, stored, rows);
  }
  if (gather.grouped) {
    from_row_groups(gather.dtype, gather.rows, gather.columns, stored, rows);
  } else {
    std::copy(stored.begin(), stored.end(), rows.begin());
  }
  return true;
}

}  // namespace tierpack::repack

#include "formats/packed_shard.h"

#include <algorithm>

#include "base/error.h"
#include "formats/pack_layout.h"

namespace tierpack {

PackedShard::PackedShard(const Pack& pack, size_t shard)
    : pack_(pack),
      shard_(pack.manifest().sources.at(shard)),
      name_(pack.directory().string() + ":" + shard_.path) {
  std::unordered_map<std::string_view, const ExpertLayer*> stacks;
  for (const ExpertLayer& layer : pack.manifest().expert_layers) {
    for (const ExpertPart* part : layer.parts()) stacks.emplace(part->tensor, &layer);
  }
  uint64_t start = 0;
  for (const SourcePiece& piece : shard_.pieces) {
    Place place{.start = start, .piece = &piece};
    if (piece.from == SourcePiece::From::kTensor) {
      place.dense = pack.find_dense(piece.tensor);
      place.rows = pack.find_rows(piece.tensor);
      const auto stack = stacks.find(piece.tensor);
      if (stack != stacks.end()) place.layer = stack->second;
      TIERPACK_CHECK(place.dense != nullptr || place.rows != nullptr || place.layer != nullptr);
    }
    places_.push_back(place);
    start += piece.bytes;
  }
}

void PackedShard::read_at(uint64_t offset, MutableBytes out) const {
  if (offset > size() || out.size() > size() - offset) {
    fail(ErrorKind::kCorrupt, "{}: ends at byte {}, wanted {} bytes from {}", name_, size(), out.size(), offset);
  }
  auto place = std::upper_bound(places_.begin(), places_.end(), offset,
                                [](uint64_t value, const Place& item) { return value < item.start; });
  while (!out.empty()) {
    const Place& here = *std::prev(place);
    const uint64_t skip = offset - here.start;
    const uint64_t step = std::min<uint64_t>(here.piece->bytes - skip, out.size());
    read_piece(here, skip, out.first(step));
    out = out.subspan(step);
    offset += step;
    ++place;
  }
}

void PackedShard::read_piece(const Place& place, uint64_t offset, MutableBytes out) const {
  if (place.piece->from == SourcePiece::From::kZeros) {
    std::fill(out.begin(), out.end(), std::byte{0});
  } else if (place.piece->from == SourcePiece::From::kSource) {
    pack_.source_bin().read_at(place.piece->offset + offset, out);
  } else if (place.dense != nullptr) {
    pack_.segment(Segment::kDense).read_at(pack_.manifest().records[place.dense->record].offset + offset, out);
  } else if (place.layer != nullptr) {
    read_stack(*place.layer, place.piece->tensor, offset, out);
  } else {
    read_rows(*place.rows, offset, out);
  }
}

// A stack holds, expert by expert, the parts that name it.
void PackedShard::read_stack(const ExpertLayer& layer, const std::string& tensor, uint64_t offset, MutableBytes out) const {
  uint64_t expert_bytes = 0;
  for (const ExpertPart* part : layer.parts()) {
    if (part->tensor == tensor) expert_bytes += part->bytes;
  }
  const File& file = pack_.segment(Segment::kExperts);
  uint64_t expert = offset / expert_bytes;
  uint64_t skip = offset % expert_bytes;
  for (; !out.empty(); ++expert, skip = 0) {
    const Record& record = pack_.manifest().records[layer.first_record + expert];
    for (const ExpertPart* part : layer.parts()) {
      if (part->tensor != tensor) continue;
      if (skip >= part->bytes) {
        skip -= part->bytes;
        continue;
      }
      const uint64_t step = std::min<uint64_t>(part->bytes - skip, out.size());
      file.read_at(record.offset + part->offset + skip, out.first(step));
      out = out.subspan(step);
      skip = 0;
    }
  }
}

void PackedShard::read_rows(const RowTable& table, uint64_t offset, MutableBytes out) const {
  const uint64_t unit_payload = table.unit_rows() * table.row_bytes;
  const uint64_t units_per_read = std::max<uint64_t>(1, (uint64_t{1} << 20) / table.unit_bytes());
  const File& file = pack_.segment(Segment::kRows);
  std::vector<std::byte> pages;
  uint64_t unit = offset / unit_payload;
  uint64_t skip = offset % unit_payload;
  while (!out.empty()) {
    const uint64_t units = std::min<uint64_t>(units_per_read, ceil_div(skip + out.size(), unit_payload));
    const uint64_t first_page = table.first_page + unit * table.pages_per_row;
    pages.resize(units * table.unit_bytes());
    file.read_at(first_page * kPageBytes, pages);
    for (uint64_t i = 0; i < units; ++i, skip = 0) {
      const Bytes one = Bytes(pages).subspan(i * table.unit_bytes(), table.unit_bytes());
      const uint64_t page = first_page + i * table.pages_per_row;
      if (!unit_is_intact(one, page)) {
        fail(ErrorKind::kCorrupt, "{}: page {} of {} does not match its checksum", file.name(), page, table.name);
      }
      const uint64_t step = std::min<uint64_t>(unit_payload - skip, out.size());
      std::copy_n(one.begin() + static_cast<ptrdiff_t>(skip), step, out.begin());
      out = out.subspan(step);
    }
    unit += units;
  }
}

}  // namespace tierpack

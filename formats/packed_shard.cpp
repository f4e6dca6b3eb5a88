#include "formats/packed_shard.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "formats/pack_layout.h"
#include "formats/row_groups.h"
#include "formats/source_rows.h"

namespace tierpack {

PackedShard::PackedShard(const Pack& pack, size_t shard)
    : pack_(pack),
      shard_(pack.manifest().sources.at(shard)),
      name_(pack.directory().string() + ":" + shard_.path) {
  uint64_t start = 0;
  for (const SourcePiece& piece : shard_.pieces) {
    Place place{.start = start, .piece = &piece};
    if (piece.from == SourcePiece::From::kTensor) {
      const Tensor tensor = tensor_of(piece.tensor);
      place.dense = tensor.dense;
      place.layer = tensor.layer;
      place.rows = tensor.rows;
    }
    places_.push_back(place);
    start += piece.bytes;
  }
}

void PackedShard::read_at(uint64_t offset, MutableBytes out) const {
  if (offset > size() || out.size() > size() - offset) {
    fail(ErrorKind::kCorrupt, "{}: ends at byte {}, wanted {} bytes from {}", name_, size(), out.size(), offset);
  }
  if (places_.empty() && !out.empty()) fail(ErrorKind::kUnsupported, "{}: was transcoded; the pack does not give it back", name_);
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
  } else if (place.piece->from == SourcePiece::From::kRows) {
    read_row_piece(*place.piece, offset, out);
  } else if (place.dense != nullptr) {
    read_dense(*place.dense, offset, out);
  } else if (place.layer != nullptr) {
    read_stack(*place.layer, pack_.manifest().tensor_name(place.piece->tensor), offset, out);
  } else {
    read_rows(*place.rows, offset, out);
  }
}

// Every matrix of a tensor with more dimensions has groups of its own.
void PackedShard::read_dense(const DenseTensor& tensor, uint64_t offset, MutableBytes out) const {
  const uint64_t at = pack_.manifest().records[tensor.record].offset;
  if (!has_row_groups(tensor.dtype, tensor.shape.ne[1])) return pack_.segment(Segment::kDense).read_at(at + offset, out);
  const uint64_t bytes = row_bytes(tensor.dtype, tensor.shape.ne[0]) * tensor.shape.ne[1];
  uint64_t matrix = offset / bytes;
  uint64_t skip = offset % bytes;
  for (; !out.empty(); ++matrix, skip = 0) {
    const uint64_t step = std::min<uint64_t>(bytes - skip, out.size());
    read_matrix({Segment::kDense, at + matrix * bytes, tensor.dtype, tensor.shape.ne[0], tensor.shape.ne[1]}, skip, out.first(step));
    out = out.subspan(step);
  }
}

void PackedShard::read_matrix(const Matrix& matrix, uint64_t offset, MutableBytes out) const {
  const uint64_t stride = row_bytes(matrix.dtype, matrix.cols);
  const uint64_t group_bytes = stride * kGroupRows;
  const uint64_t grouped = has_row_groups(matrix.dtype, matrix.rows) ? grouped_rows(matrix.rows) * stride : 0;
  while (!out.empty()) {
    uint64_t step = out.size();
    if (offset >= grouped) {
      pack_.segment(matrix.segment).read_at(matrix.at + offset, out);
    } else if (const uint64_t skip = offset % group_bytes; skip != 0 || out.size() < group_bytes) {
      step = std::min<uint64_t>(group_bytes - skip, out.size());
      read_inside_group(matrix, offset - skip, skip, out.first(step));
    } else {
      step = std::min<uint64_t>(grouped - offset, out.size()) / group_bytes * group_bytes;
      read_whole_groups(matrix, offset, out.first(step));
    }
    out = out.subspan(step);
    offset += step;
  }
}

void PackedShard::read_whole_groups(const Matrix& matrix, uint64_t offset, MutableBytes out) const {
  const uint64_t stride = row_bytes(matrix.dtype, matrix.cols);
  const uint64_t group_bytes = stride * kGroupRows;
  const uint64_t slice = std::min<uint64_t>(out.size(), std::max<uint64_t>(1, kSliceBytes / group_bytes) * group_bytes);
  const auto scratch = std::make_unique_for_overwrite<std::byte[]>(slice);
  while (!out.empty()) {
    const MutableBytes groups(scratch.get(), std::min<uint64_t>(slice, out.size()));
    pack_.segment(matrix.segment).read_at(matrix.at + offset, groups);
    from_row_groups(matrix.dtype, groups.size() / stride, matrix.cols, groups, out.first(groups.size()));
    out = out.subspan(groups.size());
    offset += groups.size();
  }
}

// Part of the group that begins at byte `group` of the matrix.
void PackedShard::read_inside_group(const Matrix& matrix, uint64_t group, uint64_t skip, MutableBytes out) const {
  const uint64_t at = matrix.at + group;
  {
    const std::lock_guard lock(kept_mutex_);
    for (const KeptGroup& kept : kept_) {
      if (kept.at != at || kept.segment != matrix.segment) continue;
      std::copy_n(kept.rows.begin() + static_cast<ptrdiff_t>(skip), out.size(), out.begin());
      return;
    }
  }
  KeptGroup fresh{matrix.segment, at, std::vector<std::byte>(row_bytes(matrix.dtype, matrix.cols) * kGroupRows)};
  read_whole_groups(matrix, group, fresh.rows);
  std::copy_n(fresh.rows.begin() + static_cast<ptrdiff_t>(skip), out.size(), out.begin());
  const std::lock_guard lock(kept_mutex_);
  kept_[kept_next_++ % kKeptGroups] = std::move(fresh);
}

// A stack holds, expert by expert, the parts that name it.
void PackedShard::read_stack(const ExpertLayer& layer, const std::string& tensor, uint64_t offset, MutableBytes out) const {
  uint64_t expert_bytes = 0;
  for (const ExpertPart* part : layer.parts()) {
    if (part->tensor == tensor) expert_bytes += part->bytes;
  }
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
      read_matrix({Segment::kExperts, record.offset + part->offset, part->dtype, part->in, part->out}, skip, out.first(step));
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

DType PackedShard::Tensor::dtype() const { return dense != nullptr ? dense->dtype : part != nullptr ? part->dtype : rows->dtype; }

uint64_t PackedShard::Tensor::columns() const {
  return dense != nullptr ? dense->shape.ne[0] : part != nullptr ? part->in : rows->shape.ne[0];
}

PackedShard::Tensor PackedShard::tensor_of(uint32_t number) const {
  const PackManifest& manifest = pack_.manifest();
  TIERPACK_CHECK(number < manifest.tensor_count());
  Tensor out;
  if (number < manifest.dense.size()) {
    out.dense = &manifest.dense[number];
    return out;
  }
  number -= static_cast<uint32_t>(manifest.dense.size());
  if (number < manifest.rows.size()) {
    out.rows = &manifest.rows[number];
    return out;
  }
  number -= static_cast<uint32_t>(manifest.rows.size());
  out.layer = &manifest.expert_layers[number / 3];
  out.part = out.layer->parts()[number % 3];
  return out;
}

void PackedShard::read_tensor_rows(const Tensor& tensor, uint64_t first_row, uint64_t rows, MutableBytes out) const {
  const uint64_t stride = row_bytes(tensor.dtype(), tensor.columns());
  TIERPACK_CHECK(out.size() == rows * stride);
  if (tensor.dense != nullptr) return read_dense(*tensor.dense, first_row * stride, out);
  if (tensor.rows != nullptr) return read_rows(*tensor.rows, first_row * stride, out);
  const ExpertPart& part = *tensor.part;
  while (rows > 0) {
    const uint64_t expert = first_row / part.out;
    const uint64_t row = first_row % part.out;
    const uint64_t step = std::min(part.out - row, rows);
    const Record& record = pack_.manifest().records[tensor.layer->first_record + expert];
    read_matrix({Segment::kExperts, record.offset + part.offset, part.dtype, part.in, part.out}, row * stride, out.first(step * stride));
    out = out.subspan(step * stride);
    first_row += step;
    rows -= step;
  }
}

void PackedShard::read_row_piece(const SourcePiece& piece, uint64_t offset, MutableBytes out) const {
  const uint64_t row_bytes_each = piece.bytes / piece.rows.rows;
  std::vector<std::byte> partial;
  while (!out.empty()) {
    const uint64_t row = offset / row_bytes_each;
    const uint64_t skip = offset % row_bytes_each;
    if (skip == 0 && out.size() >= row_bytes_each) {
      const uint64_t step = out.size() / row_bytes_each * row_bytes_each;
      read_whole_source_rows(piece, row, step / row_bytes_each, out.first(step));
      out = out.subspan(step);
      offset += step;
      continue;
    }
    partial.resize(row_bytes_each);
    read_whole_source_rows(piece, row, 1, partial);
    const uint64_t step = std::min<uint64_t>(row_bytes_each - skip, out.size());
    std::copy_n(partial.begin() + static_cast<ptrdiff_t>(skip), step, out.begin());
    out = out.subspan(step);
    offset += step;
  }
}

void PackedShard::read_whole_source_rows(const SourcePiece& piece, uint64_t first, uint64_t rows, MutableBytes out) const {
  if (piece.rows.transposed) return read_transposed(piece, first, rows, out);
  const RowPiece& p = piece.rows;
  const Tensor tensors[2] = {tensor_of(piece.tensor), p.ways == 2 ? tensor_of(p.other) : Tensor{}};
  const RowMover mover({tensors[0].dtype(), tensors[0].columns(), p.field, p.first_column, p.columns, p.tiles});
  const uint64_t row_bytes_each = mover.source_row_bytes();
  const uint64_t stride = mover.target_row_bytes();
  const uint64_t slice = std::max<uint64_t>(kGroupRows, kSliceBytes / stride / kGroupRows * kGroupRows);
  std::vector<std::byte> target;
  for (uint32_t way = 0; way < p.ways; ++way) {
    // Rows first + k with (first + k) % ways == way.
    const uint64_t skip = (way + p.ways - first % p.ways) % p.ways;
    uint64_t left = rows > skip ? (rows - skip + p.ways - 1) / p.ways : 0;
    uint64_t at = (way == 0 ? p.first_row : p.other_first_row) + (first + skip) / p.ways;
    std::byte* to = out.data() + skip * row_bytes_each;
    while (left > 0) {
      const uint64_t step = std::min(left, slice);
      target.resize(step * stride);
      read_tensor_rows(tensors[way], at, step, target);
      mover.extract(step, target.data(), to, row_bytes_each * p.ways);
      to += step * row_bytes_each * p.ways;
      at += step;
      left -= step;
    }
  }
}

void PackedShard::read_transposed(const SourcePiece& piece, uint64_t first, uint64_t rows, MutableBytes out) const {
  const RowPiece& p = piece.rows;
  const Tensor tensor = tensor_of(piece.tensor);
  const uint64_t element = traits(tensor.dtype()).block_bytes;
  const uint64_t stride = row_bytes(tensor.dtype(), tensor.columns());
  const uint64_t slice = std::max<uint64_t>(1, kSliceBytes / stride);
  std::vector<std::byte> target;
  for (uint64_t done = 0; done < p.columns;) {
    const uint64_t step = std::min(slice, p.columns - done);
    target.resize(step * stride);
    read_tensor_rows(tensor, p.first_row + done, step, target);
    for (uint64_t i = 0; i < rows; ++i) {
      for (uint64_t j = 0; j < step; ++j) {
        std::copy_n(target.data() + j * stride + (p.first_column + first + i) * element, element,
                    out.data() + (i * p.columns + done + j) * element);
      }
    }
    done += step;
  }
}

}  // namespace tierpack

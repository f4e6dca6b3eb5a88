#include "repack/gather_plan.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "formats/row_groups.h"

namespace tierpack::repack {

// Rows of a source for a tensor; `start` is the first of its rows.
struct GatherPlanner::Move {
  uint64_t start = 0;
  uint64_t rows = 0;  // of the tensor
  uint32_t shard = 0;
  const MovedRows* moved = nullptr;
};

// A matrix of a tensor: rows [start, start + rows) counted over the tensor.
struct GatherPlanner::Matrix {
  Target target = Target::kDense;
  DType dtype = DType::kF32;
  uint64_t columns = 0;
  uint64_t start = 0;
  uint64_t rows = 0;
  uint64_t offset = 0;      // in the target file
  uint32_t table = UINT32_MAX;
  uint64_t stride() const { return row_bytes(dtype, columns); }
};

GatherPlanner::GatherPlanner(RepackPlan& plan, const PlanInputs& inputs) : plan_(plan), inputs_(inputs) {}
GatherPlanner::~GatherPlanner() = default;

namespace {

bool is_identity(const MovedRows& moved, uint64_t columns) {
  return moved.rows.field == RowField::kValues && moved.rows.ways == 1 && !moved.rows.transposed && moved.rows.tiles.groups == 0 &&
         moved.rows.columns == columns;
}

}  // namespace

void GatherPlanner::collect_moves() {
  const PackManifest& manifest = plan_.manifest;
  std::unordered_map<std::string_view, uint32_t> numbers;
  for (uint32_t i = 0; i < manifest.tensor_count(); ++i) numbers.emplace(manifest.tensor_name(i), i);
  for (const TensorInfo& tensor : inputs_.tensors) numbers_.push_back(numbers.at(tensor.name));
  by_tensor_.resize(manifest.tensor_count());
  spans_.resize(inputs_.shards.size());
  for (uint32_t shard = 0; shard < inputs_.shards.size(); ++shard) {
    for (const MovedRows& moved : inputs_.shards[shard].moved) {
      const uint64_t rows = moved.rows.transposed ? moved.rows.columns : moved.rows.rows / moved.rows.ways;
      by_tensor_.at(numbers_.at(moved.tensor)).push_back({moved.rows.first_row, rows, shard, &moved});
    }
  }
}

GatherPlanner::Matrix GatherPlanner::matrix_of(uint32_t number, uint64_t index) const {
  const PackManifest& manifest = plan_.manifest;
  Matrix out;
  if (number < manifest.dense.size()) {
    const DenseTensor& tensor = manifest.dense[number];
    out.dtype = tensor.dtype;
    out.columns = tensor.shape.ne[0];
    out.rows = tensor.shape.ne[1];
    out.start = index * out.rows;
    out.offset = manifest.records[tensor.record].offset + out.start * out.stride();
    return out;
  }
  number -= static_cast<uint32_t>(manifest.dense.size());
  if (number < manifest.rows.size()) {
    const RowTable& table = manifest.rows[number];
    out.target = Target::kRows;
    out.dtype = table.dtype;
    out.columns = table.shape.ne[0];
    out.rows = table.shape.rows();
    out.offset = table.first_page * kPageBytes;
    out.table = number;
    return out;
  }
  number -= static_cast<uint32_t>(manifest.rows.size());
  const ExpertLayer& layer = manifest.expert_layers[number / 3];
  const ExpertPart& part = *layer.parts()[number % 3];
  out.target = Target::kExperts;
  out.dtype = part.dtype;
  out.columns = part.in;
  out.rows = part.out;
  out.start = index * part.out;
  out.offset = manifest.records[layer.first_record + index].offset + part.offset;
  return out;
}

uint32_t GatherPlanner::mover_of(const Matrix& matrix, const RowPiece& rows) {
  RowLayout layout{matrix.dtype, matrix.columns, rows.field, rows.first_column, rows.columns, rows.tiles};
  const auto same = [&](const std::pair<RowLayout, uint32_t>& item) {
    const RowLayout& have = item.first;
    return have.dtype == layout.dtype && have.target_columns == layout.target_columns && have.field == layout.field &&
           have.first_column == layout.first_column && have.columns == layout.columns && have.tiles == layout.tiles;
  };
  const auto found = std::find_if(layouts_.rbegin(), layouts_.rend(), same);
  if (found != layouts_.rend()) return found->second;
  const auto number = static_cast<uint32_t>(plan_.movers.size());
  plan_.movers.emplace_back(layout);
  layouts_.emplace_back(layout, number);
  return number;
}

// Plain rows go as they are: rows [first, first + rows) of the move, counted in the tensor, all of this matrix.
void GatherPlanner::copy_rows(const Matrix& matrix, const Move& move, uint64_t first, uint64_t rows) {
  if (const auto coded = coded_.find(move.moved->tensor); coded != coded_.end()) return code_rows(coded->second, matrix, move, first, rows);
  const uint64_t stride = matrix.stride();
  const uint64_t step_max = inputs_.extent_bytes_max - inputs_.extent_bytes_max % traits(matrix.dtype).block_bytes;
  Extent extent;
  extent.target = matrix.target;
  extent.of_tensor = true;
  extent.dtype = matrix.dtype;
  uint64_t left = rows * stride;
  extent.source_offset = move.moved->offset + (first - move.start) * stride;
  extent.target_offset = matrix.offset + (first - matrix.start) * stride;
  while (left > 0) {
    extent.source_bytes = extent.target_bytes = std::min(left, step_max);
    spans_[move.shard].push_back(extent);
    extent.source_offset += extent.source_bytes;
    extent.target_offset += extent.target_bytes;
    left -= extent.source_bytes;
  }
}

// Plain rows that are coded anew. A target in row groups takes them group by group.
void GatherPlanner::code_rows(uint32_t number, const Matrix& matrix, const Move& move, uint64_t first, uint64_t rows) {
  const TranscodedTensor& tensor = plan_.transcoded[number];
  const bool ends = first + rows == matrix.start + matrix.rows;
  if (matrix.table != UINT32_MAX || (has_row_groups(matrix.dtype, matrix.rows) && ((first - matrix.start) % kGroupRows != 0 || (rows % kGroupRows != 0 && !ends)))) {
    fail(ErrorKind::kUnsupported, "{}: {} cannot be transcoded: its rows come in runs of other lengths than {}", inputs_.source_name, tensor.name, kGroupRows);
  }
  const uint64_t target = matrix.offset + (first - matrix.start) * matrix.stride();
  const uint64_t source = move.moved->offset + (first - move.start) * row_bytes(tensor.from, tensor.columns);
  const uint64_t number_of_matrix = matrix.rows == 0 ? 0 : matrix.start / matrix.rows;
  for (const Extent& extent : coded_rows(tensor, number, number_of_matrix, matrix.target, target, source, rows, inputs_.extent_bytes_max)) {
    spans_[move.shard].push_back(extent);
  }
}

// `first` is the first move that may reach into the matrix.
void GatherPlanner::plan_matrix(const Matrix& matrix, const std::vector<Move>& moves, size_t& first) {
  const uint64_t end = matrix.start + matrix.rows;
  while (first < moves.size() && moves[first].start + moves[first].rows <= matrix.start) ++first;
  uint64_t unit = 1;
  const bool grouped = has_row_groups(matrix.dtype, matrix.rows);
  if (grouped) unit = kGroupRows;
  if (matrix.table != UINT32_MAX) unit = plan_.manifest.rows[matrix.table].unit_rows();
  bool alternate = false;
  bool transposed = false;
  for (size_t i = first; i < moves.size() && moves[i].start < end; ++i) {
    alternate |= moves[i].moved->rows.ways == 2;
    transposed |= moves[i].moved->rows.transposed;
  }
  const uint64_t row_cost = std::max(matrix.stride(), matrix.table == UINT32_MAX ? 0 : ceil_div(plan_.manifest.rows[matrix.table].unit_bytes(), unit)) *
                            (alternate ? 2 : 1);
  uint64_t step_max = inputs_.extent_bytes_max / row_cost / unit * unit;
  if (transposed) {
    TIERPACK_CHECK(matrix.rows * matrix.stride() <= inputs_.extent_bytes_max);
    step_max = matrix.rows;
  }
  TIERPACK_CHECK(step_max > 0);
  size_t move = first;
  for (uint64_t row = matrix.start; row < end;) {
    while (moves[move].start + moves[move].rows <= row) ++move;
    const Move& here = moves[move];
    // A run of plain rows of one move needs no gathering.
    if (is_identity(*here.moved, matrix.columns) && matrix.table == UINT32_MAX && here.start <= row) {
      const uint64_t stop = std::min(end, here.start + here.rows);
      copy_rows(matrix, here, row, stop - row);
      row = stop;
      continue;
    }
    if (coded_.count(here.moved->tensor) > 0) {
      fail(ErrorKind::kUnsupported, "{}: {} cannot be transcoded: its rows are put together from several tensors or reordered; leave it out of --transcode",
           inputs_.source_name, inputs_.tensors[here.moved->tensor].name);
    }
    const uint64_t stop = std::min(end, row + step_max);
    Gather gather;
    gather.target = matrix.target;
    gather.dtype = matrix.dtype;
    gather.grouped = grouped;
    gather.table = matrix.table;
    gather.columns = matrix.columns;
    gather.rows = stop - row;
    gather.first_input = static_cast<uint32_t>(plan_.inputs.size());
    const auto place = [&](const Matrix& of, uint64_t row_of) {
      if (of.table == UINT32_MAX) return Gather::Output{of.offset + (row_of - of.start) * of.stride(), gather.rows * of.stride()};
      const RowTable& table = plan_.manifest.rows[of.table];
      return Gather::Output{of.offset + row_of / table.unit_rows() * table.unit_bytes(), ceil_div(gather.rows, table.unit_rows()) * table.unit_bytes()};
    };
    gather.output[0] = place(matrix, row);
    for (size_t i = move; i < moves.size() && moves[i].start < stop; ++i) {
      const Move& m = moves[i];
      if (m.start + m.rows <= row) continue;
      const RowPiece& rows = m.moved->rows;
      const uint64_t from = std::max(row, m.start), to = std::min(stop, m.start + m.rows);
      GatherInput input;
      input.gather = static_cast<uint32_t>(plan_.gathers.size());
      input.shard = m.shard;
      input.target_row = from - row;
      input.ways = rows.ways;
      input.transposed = rows.transposed;
      if (rows.transposed) {
        TIERPACK_CHECK(from == m.start && to == m.start + m.rows);
        input.rows = rows.rows;
        input.columns = rows.columns;
        input.target_column = rows.first_column;
        input.offset = m.moved->offset;
        input.bytes = m.moved->bytes;
      } else {
        const uint64_t source_row = m.moved->bytes / rows.rows;
        input.mover = mover_of(matrix, rows);
        input.rows = (to - from) * rows.ways;
        input.offset = m.moved->offset + (from - m.start) * rows.ways * source_row;
        input.bytes = input.rows * source_row;
      }
      if (rows.ways == 2) {
        const uint64_t other_row = rows.other_first_row + (from - m.start);
        const Matrix other = matrix_of(numbers_.at(rows.other), other_row / matrix.rows);
        TIERPACK_CHECK(from == row && to == stop && other.rows == matrix.rows);
        gather.outputs = 2;
        gather.output[1] = place(other, other_row);
      }
      TIERPACK_CHECK(input.bytes <= inputs_.extent_bytes_max);
      const auto number = static_cast<uint32_t>(plan_.inputs.size());
      plan_.inputs.push_back(input);
      Extent span;
      span.kind = Extent::Kind::kSpan;
      span.target = matrix.target;
      span.dtype = matrix.dtype;
      span.source_offset = input.offset;
      span.source_bytes = input.bytes;
      span.input = number;
      spans_[m.shard].push_back(span);
    }
    gather.inputs = static_cast<uint32_t>(plan_.inputs.size()) - gather.first_input;
    TIERPACK_CHECK(gather.inputs > 0);
    plan_.gathers.push_back(gather);
    row = stop;
  }
}

void GatherPlanner::plan_tensor(uint32_t number, std::vector<Move>& moves) {
  std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) { return a.start < b.start; });
  size_t first = 0;
  uint64_t rows_end = 0;
  for (const Move& move : moves) rows_end = std::max(rows_end, move.start + move.rows);
  for (uint64_t row = 0, index = 0; row < rows_end; ++index) {
    const Matrix matrix = matrix_of(number, index);
    plan_matrix(matrix, moves, first);
    row += matrix.rows;
  }
}

// Extents and pieces of a shard in the order of its bytes.
uint64_t GatherPlanner::finish_shard(uint32_t shard, uint64_t source_bin) {
  const ShardLayout& layout = inputs_.shards[shard];
  std::vector<Extent>& found = spans_[shard];
  std::sort(found.begin(), found.end(), [](const Extent& a, const Extent& b) { return a.source_offset < b.source_offset; });
  std::vector<Extent>& extents = plan_.extents.emplace_back();
  SourceShard& out = plan_.manifest.sources.emplace_back();
  out.path = layout.name;
  out.bytes = layout.bytes;
  uint64_t at = 0;
  const auto keep = [&](uint64_t end) {
    TIERPACK_CHECK(end >= at);
    while (at < end) {
      Extent extent;
      extent.target = Target::kSource;
      extent.source_offset = at;
      extent.source_bytes = std::min(end - at, inputs_.extent_bytes_max);
      extent.kind = inputs_.transcode.empty() ? Extent::Kind::kCopy : Extent::Kind::kSkip;
      if (extent.kind == Extent::Kind::kCopy) {
        extent.target_bytes = extent.source_bytes;
        extent.target_offset = source_bin;
        source_bin += extent.source_bytes;
      }
      at += extent.source_bytes;
      extents.push_back(extent);
    }
  };
  for (Extent& extent : found) {
    keep(extent.source_offset);
    if (extent.kind == Extent::Kind::kSpan) plan_.inputs[extent.input].extent = static_cast<uint32_t>(extents.size());
    at += extent.source_bytes;
    extents.push_back(extent);
  }
  keep(layout.bytes);
  if (!inputs_.transcode.empty()) return source_bin;

  std::vector<const MovedRows*> moved;
  for (const MovedRows& rows : layout.moved) moved.push_back(&rows);
  std::sort(moved.begin(), moved.end(), [](const MovedRows* a, const MovedRows* b) { return a->offset < b->offset; });
  uint64_t kept = source_bin;
  for (const Extent& extent : extents) {
    if (extent.target == Target::kSource) kept -= extent.source_bytes;
  }
  uint64_t done = 0;
  const auto keep_piece = [&](uint64_t end) {
    TIERPACK_CHECK(end >= done);
    if (end == done) return;
    SourcePiece piece;
    piece.from = SourcePiece::From::kSource;
    piece.bytes = end - done;
    piece.offset = kept;
    kept += piece.bytes;
    out.pieces.push_back(piece);
  };
  for (const MovedRows* rows : moved) {
    keep_piece(rows->offset);
    SourcePiece piece;
    piece.from = SourcePiece::From::kRows;
    piece.bytes = rows->bytes;
    piece.tensor = numbers_.at(rows->tensor);
    piece.rows = rows->rows;
    piece.rows.other = rows->rows.ways == 2 ? numbers_.at(rows->rows.other) : 0;
    out.pieces.push_back(piece);
    done = rows->offset + rows->bytes;
  }
  keep_piece(layout.bytes);
  return source_bin;
}

uint64_t GatherPlanner::plan_shards(uint64_t source_bin_bytes) {
  for (uint32_t i = 0; i < inputs_.tensors.size(); ++i) {
    const TensorInfo& tensor = inputs_.tensors[i];
    const auto type = inputs_.transcode.find(tensor.name);
    if (type == inputs_.transcode.end()) continue;
    coded_.emplace(i, static_cast<uint32_t>(plan_.transcoded.size()));
    plan_.transcoded.push_back({tensor.name, tensor.dtype, type->second, tensor.shape.ne[0], tensor.shape.ne[2] * tensor.shape.ne[3]});
  }
  collect_moves();
  for (uint32_t number = 0; number < by_tensor_.size(); ++number) {
    if (!by_tensor_[number].empty()) plan_tensor(number, by_tensor_[number]);
  }
  for (uint32_t shard = 0; shard < inputs_.shards.size(); ++shard) source_bin_bytes = finish_shard(shard, source_bin_bytes);
  // A gather is done with its largest input: that one is not read twice.
  for (const Gather& gather : plan_.gathers) {
    const auto begin = plan_.inputs.begin() + gather.first_input;
    const auto largest = std::max_element(begin, begin + gather.inputs, [](const GatherInput& a, const GatherInput& b) { return a.bytes < b.bytes; });
    plan_.extents[largest->shard][largest->extent].runs_gather = true;
  }
  return source_bin_bytes;
}

}  // namespace tierpack::repack

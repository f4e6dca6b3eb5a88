#include "repack/hf_scales.h"

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "formats/quant_decode.h"

namespace tierpack::repack {

namespace {

constexpr uint64_t kBlock = 128;  // rows and columns that share one FP8 scale

// Where the first-level scales of a weight lie: lines of `across` scales.
struct Grid {
  explicit Grid(const QuantWeight& weight)
      : shared(weight.whole_stack),
        height(weight.matrix_rows()),
        block_rows(weight.block_rows),
        down(ceil_div(height, block_rows)),
        across(shared ? 1 : ceil_div(weight.columns(), weight.block_columns)) {}
  uint64_t line(uint64_t row) const { return shared ? 0 : row / height * down + row % height / block_rows; }
  bool shared;
  uint64_t height, block_rows, down, across;
};

// The one scale of a row, for schemes whose scales cover whole rows.
uint64_t scale_of_row(const QuantWeight& weight, uint64_t row) {
  return weight.scheme == QuantScheme::kNvfp4 ? row / weight.scale_2_rows : Grid(weight).line(row);
}

std::vector<float> read_lines(const SafetensorsSource& source, const QuantWeight& weight, uint64_t first,
                              uint64_t count) {
  const uint64_t across = Grid(weight).across, width = hf_traits(weight.scale->dtype).bits / 8;
  std::vector<std::byte> raw(count * across * width);
  source.read(*weight.scale, first * across * width, raw);
  std::vector<float> scales(count * across);
  decode_plain(weight.scale->dtype, raw.data(), scales.data(), scales.size());
  return scales;
}

// Block of columns of the target that holds column `column` of the source.
uint64_t target_block(const RowMove& move, uint64_t column) {
  const ColumnTiles& t = move.tiles;
  if (t.groups != 0) {
    const uint64_t tile = column / t.block;
    column = (tile % t.per_group * t.groups + tile / t.per_group) * t.block + column % t.block;
  }
  return (move.target_column + column) / kBlock;
}

struct MovedRows {
  uint64_t matrix, first, count;  // rows of the target that a move fills, all in one matrix
};
MovedRows moved_rows(const QuantWeight& weight, const RowMove& move, uint64_t height) {
  const uint64_t count = move.transposed ? weight.columns() : move.rows;
  return {move.target_row[0] / height, move.target_row[0] % height, count};
}

// Finds out whether the scales of a target can be laid out like those of a plain source matrix.
class Layout {
 public:
  Layout(const SafetensorsSource& source, const QuantCatalog& catalog, const TensorInfo& target,
         std::span<const RowMove> moves)
      : source_(source), catalog_(catalog), target_(target), moves_(moves) {}

  void check() {
    for (const RowMove& move : moves_) {
      const QuantWeight& weight = catalog_.weights[move.weight];
      TIERPACK_CHECK(move.ways == 1);
      const MovedRows rows = moved_rows(weight, move, target_.shape.ne[1]);
      TIERPACK_CHECK(rows.count <= target_.shape.ne[1] - rows.first);
      switch (weight.scheme) {
        case QuantScheme::kFp8Channel:
          if (move.transposed || weight.columns() != target_.shape.ne[0]) refuse(weight, "one scale a row");
          break;
        case QuantScheme::kFp8Block: check_blocks(weight, move, rows); break;
        default: {
          const uint64_t scale = scale_of_row(weight, move.source_row);
          agree({rows.matrix, 0, 0}, weight, move, scale);
          if (scale_of_row(weight, move.source_row + move.rows - 1) != scale) refuse(weight, "one scale a matrix");
        }
      }
    }
  }

 private:
  using Cell = std::array<uint64_t, 3>;  // matrix, block of rows, first column

  [[noreturn]] void refuse(const QuantWeight& weight, const char* what) const {
    fail(ErrorKind::kUnsupported, "{}: '{}' ({}) cannot become a part of '{}': its scales, {}, would be cut",
         source_.name(), weight.name, quant_scheme_name(weight.scheme), target_.name, what);
  }

  // All rows of a cell of the target have the same scales.
  void agree(const Cell& cell, const QuantWeight& weight, const RowMove& move, uint64_t scale) {
    const auto [at, added] = cells_.try_emplace(cell, move.weight, scale);
    if (added || at->second == std::pair{move.weight, scale}) return;
    refuse(weight, cell_text(weight));
  }
  static const char* cell_text(const QuantWeight& weight) {
    return weight.scheme == QuantScheme::kFp8Block ? "one for 128 x 128" : "one a matrix";
  }

  void check_blocks(const QuantWeight& weight, const RowMove& move, const MovedRows& rows) {
    if (weight.block_rows != kBlock || weight.block_columns != kBlock) {
      fail(ErrorKind::kUnsupported, "{}: '{}' has one scale for {} x {} elements; supported are 128 x 128",
           source_.name(), weight.name, weight.block_rows, weight.block_columns);
    }
    const Grid grid(weight);
    const uint64_t in_matrix = move.source_row % grid.height;
    if (move.transposed) {
      const bool one_line = grid.line(move.source_row) == grid.line(move.source_row + move.rows - 1);
      if (move.target_column != 0 || rows.first != 0 || !(in_matrix % kBlock == 0 || one_line)) {
        refuse(weight, cell_text(weight));
      }
      return;
    }
    if (move.target_column % kBlock != 0 || (move.tiles.groups != 0 && move.tiles.block % kBlock != 0)) {
      refuse(weight, cell_text(weight));
    }
    for (uint64_t first = rows.first, end = rows.first + rows.count; first < end;) {
      const uint64_t cell = first / kBlock, next = std::min(end, (cell + 1) * kBlock);
      const uint64_t row = move.source_row + first - rows.first;
      agree({rows.matrix, cell, move.target_column}, weight, move, grid.line(row));
      if (grid.line(row + next - first - 1) != grid.line(row)) refuse(weight, cell_text(weight));
      first = next;
    }
  }

  const SafetensorsSource& source_;
  const QuantCatalog& catalog_;
  const TensorInfo& target_;
  const std::span<const RowMove> moves_;
  std::map<Cell, std::pair<uint32_t, uint64_t>> cells_;
};

Shape scale_shape(QuantScheme scheme, const Shape& scaled) {
  Shape shape;
  shape.ne = {1, 1, scaled.ne[2], 1};
  shape.dims = 1;
  if (scheme == QuantScheme::kFp8Block) {
    shape.ne[0] = ceil_div(scaled.ne[0], kBlock);
    shape.ne[1] = ceil_div(scaled.ne[1], kBlock);
    shape.dims = 2;
  } else if (scheme == QuantScheme::kFp8Channel) {
    shape.ne[1] = scaled.ne[1];
    shape.dims = 2;
  }
  if (scaled.dims > 2) shape.dims = 3;
  return shape;
}

}  // namespace

DType native_type(const SafetensorsSource& source, const QuantWeight& weight) {
  const HfType type = weight.data->dtype;
  switch (weight.scheme) {
    case QuantScheme::kNvfp4: return DType::kNVFP4;
    case QuantScheme::kMxfp4: return DType::kMXFP4;
    case QuantScheme::kMxfp8:
      fail(ErrorKind::kUnsupported,
           "{}: '{}' is quantised as MXFP8, which packs do not hold; use a checkpoint in BF16, "
           "FP8 (E4M3), NVFP4 or MXFP4",
           source.name(), weight.name);
    default: break;
  }
  switch (type) {
    case HfType::kF32: return DType::kF32;
    case HfType::kF16: return DType::kF16;
    case HfType::kBF16: return DType::kBF16;
    case HfType::kF8E4M3: return DType::kF8_E4M3;
    default:
      fail(ErrorKind::kUnsupported,
           "{}: '{}' is of type {}, which packs do not hold; use a checkpoint in BF16, FP8 "
           "(E4M3), NVFP4 or MXFP4",
           source.name(), weight.name, hf_type_name(type));
  }
}

void require_numbers(const SafetensorsSource& source, const QuantWeight& weight) {
  if (weight.scheme != QuantScheme::kPlain) return;
  switch (weight.data->dtype) {
    case HfType::kF32:
    case HfType::kF16:
    case HfType::kBF16:
    case HfType::kF8E4M3:
    case HfType::kF8E5M2: return;
    default:
      fail(ErrorKind::kUnsupported, "{}: '{}' is of type {}; floating-point numbers are needed", source.name(),
           weight.name, hf_type_name(weight.data->dtype));
  }
}

std::optional<DerivedTensor> scale_tensor(const SafetensorsSource& source, const QuantCatalog& catalog,
                                          const TensorInfo& target, std::span<const RowMove> moves) {
  const QuantScheme scheme = catalog.weights[moves.front().weight].scheme;
  if (scheme == QuantScheme::kPlain || scheme == QuantScheme::kMxfp4) return std::nullopt;
  Layout(source, catalog, target, moves).check();
  DerivedTensor d;
  const std::string_view suffix = ".weight";
  TIERPACK_CHECK(target.name.ends_with(suffix));
  d.target.name = target.name.substr(0, target.name.size() - suffix.size()) + ".scale";
  d.target.shape = scale_shape(scheme, target.shape);
  d.target.bytes = d.target.shape.elements() * sizeof(float);
  d.op = DerivedOp::kScale;
  d.scaled = target.name;
  d.scaled_shape = target.shape;
  d.moves.assign(moves.begin(), moves.end());
  for (const RowMove& move : moves) d.weights.push_back(move.weight);
  std::sort(d.weights.begin(), d.weights.end());
  d.weights.erase(std::unique(d.weights.begin(), d.weights.end()), d.weights.end());
  return d;
}

std::vector<float> scale_values(const SafetensorsSource& source, const QuantCatalog& catalog,
                                const DerivedTensor& derived, uint64_t matrix) {
  const uint64_t height = derived.scaled_shape.ne[1], across = derived.target.shape.ne[0];
  std::vector<float> out(across * derived.target.shape.ne[1]);
  for (const RowMove& move : derived.moves) {
    const QuantWeight& weight = catalog.weights[move.weight];
    const MovedRows rows = moved_rows(weight, move, height);
    if (rows.matrix != matrix) continue;
    if (weight.scheme == QuantScheme::kNvfp4) {
      out[0] = second_scale_multipliers(source, weight)[scale_of_row(weight, move.source_row)];
      continue;
    }
    const Grid grid(weight);
    const uint64_t first_line = grid.line(move.source_row);
    const uint64_t lines = grid.line(move.source_row + move.rows - 1) - first_line + 1;
    const std::vector<float> scales = read_lines(source, weight, first_line, lines);
    const auto line_of = [&](uint64_t row) {
      return &scales[(grid.line(move.source_row + row) - first_line) * grid.across];
    };
    if (weight.scheme == QuantScheme::kFp8Tensor) {
      out[0] = scales[0];
    } else if (weight.scheme == QuantScheme::kFp8Channel) {
      for (uint64_t i = 0; i < rows.count; ++i) out[rows.first + i] = *line_of(i);
    } else if (move.transposed) {
      for (uint64_t i = 0; i < lines; ++i) {
        for (uint64_t c = 0; c < grid.across; ++c) out[c * across + i] = scales[i * grid.across + c];
      }
    } else {
      for (uint64_t r = 0; r < rows.count; r = ((rows.first + r) / kBlock + 1) * kBlock - rows.first) {
        float* to = &out[(rows.first + r) / kBlock * across];
        for (uint64_t c = 0; c < grid.across; ++c) to[target_block(move, c * kBlock)] = line_of(r)[c];
      }
    }
  }
  return out;
}

}  // namespace tierpack::repack

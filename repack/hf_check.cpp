// check_mapping(): every target once, every source once.
#include <algorithm>
#include <map>

#include "repack/hf_mapping.h"

namespace tierpack::repack {

namespace {

// Rows [row, row + rows) x columns [column, column + columns) of the tensor `of`.
struct Rectangle {
  uint32_t of;
  uint64_t row, rows, column, columns;
};

// That no two rectangles overlap: a sweep over rows, with the columns in use at each moment.
void check_disjoint(std::vector<Rectangle>& all) {
  struct Event {
    uint32_t of;
    uint64_t row;
    bool begins;
    const Rectangle* rectangle;
  };
  std::vector<Event> events;
  events.reserve(2 * all.size());
  for (const Rectangle& r : all) {
    if (r.rows == 0 || r.columns == 0) continue;
    events.push_back({r.of, r.row, true, &r});
    events.push_back({r.of, r.row + r.rows, false, &r});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    if (a.of != b.of) return a.of < b.of;
    if (a.row != b.row) return a.row < b.row;
    if (a.begins != b.begins) return b.begins;  // ends first
    return a.rectangle->column < b.rectangle->column;
  });
  std::map<uint64_t, uint64_t> in_use;  // first column -> end
  for (const Event& event : events) {
    const uint64_t first = event.rectangle->column, end = first + event.rectangle->columns;
    if (!event.begins) {
      in_use.erase(first);
      continue;
    }
    const auto after = in_use.lower_bound(first);
    TIERPACK_CHECK(after == in_use.end() || after->first >= end);
    TIERPACK_CHECK(after == in_use.begin() || std::prev(after)->second <= first);
    in_use.emplace(first, end);
  }
}

void require_within(uint64_t first, uint64_t count, uint64_t size) {
  TIERPACK_CHECK(first <= size && count <= size - first);
}

// What a move fills of its target number `way`.
Rectangle filled(const QuantWeight& weight, const RowMove& move, uint32_t way) {
  const uint64_t lines = move.transposed ? weight.columns() : move.rows;
  return {move.target[way], move.target_row[way], (lines + move.ways - 1 - way) / move.ways, move.target_column,
          move.transposed ? move.rows : weight.columns()};
}

void check_tiles(const QuantWeight& weight, const RowMove& move, DType type) {
  const ColumnTiles& tiles = move.tiles;
  const uint64_t block = type == DType::kNVFP4 ? kNvfp4ScaleElements : traits(type).block_elements;
  TIERPACK_CHECK(!move.transposed || (block == 1 && tiles.groups == 0));
  TIERPACK_CHECK(move.target_column % block == 0 && weight.columns() % block == 0);
  if (tiles.groups == 0) return;
  TIERPACK_CHECK(tiles.block % block == 0);
  TIERPACK_CHECK(uint64_t{tiles.groups} * tiles.per_group * tiles.block == weight.columns());
}

enum class Use : uint8_t { kNone, kMoved, kDerived, kKept };

void mark(std::vector<Use>& uses, size_t weight, Use use) {
  TIERPACK_CHECK(weight < uses.size());
  TIERPACK_CHECK(uses[weight] == Use::kNone || uses[weight] == use);
  uses[weight] = use;
}

}  // namespace

void check_mapping(const QuantCatalog& catalog, const HfMapping& mapping) {
  std::vector<Use> uses(catalog.weights.size(), Use::kNone);
  std::vector<uint64_t> taken(catalog.weights.size(), 0);    // rows
  std::vector<uint64_t> covered(mapping.tensors.size(), 0);  // elements
  std::vector<Rectangle> sources, targets;
  for (const RowMove& move : mapping.moves) {
    mark(uses, move.weight, Use::kMoved);
    const QuantWeight& weight = catalog.weights[move.weight];
    TIERPACK_CHECK(move.ways == 1 || move.ways == 2);
    require_within(move.source_row, move.rows, weight.rows());
    sources.push_back({move.weight, move.source_row, move.rows, 0, weight.columns()});
    taken[move.weight] += move.rows;
    for (uint32_t way = 0; way < move.ways; ++way) {
      TIERPACK_CHECK(move.target[way] < mapping.tensors.size());
      const TensorInfo& target = mapping.tensors[move.target[way]];
      check_tiles(weight, move, target.dtype);
      const Rectangle to = filled(weight, move, way);
      require_within(to.row, to.rows, target.shape.rows());
      require_within(to.column, to.columns, target.shape.ne[0]);
      covered[to.of] += to.rows * to.columns;
      targets.push_back(to);
    }
  }
  check_disjoint(sources);
  check_disjoint(targets);
  for (size_t i = 0; i < mapping.tensors.size(); ++i) TIERPACK_CHECK(covered[i] == mapping.tensors[i].shape.elements());
  for (const DerivedTensor& derived : mapping.derived) {
    for (const uint32_t weight : derived.weights) {
      mark(uses, weight, derived.op == DerivedOp::kScale ? Use::kMoved : Use::kDerived);
    }
  }
  for (const std::string& name : mapping.kept_only) {
    const QuantWeight* weight = catalog.find(name);
    TIERPACK_CHECK(weight != nullptr);
    const auto id = static_cast<size_t>(weight - catalog.weights.data());
    TIERPACK_CHECK(uses[id] == Use::kNone);
    uses[id] = Use::kKept;
  }
  for (size_t i = 0; i < uses.size(); ++i) {
    TIERPACK_CHECK(uses[i] != Use::kNone);
    TIERPACK_CHECK(uses[i] != Use::kMoved || taken[i] == catalog.weights[i].rows());
  }
}

}  // namespace tierpack::repack

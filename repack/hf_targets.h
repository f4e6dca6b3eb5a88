// What the rows of hf_mapping.cpp are written with: finding weights, and adding targets, moves and derived tensors to a
// mapping. Knows no table.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "repack/hf_mapping.h"

namespace tierpack::repack {

class HfTargets {
 public:
  HfTargets(const SafetensorsSource& source, const QuantCatalog& catalog);

  // A weight by its name in full; a name without ".weight" also finds the one that has it.
  const QuantWeight* find(const std::string& name) const;
  const QuantWeight& require(const std::string& name) const;  // throws kCorrupt
  // Notes that the weight has a place in the pack.
  const QuantWeight& use(const QuantWeight& weight);

  // Adds a target of the type of `first`, to be filled by the moves up to the next begin(). kUnsupported when its rows
  // are not whole blocks.
  uint32_t begin(const std::string& name, const Shape& shape, const QuantWeight& first);
  // Rows of a weight into the target, for the caller to refine. kUnsupported unless its type is that of the others.
  RowMove& move(const QuantWeight& weight, uint64_t source_row, uint64_t rows, uint32_t target, uint64_t target_row);
  // After the last move: adds the target's scales, if it has such.
  void finish(uint32_t target);
  DType dtype(uint32_t target) const { return mapping_.tensors[target].dtype; }

  // Adds an F32 tensor of as many elements as `weight` has, or fewer.
  DerivedTensor& derive(const std::string& name, const Shape& shape, const QuantWeight& weight, DerivedOp op);

  // kCorrupt unless rows have this many elements: a shape with dimensions of 1 could have them elsewhere.
  void check_columns(const QuantWeight& weight, uint64_t columns) const;

  // Ends the mapping: weights without a place are kept where `kept` says so; any other is kUnsupported.
  HfMapping take(const std::function<bool(std::string_view name)>& kept, const char* architecture);

 private:
  uint32_t id_of(const QuantWeight& weight) const { return static_cast<uint32_t>(&weight - catalog_.weights.data()); }
  const SafetensorsSource& source_;
  const QuantCatalog& catalog_;
  HfMapping mapping_;
  std::vector<bool> used_;
  size_t first_move_ = 0;  // of the target at hand
};

}  // namespace tierpack::repack

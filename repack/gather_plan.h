// The part of a repack plan that concerns checkpoints whose rows do not simply lie one after the other in the pack: which source ranges
// are put together into which run of a target.
#pragma once

#include "repack/repack_plan.h"

namespace tierpack::repack {

// Adds extents, gathers, inputs and the manifest's sources for shards with moved rows. Tensors are placed already.
class GatherPlanner {
 public:
  GatherPlanner(RepackPlan& plan, const PlanInputs& inputs);
  ~GatherPlanner();
  // `source_bin_bytes` is where the bytes that no move takes go on in source.bin; returns where they end.
  uint64_t plan_shards(uint64_t source_bin_bytes);

 private:
  struct Move;
  struct Matrix;
  void collect_moves();
  void plan_tensor(uint32_t number, std::vector<Move>& moves);
  void plan_matrix(const Matrix& matrix, const std::vector<Move>& moves, size_t& first);
  void copy_rows(const Matrix& matrix, const Move& move, uint64_t first, uint64_t rows);
  void code_rows(uint32_t number, const Matrix& matrix, const Move& move, uint64_t first, uint64_t rows);
  Matrix matrix_of(uint32_t number, uint64_t index) const;
  uint32_t mover_of(const Matrix& matrix, const RowPiece& rows);
  uint64_t finish_shard(uint32_t shard, uint64_t source_bin_bytes);

  RepackPlan& plan_;
  const PlanInputs& inputs_;
  std::vector<uint32_t> numbers_;                // in the pack, of PlanInputs::tensors
  std::vector<std::vector<Move>> by_tensor_;
  std::vector<std::vector<Extent>> spans_;      // by shard
  std::map<uint32_t, uint32_t> coded_;          // tensors of PlanInputs -> RepackPlan::transcoded
  std::vector<std::pair<RowLayout, uint32_t>> layouts_;  // of recent movers
};

}  // namespace tierpack::repack

// Cuts the shards of a GGUF into the extents of a plan.
#pragma once

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "formats/row_groups.h"
#include "repack/repack_plan.h"

namespace tierpack::repack {

// Adds the extents of a plan shard by shard.
class ExtentCutter {
 public:
  ExtentCutter(RepackPlan& plan, const PlanInputs& inputs) : plan_(plan), inputs_(inputs), max_(inputs.extent_bytes_max) {
    for (const DenseTensor& tensor : plan.manifest.dense) dense_.emplace(tensor.name, &tensor);
    for (const ExpertLayer& layer : plan.manifest.expert_layers) {
      for (const ExpertPart* part : layer.parts()) stacks_.emplace(part->tensor, &layer);
    }
    for (uint32_t i = 0; i < plan.manifest.tensor_count(); ++i) numbers_.emplace(plan.manifest.tensor_name(i), i);
  }

  void cut(const ShardLayout& shard) {
    std::vector<const TensorInfo*> tensors;
    for (const TensorInfo& tensor : shard.tensors) tensors.push_back(&tensor);
    std::sort(tensors.begin(), tensors.end(),
              [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
    SourceShard& out = plan_.manifest.sources.emplace_back();
    out.path = shard.name;
    out.bytes = shard.bytes;
    extents_ = &plan_.extents.emplace_back();
    at_ = 0;
    auto gap = shard.gaps.begin();
    auto tensor = tensors.begin();
    while (at_ < shard.bytes) {
      if (gap != shard.gaps.end() && gap->offset == at_) {
        add_gap(*gap++, out);
      } else {
        TIERPACK_CHECK(tensor != tensors.end() && (*tensor)->offset == at_);
        add_tensor(**tensor++, out);
      }
    }
    TIERPACK_CHECK(gap == shard.gaps.end() && tensor == tensors.end() && at_ == shard.bytes);
  }

  uint64_t source_bin_bytes() const { return source_bin_bytes_; }

 private:
  void add(Extent extent) {
    extent.source_offset = at_;
    at_ += extent.source_bytes;
    extents_->push_back(extent);
  }

  void add_copy(Extent::Kind kind, Target target, uint64_t target_offset, uint64_t bytes) {
    Extent extent;
    extent.kind = kind;
    extent.target = target;
    add_pieces(extent, target_offset, bytes, max_);
  }

  // Bytes of a tensor that go as they are, cut between blocks.
  void add_tensor_copy(Target target, uint64_t target_offset, DType dtype, uint64_t bytes) {
    Extent extent;
    extent.target = target;
    extent.of_tensor = true;
    extent.dtype = dtype;
    add_pieces(extent, target_offset, bytes, max_ - max_ % traits(dtype).block_bytes);
  }

  void add_pieces(Extent extent, uint64_t target_offset, uint64_t bytes, uint64_t step_max) {
    while (bytes > 0) {
      extent.source_bytes = std::min(bytes, step_max);
      extent.target_offset = target_offset;
      extent.target_bytes = extent.kind == Extent::Kind::kZeros || extent.kind == Extent::Kind::kSkip ? 0 : extent.source_bytes;
      add(extent);
      target_offset += extent.source_bytes;
      bytes -= extent.source_bytes;
    }
  }

  // Row groups go to their places interleaved, cut between groups; what lies row by row is copied.
  void add_matrix(Target target, uint64_t target_offset, DType dtype, uint64_t columns, uint64_t rows) {
    const uint64_t stride = row_bytes(dtype, columns);
    uint64_t left = has_row_groups(dtype, rows) ? grouped_rows(rows) * stride : 0;
    const uint64_t behind = rows * stride - left;
    const uint64_t step_max = max_ / (kGroupRows * stride) * (kGroupRows * stride);
    while (left > 0) {
      TIERPACK_CHECK(step_max > 0);
      Extent extent;
      extent.kind = Extent::Kind::kGroups;
      extent.target = target;
      extent.of_tensor = true;
      extent.dtype = dtype;
      extent.columns = columns;
      extent.source_bytes = std::min(left, step_max);
      extent.target_offset = target_offset;
      extent.target_bytes = extent.source_bytes;
      add(extent);
      target_offset += extent.source_bytes;
      left -= extent.source_bytes;
    }
    add_tensor_copy(target, target_offset, dtype, behind);
  }

  // Every matrix of a tensor with more dimensions has groups of its own.
  void add_dense(const DenseTensor& tensor, uint64_t bytes) {
    uint64_t at = plan_.manifest.records[tensor.record].offset;
    const Shape& shape = tensor.shape;
    if (!has_row_groups(tensor.dtype, shape.ne[1])) return add_tensor_copy(Target::kDense, at, tensor.dtype, bytes);
    const uint64_t matrices = shape.ne[2] * shape.ne[3];
    for (uint64_t i = 0; i < matrices; ++i, at += bytes / matrices) {
      add_matrix(Target::kDense, at, tensor.dtype, shape.ne[0], shape.ne[1]);
    }
  }

  void add_gap(const Gap& gap, SourceShard& out) {
    if (!inputs_.transcode.empty()) return add_copy(Extent::Kind::kSkip, Target::kSource, 0, gap.bytes);
    SourcePiece piece;
    piece.bytes = gap.bytes;
    if (gap.zeros) {
      add_copy(Extent::Kind::kZeros, Target::kSource, 0, gap.bytes);
    } else {
      piece.from = SourcePiece::From::kSource;
      piece.offset = source_bin_bytes_;
      add_copy(Extent::Kind::kCopy, Target::kSource, source_bin_bytes_, gap.bytes);
      source_bin_bytes_ += gap.bytes;
    }
    out.pieces.push_back(piece);
  }

  void add_tensor(const TensorInfo& tensor, SourceShard& out) {
    SourcePiece piece;
    piece.from = SourcePiece::From::kTensor;
    piece.bytes = tensor.bytes;
    piece.tensor = numbers_.at(tensor.name);
    if (inputs_.transcode.empty()) out.pieces.push_back(piece);
    if (const auto type = inputs_.transcode.find(tensor.name); type != inputs_.transcode.end()) return add_transcoded(tensor, type->second);
    if (const auto dense = dense_.find(tensor.name); dense != dense_.end()) {
      add_dense(*dense->second, tensor.bytes);
    } else if (const auto stack = stacks_.find(tensor.name); stack != stacks_.end()) {
      add_stack(*stack->second, tensor.name);
    } else {
      add_rows(tensor.name);
    }
  }

  void add_stack(const ExpertLayer& layer, const std::string& tensor) {
    for (uint32_t expert = 0; expert < layer.experts; ++expert) {
      const Record& record = plan_.manifest.records[layer.first_record + expert];
      for (const ExpertPart* part : layer.parts()) {
        if (part->tensor != tensor) continue;
        add_matrix(Target::kExperts, record.offset + part->offset, part->dtype, part->in, part->out);
      }
    }
  }

  // Rows of each matrix, cut between groups.
  void add_transcoded(const TensorInfo& tensor, DType to) {
    const auto number = static_cast<uint32_t>(plan_.transcoded.size());
    const uint64_t matrices = tensor.shape.ne[2] * tensor.shape.ne[3];
    plan_.transcoded.push_back({tensor.name, tensor.dtype, to, tensor.shape.ne[0], matrices});
    const auto stack = stacks_.find(tensor.name);
    for (uint64_t m = 0; m < matrices; ++m) {
      if (stack == stacks_.end()) {
        const uint64_t at = plan_.manifest.records[dense_.at(tensor.name)->record].offset;
        const uint64_t bytes = row_bytes(to, tensor.shape.ne[0]) * tensor.shape.ne[1];
        add_coded_rows(number, m, Target::kDense, at + m * bytes, tensor.shape.ne[1]);
        continue;
      }
      const Record& record = plan_.manifest.records[stack->second->first_record + m];
      for (const ExpertPart* part : stack->second->parts()) {
        if (part->tensor == tensor.name) add_coded_rows(number, m, Target::kExperts, record.offset + part->offset, part->out);
      }
    }
  }

  void add_coded_rows(uint32_t number, uint64_t matrix, Target target, uint64_t target_offset, uint64_t rows) {
    for (const Extent& extent : coded_rows(plan_.transcoded[number], number, matrix, target, target_offset, at_, rows, max_)) add(extent);
  }

  void add_rows(const std::string& name) {
    for (uint32_t i = 0; i < plan_.manifest.rows.size(); ++i) {
      const RowTable& table = plan_.manifest.rows[i];
      if (table.name != name) continue;
      const uint64_t units_max = std::max<uint64_t>(1, max_ / table.unit_bytes());
      const uint64_t units = table.pages / table.pages_per_row;
      const uint64_t rows = table.shape.rows();
      for (uint64_t unit = 0; unit < units; unit += units_max) {
        const uint64_t step = std::min(units_max, units - unit);
        const uint64_t first_row = unit * table.unit_rows();
        Extent extent;
        extent.kind = Extent::Kind::kRows;
        extent.target = Target::kRows;
        extent.of_tensor = true;
        extent.dtype = table.dtype;
        extent.table = i;
        extent.source_bytes = (std::min(rows, first_row + step * table.unit_rows()) - first_row) * table.row_bytes;
        extent.target_offset = table.first_page * kPageBytes + unit * table.unit_bytes();
        extent.target_bytes = step * table.unit_bytes();
        add(extent);
      }
      return;
    }
    TIERPACK_CHECK(false);
  }

  RepackPlan& plan_;
  const PlanInputs& inputs_;
  const uint64_t max_;
  std::unordered_map<std::string_view, const DenseTensor*> dense_;
  std::unordered_map<std::string_view, const ExpertLayer*> stacks_;
  std::unordered_map<std::string_view, uint32_t> numbers_;
  std::vector<Extent>* extents_ = nullptr;
  uint64_t at_ = 0;
  uint64_t source_bin_bytes_ = 0;
};

}  // namespace tierpack::repack

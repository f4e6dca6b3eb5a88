#include "repack/repack_plan.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "base/printable.h"
#include "base/zstd.h"
#include "formats/lock.h"
#include "formats/pack_layout.h"
#include "formats/expert_stacks.h"
#include "formats/row_groups.h"
#include "repack/extent_cutter.h"
#include "repack/gather_plan.h"

namespace tierpack::repack {

namespace {

// All tensors as the pack has them.
TensorInfo as_packed(TensorInfo tensor, const std::map<std::string, DType>& transcode) {
  const auto type = transcode.find(tensor.name);
  if (type == transcode.end()) return tensor;
  tensor.dtype = type->second;
  tensor.bytes = row_bytes(tensor.dtype, tensor.shape.ne[0]) * tensor.shape.rows();
  return tensor;
}

// "blk.3.ffn_gate_exps.weight" has its factors in "blk.3.ffn_gate_exps.scale".
std::string scale_name(std::string_view weight) {
  constexpr std::string_view kSuffix = ".weight";
  return std::string(weight.substr(0, weight.size() - (weight.ends_with(kSuffix) ? kSuffix.size() : 0))) + ".scale";
}

// Tensors of the pack in the source's order, without the factors that go into experts' records.
std::vector<TensorInfo> all_tensors(const PlanInputs& inputs) {
  std::vector<TensorInfo> all;
  for (const TensorInfo& tensor : source_tensors(inputs)) all.push_back(as_packed(tensor, inputs.transcode));
  for (const TensorInfo& tensor : inputs.derived) {
    if (!is_expert_scale(tensor.name)) all.push_back(tensor);
  }
  return all;
}

// Factors of the experts' parts: {columns, rows, experts} for each, or {experts} where there is one a matrix.
void add_expert_scales(const PlanInputs& inputs, PackManifest& manifest) {
  std::unordered_map<std::string_view, const TensorInfo*> scales;
  for (const TensorInfo& tensor : inputs.derived) {
    if (is_expert_scale(tensor.name)) scales.emplace(tensor.name, &tensor);
  }
  std::unordered_map<std::string_view, bool> used;
  for (ExpertLayer& layer : manifest.expert_layers) {
    for (ExpertPart* part : {&layer.gate, &layer.up, &layer.down}) {
      auto found = scales.find(scale_name(part->tensor));
      // Published files give a merged stack the factors of up.
      if (found == scales.end() && part != &layer.down && layer.gate.tensor == layer.up.tensor) {
        found = scales.find(fmt::format("blk.{}.ffn_up_exps.scale", layer.layer));
      }
      if (found == scales.end()) continue;
      const Shape& shape = found->second->shape;
      const bool flat = shape.ne[0] == layer.experts && shape.ne[1] == 1 && shape.ne[2] == 1;
      part->scale_columns = flat ? 1 : static_cast<uint32_t>(std::min<uint64_t>(shape.ne[0], UINT32_MAX));
      part->scale_rows = flat ? 1 : static_cast<uint32_t>(std::min<uint64_t>(shape.ne[1], UINT32_MAX));
      const uint64_t blocks = uint64_t{part->scale_rows} * part->scale_columns;
      if ((!flat && shape.ne[2] != layer.experts) || shape.ne[3] != 1 || part->scale_rows > part->out || part->scale_columns > part->in ||
          (blocks > 1 && part->dtype != DType::kF8_E4M3)) {
        fail(ErrorKind::kCorrupt, "{}: {} has shape {}, which are no factors of {} matrices of {} x {} ({})", inputs.source_name,
             found->second->name, shape.text(), layer.experts, part->in, part->out, dtype_name(part->dtype));
      }
      used[found->first] = true;
    }
    TIERPACK_CHECK(place_parts(layer));
  }
  for (const auto& [name, tensor] : scales) {
    if (!used[name]) fail(ErrorKind::kCorrupt, "{}: {} belongs to no experts", inputs.source_name, tensor->name);
  }
}

// Where computed values go. `inputs.derived` says what they are.
void place_derived(const PlanInputs& inputs, RepackPlan& plan) {
  const PackManifest& manifest = plan.manifest;
  std::unordered_map<std::string_view, const DenseTensor*> dense;
  for (const DenseTensor& tensor : manifest.dense) dense.emplace(tensor.name, &tensor);
  std::unordered_map<std::string_view, uint32_t> numbers;
  for (uint32_t i = 0; i < inputs.derived.size(); ++i) {
    const TensorInfo& tensor = inputs.derived[i];
    numbers.emplace(tensor.name, i);
    if (is_expert_scale(tensor.name)) continue;
    const uint64_t matrices = tensor.shape.ne[2] * tensor.shape.ne[3];
    const uint64_t bytes = tensor.shape.ne[0] * tensor.shape.ne[1] * sizeof(float);
    for (uint64_t m = 0; m < matrices; ++m) {
      plan.derived.push_back({Target::kDense, manifest.records[dense.at(tensor.name)->record].offset + m * bytes, bytes, i, m});
    }
  }
  for (const ExpertLayer& layer : manifest.expert_layers) {
    for (const ExpertPart* part : layer.parts()) {
      if (part->scale_rows == 0) continue;
      auto found = numbers.find(scale_name(part->tensor));
      if (found == numbers.end()) found = numbers.find(fmt::format("blk.{}.ffn_up_exps.scale", layer.layer));
      for (uint32_t e = 0; e < layer.experts; ++e) {
        const Record& record = manifest.records[layer.first_record + e];
        plan.derived.push_back({Target::kExperts, record.offset + part->scale_offset, part->scale_bytes(), found->second, e});
      }
    }
  }
}

// Numbers and places the records of dense tensors and experts, and the pages of tables.
void place(const PlanInputs& inputs, PackManifest& manifest) {
  const std::vector<TensorInfo> all = all_tensors(inputs);
  std::vector<TensorInfo> dense;
  uint64_t page = 0;
  for (const TensorInfo& tensor : all) {
    switch (classify(tensor)) {
      case TensorClass::kDense: dense.push_back(tensor); break;
      case TensorClass::kExpertStack: break;
      case TensorClass::kRows:
        manifest.rows.push_back(*place_rows(tensor.name, tensor.dtype, tensor.shape, page));
        page += manifest.rows.back().pages;
        break;
    }
  }
  uint64_t at = 0;
  for (const TensorInfo& tensor : in_load_order(std::move(dense))) {
    manifest.dense.push_back({tensor.name, tensor.dtype, tensor.shape, static_cast<uint32_t>(manifest.records.size())});
    manifest.records.push_back({at, tensor.bytes, Segment::kDense, {}});
    at = align_up(at + tensor.bytes, kRecordAlignment);
  }
  manifest.expert_layers = expert_layers(all, inputs.source_name);
  add_expert_scales(inputs, manifest);
  for (ExpertLayer& layer : manifest.expert_layers) {
    layer.first_record = static_cast<uint32_t>(manifest.records.size());
    manifest.records.insert(manifest.records.end(), layer.experts, {0, layer.record_bytes, Segment::kExperts, {}});
  }
  at = 0;
  for (const auto& [layer, expert] : expert_order(manifest.expert_layers, inputs.profile)) {
    Record& record = manifest.records[manifest.expert_layers[layer].first_record + expert];
    record.offset = at;
    at = align_up(at + record.bytes, kRecordAlignment);
  }
}

uint64_t segment_bytes(const PackManifest& manifest, Segment segment) {
  uint64_t end = 0;
  for (const Record& record : manifest.records) {
    if (record.segment == segment) end = std::max(end, align_up(record.offset + record.bytes, kRecordAlignment));
  }
  return end;
}

void list_files(RepackPlan& plan, uint64_t source_bin_bytes) {
  PackManifest& manifest = plan.manifest;
  const auto add = [&](const char* name, uint64_t bytes) { manifest.files.push_back({name, bytes, {}}); };
  add(kPackMetadataName, plan.metadata.size());
  add(kPackRecordsName, kRecordsHeaderBytes + manifest.records.size() * kRecordEntryBytes);
  uint64_t source_pieces = 0;
  for (const SourceShard& shard : manifest.sources) source_pieces += shard.pieces.size();
  add(kPackSourcesName, kSourcesHeaderBytes + source_pieces * kSourceEntryBytes);
  add(segment_file_name(Segment::kDense), segment_bytes(manifest, Segment::kDense));
  add(segment_file_name(Segment::kExperts), segment_bytes(manifest, Segment::kExperts));
  uint64_t pages = 0;
  for (const RowTable& table : manifest.rows) pages += table.pages;
  if (pages > 0) add(segment_file_name(Segment::kRows), pages * kPageBytes);
  add(kPackSourceName, source_bin_bytes);
  if (manifest.profile_id) add(kPackProfileName, plan.profile_json.size());
}

}  // namespace

Metadata without_split_keys(const Metadata& metadata) {
  Metadata out(metadata.source());
  for (const auto& [key, value] : metadata.entries()) {
    if (!key.starts_with("split.")) out.add(key, value);
  }
  return out;
}

std::vector<TensorInfo> source_tensors(const PlanInputs& inputs) {
  std::vector<TensorInfo> all;
  for (const ShardLayout& shard : inputs.shards) all.insert(all.end(), shard.tensors.begin(), shard.tensors.end());
  all.insert(all.end(), inputs.tensors.begin(), inputs.tensors.end());
  return all;
}

std::vector<TensorInfo> second_scales(const std::map<std::string, DType>& types, const std::vector<TensorInfo>& tensors) {
  std::vector<TensorInfo> out;
  for (const TensorInfo& tensor : tensors) {
    const auto type = types.find(tensor.name);
    if (type == types.end() || type->second != DType::kNVFP4) continue;
    TensorInfo& scale = out.emplace_back();
    scale.name = scale_name(tensor.name);
    const uint64_t matrices = tensor.shape.ne[2] * tensor.shape.ne[3];
    if (matrices > 1 || is_expert_scale(scale.name)) {
      scale.shape.ne = {1, 1, matrices, 1};
      scale.shape.dims = 3;
    }
    scale.bytes = matrices * sizeof(float);
  }
  return out;
}

std::vector<Extent> coded_rows(const TranscodedTensor& tensor, uint32_t number, uint64_t matrix, Target target, uint64_t target_offset,
                               uint64_t source_offset, uint64_t rows, uint64_t bytes_max) {
  const uint64_t from = row_bytes(tensor.from, tensor.columns);
  const uint64_t to = row_bytes(tensor.to, tensor.columns);
  const uint64_t step_max = bytes_max / std::max({from, to, tensor.columns * sizeof(float)}) / kGroupRows * kGroupRows;
  TIERPACK_CHECK(step_max > 0);
  std::vector<Extent> out;
  for (uint64_t row = 0; row < rows; row += step_max) {
    const uint64_t step = std::min(step_max, rows - row);
    Extent& extent = out.emplace_back();
    extent.kind = Extent::Kind::kTranscode;
    extent.target = target;
    extent.of_tensor = true;
    extent.dtype = tensor.from;
    extent.columns = tensor.columns;
    extent.transcoded = number;
    extent.matrix = matrix;
    extent.source_offset = source_offset + row * from;
    extent.source_bytes = step * from;
    extent.target_offset = target_offset + row * to;
    extent.target_bytes = step * to;
  }
  return out;
}

uint64_t extent_bytes_needed(const PlanInputs& inputs) {
  uint64_t needed = kExtentBytesMin;
  const auto look_at = [&](const TensorInfo& tensor, bool of_checkpoint) {
    const Shape& shape = tensor.shape;
    if (classify(tensor) == TensorClass::kRows) return;
    const uint64_t row = row_bytes(tensor.dtype, shape.ne[0]);
    const bool groups = has_row_groups(tensor.dtype, shape.ne[1]);
    if (groups && !groups_fit(tensor.dtype, shape.ne[0], shape.ne[1])) {
      fail(ErrorKind::kUnsupported, "{}: {} ({} {}) has rows of {}; packs interleave {} rows of a quantised matrix in groups of at "
           "most {}", inputs.source_name, tensor.name, dtype_name(tensor.dtype), shape.text(), format_size(row), kGroupRows,
           format_size(kGroupBytesMax));
    }
    // Rows of a checkpoint are gathered whole, and those of gate and up may alternate.
    needed = std::max(needed, (groups ? row * kGroupRows : of_checkpoint ? row : 0) * (of_checkpoint ? 2 : 1));
    if (!inputs.transcode.empty() && shape.ne[1] > 1) needed = std::max(needed, shape.ne[0] * sizeof(float) * kGroupRows);
  };
  for (const ShardLayout& shard : inputs.shards) {
    for (const TensorInfo& tensor : shard.tensors) look_at(tensor, false);
    for (const MovedRows& moved : shard.moved) {
      if (!moved.rows.transposed) continue;
      const Shape& shape = inputs.tensors[moved.tensor].shape;
      needed = std::max(needed, row_bytes(inputs.tensors[moved.tensor].dtype, shape.ne[0]) * shape.ne[1]);
    }
  }
  for (const TensorInfo& tensor : inputs.tensors) look_at(tensor, true);
  for (const TensorInfo& tensor : inputs.derived) needed = std::max(needed, tensor.shape.ne[0] * tensor.shape.ne[1] * sizeof(float));
  return needed;
}

const char* target_file_name(Target target) {
  switch (target) {
    case Target::kDense: return segment_file_name(Segment::kDense);
    case Target::kExperts: return segment_file_name(Segment::kExperts);
    case Target::kRows: return segment_file_name(Segment::kRows);
    case Target::kSource: return kPackSourceName;
  }
  TIERPACK_CHECK(false);
  return "";
}

uint64_t RepackPlan::source_bytes() const {
  uint64_t sum = 0;
  for (const SourceShard& shard : manifest.sources) sum += shard.bytes;
  return sum;
}

uint64_t RepackPlan::target_bytes(Target target) const {
  for (const PackFile& file : manifest.files) {
    if (file.name == target_file_name(target)) return file.bytes;
  }
  return 0;
}

uint64_t RepackPlan::pack_bytes() const {
  uint64_t sum = 0;
  for (const PackFile& file : manifest.files) sum += file.bytes;
  return sum;
}

std::vector<std::pair<uint32_t, uint32_t>> expert_order(const std::vector<ExpertLayer>& layers,
                                                        const std::optional<Profile>& profile) {
  std::vector<std::pair<uint32_t, uint32_t>> order;
  for (uint32_t layer = 0; layer < layers.size(); ++layer) {
    for (uint32_t expert = 0; expert < layers[layer].experts; ++expert) order.emplace_back(layer, expert);
  }
  if (!profile) return order;
  const auto count = [&](const std::pair<uint32_t, uint32_t>& item) -> uint64_t {
    const uint32_t block = layers[item.first].layer;
    return block < profile->layers && item.second < profile->experts ? profile->count(block, item.second) : 0;
  };
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) { return count(a) > count(b); });
  return order;
}

RepackPlan plan_repack(const PlanInputs& inputs) {
  TIERPACK_CHECK(!inputs.shards.empty());
  TIERPACK_CHECK(inputs.extent_bytes_max >= extent_bytes_needed(inputs));
  for (const ShardLayout& shard : inputs.shards) {
    if (is_safe_relative_path(shard.name) && shard.name.find('/') == std::string::npos) continue;
    fail(ErrorKind::kUnsupported, "{}: a pack cannot hold a file of the name '{}'; rename it, or move it away", inputs.source_name, printable(shard.name));
  }
  RepackPlan plan;
  PackManifest& manifest = plan.manifest;
  const Metadata metadata = without_split_keys(inputs.metadata);
  plan.config = read_model_config(metadata);
  plan.metadata = zstd_compress(encode_gguf_header(metadata, {}, metadata.u64_or("general.alignment", 32)));
  manifest.nonfinite_allowed = inputs.nonfinite_allowed;
  manifest.imatrix_id = inputs.imatrix_id;
  manifest.tool_version = inputs.tool_version;
  manifest.routing_id = inputs.routing_id;
  if (inputs.profile) {
    require_profile_matches(*inputs.profile, inputs.routing_id, plan.config.layers, plan.config.experts,
                            inputs.profile_name);
    manifest.profile_id = inputs.profile->id();
    plan.profile_json = encode_profile(*inputs.profile);
  }
  place(inputs, manifest);
  require_manifest_fits(manifest, plan.config, inputs.source_name);
  place_derived(inputs, plan);
  const auto has_second = [](const auto& item) { return item.second == DType::kNVFP4; };
  plan.first_second_scale = static_cast<uint32_t>(inputs.derived.size()) -
                            static_cast<uint32_t>(std::count_if(inputs.transcode.begin(), inputs.transcode.end(), has_second));
  uint64_t source_bin_bytes = 0;
  if (std::any_of(inputs.shards.begin(), inputs.shards.end(), [](const ShardLayout& shard) { return shard.of_checkpoint; })) {
    source_bin_bytes = GatherPlanner(plan, inputs).plan_shards(0);
  } else {
    ExtentCutter cutter(plan, inputs);
    for (const ShardLayout& shard : inputs.shards) cutter.cut(shard);
    source_bin_bytes = cutter.source_bin_bytes();
  }
  for (const TranscodedTensor& tensor : plan.transcoded) manifest.transcoded.push_back({tensor.name, tensor.from, tensor.to, 0});
  list_files(plan, source_bin_bytes);
  return plan;
}

}  // namespace tierpack::repack

#include "repack/planned_pack.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "formats/expert_stacks.h"
#include "formats/safetensors.h"
#include "repack/repack_plan.h"
#include "repack/repack_source.h"

namespace tierpack::repack {

namespace {

PlannedPack planned(RepackSource& source, bool read_routers) {
  PlannedPack out;
  PlanInputs inputs;
  if (read_routers) inputs.routing_id = routing_id(source, read_model_config(source.metadata).layers);
  inputs.shards = std::move(source.layouts);
  inputs.tensors = source.tensors;
  inputs.derived = source.derived;
  inputs.metadata = std::move(source.metadata);
  inputs.source_name = source.name;
  inputs.tool_version = TIERPACK_VERSION;
  inputs.extent_bytes_max = std::max(extent_bytes_needed(inputs), uint64_t{1} << 30);
  RepackPlan plan = plan_repack(inputs);
  out.pack_bytes = plan.pack_bytes();
  out.manifest = std::move(plan.manifest);
  out.config = std::move(plan.config);
  out.routers_read = read_routers;
  return out;
}

// What lies between tensors, none of it looked at.
std::vector<Gap> gaps_of(const GgufHeader& header, uint64_t bytes) {
  std::vector<std::pair<uint64_t, uint64_t>> tensors;
  for (const TensorInfo& tensor : header.tensors) {
    if (!is_expert_scale(tensor.name)) tensors.emplace_back(tensor.offset, tensor.bytes);
  }
  std::sort(tensors.begin(), tensors.end());
  tensors.emplace_back(bytes, 0);
  std::vector<Gap> gaps;
  uint64_t at = 0;
  for (const auto& [offset, size] : tensors) {
    if (offset > at) gaps.push_back({at, offset - at, false});
    at = offset + size;
  }
  return gaps;
}

// Of several weight files those that the index names.
bool belongs(const NamedSource& file, const std::vector<std::string>& indexed) {
  return indexed.empty() || !file.name.ends_with(".safetensors") || std::binary_search(indexed.begin(), indexed.end(), file.name);
}

}  // namespace

PlannedPack planned_pack(const std::filesystem::path& path, bool read_routers) {
  const std::unique_ptr<RepackSource> source = open_repack_source(path);
  return planned(*source, read_routers);
}

PlannedPack planned_pack_of(const std::string& name, const std::vector<NamedSource>& files) {
  constexpr uint64_t kIndexBytes = uint64_t{256} << 20;
  std::vector<std::string> indexed;
  for (const NamedSource& file : files) {
    if (!file.name.ends_with(".safetensors.index.json")) continue;
    const std::vector<std::byte> text = read_all(*file.bytes, kIndexBytes);
    indexed = safetensors_index_files(as_text(text), file.bytes->name());
  }
  RepackSource source;
  source.name = name;
  for (const NamedSource& file : files) {
    if (!belongs(file, indexed)) continue;
    RepackShard& shard = source.shards.emplace_back();
    shard.name = file.name;
    shard.bytes = file.bytes;
    if (file.name.ends_with(".gguf")) {
      source.gguf.headers.push_back(read_gguf_header(*file.bytes));
      shard.gaps = gaps_of(source.gguf.headers.back(), file.bytes->size());
    }
  }
  if (source.shards.empty()) fail(ErrorKind::kUsage, "{}: holds no model", name);
  read_repack_source(source);
  return planned(source, false);
}

}  // namespace tierpack::repack

#include "repack/repack_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/zstd.h"
#include "formats/row_groups.h"
#include "tests/support/errors.h"
#include "tests/support/moe_gguf.h"

namespace tierpack::repack {
namespace {

using testing_support::MoeGguf;
using testing_support::MoeGgufWriter;
using testing_support::thrown_by;

// Inputs for a model in memory; every gap is taken for zeros but the header.
PlanInputs inputs_for(const MoeGguf& model, uint64_t extent_bytes_max) {
  PlanInputs inputs;
  inputs.extent_bytes_max = extent_bytes_max;
  inputs.source_name = "test";
  const auto files = MoeGgufWriter(model).build();
  for (size_t i = 0; i < files.size(); ++i) {
    const GgufHeader header = read_gguf_header(MemorySource(files[i], "shard"));
    if (i == 0) inputs.metadata = header.metadata;
    ShardLayout shard{fmt::format("shard{}", i), files[i].size(), header.tensors, {{0, header.data_offset, false}}, {}, false};
    std::sort(shard.tensors.begin(), shard.tensors.end(),
              [](const TensorInfo& a, const TensorInfo& b) { return a.offset < b.offset; });
    uint64_t at = header.data_offset;
    for (const TensorInfo& tensor : shard.tensors) {
      if (tensor.offset > at) shard.gaps.push_back({at, tensor.offset - at, true});
      at = tensor.offset + tensor.bytes;
    }
    if (at < shard.bytes) shard.gaps.push_back({at, shard.bytes - at, true});
    inputs.shards.push_back(shard);
  }
  return inputs;
}

TEST(RepackPlan, ExtentsTileEveryShardAndEveryTarget) {
  for (const uint64_t extent_max : {kExtentBytesMin, kExtentBytesMin * 3, uint64_t{64} << 20}) {
    const PlanInputs inputs = inputs_for({.seed = 8, .layers = 2, .experts = 5, .hidden = 512, .ff = 256, .shards = 2,
                                          .merged = true, .table_row = 4064, .table_rows = 3000, .table_type = DType::kF32},
                                         extent_max);
    const RepackPlan plan = plan_repack(inputs);
    std::map<Target, std::vector<std::pair<uint64_t, uint64_t>>> written;
    for (size_t shard = 0; shard < plan.extents.size(); ++shard) {
      uint64_t at = 0;
      for (const Extent& extent : plan.extents[shard]) {
        EXPECT_EQ(extent.source_offset, at);
        EXPECT_GT(extent.source_bytes, 0u);
        EXPECT_LE(extent.source_bytes, extent_max);
        EXPECT_LE(extent.target_bytes, extent_max);
        at += extent.source_bytes;
        if (extent.kind != Extent::Kind::kZeros) written[extent.target].emplace_back(extent.target_offset, extent.target_bytes);
      }
      EXPECT_EQ(at, inputs.shards[shard].bytes);
    }
    // No byte of a target twice; what is not written is padding of records.
    for (auto& [target, ranges] : written) {
      std::sort(ranges.begin(), ranges.end());
      uint64_t end = 0;
      uint64_t bytes = 0;
      for (const auto& [offset, size] : ranges) {
        EXPECT_GE(offset, end);
        end = offset + size;
        bytes += size;
      }
      EXPECT_LE(end, plan.target_bytes(target));
      if (target == Target::kRows || target == Target::kSource) {
        EXPECT_EQ(bytes, plan.target_bytes(target));
      }
    }
    EXPECT_EQ(plan.source_bytes(), inputs.shards[0].bytes + inputs.shards[1].bytes);
  }
}

TEST(RepackPlan, CuttingDoesNotShowInTheManifest) {
  const MoeGguf model{.seed = 8, .layers = 2, .experts = 5, .hidden = 512, .ff = 256};
  const RepackPlan a = plan_repack(inputs_for(model, kExtentBytesMin));
  const RepackPlan b = plan_repack(inputs_for(model, uint64_t{64} << 20));
  EXPECT_EQ(encode_pack_json(a.manifest, a.config), encode_pack_json(b.manifest, b.config));
}

TEST(RepackPlan, GroupsAreNeverCut) {
  const PlanInputs inputs = inputs_for({.seed = 8, .layers = 3, .experts = 3, .hidden = 4096, .ff = 256, .key_rows = 77}, kExtentBytesMin);
  EXPECT_EQ(extent_bytes_needed(inputs), kExtentBytesMin);
  const RepackPlan plan = plan_repack(inputs);
  size_t groups = 0;
  for (const Extent& extent : plan.extents.at(0)) {
    if (extent.kind != Extent::Kind::kGroups) continue;
    const uint64_t group_bytes = row_bytes(extent.dtype, extent.columns) * kGroupRows;
    EXPECT_EQ(extent.source_bytes % group_bytes, 0u);
    EXPECT_EQ(extent.source_bytes, extent.target_bytes);
    ++groups;
  }
  EXPECT_GT(groups, 30u);
}

TEST(RepackPlan, SplitKeysStayWithTheShards) {
  const RepackPlan plan = plan_repack(inputs_for({.seed = 8, .alignment = 128, .shards = 3}, kExtentBytesMin));
  const std::vector<std::byte> metadata = zstd_decompress(plan.metadata, uint64_t{1} << 20, "metadata");
  const GgufHeader header = read_gguf_header(MemorySource(metadata, "metadata"));
  EXPECT_TRUE(header.tensors.empty());
  EXPECT_TRUE(header.metadata.has("qwen3moe.expert_count"));
  for (const auto& [key, value] : header.metadata.entries()) EXPECT_FALSE(key.starts_with("split.")) << key;
}

TEST(RepackPlan, TensorsThatContradictTheMetadataAreRefused) {
  PlanInputs inputs = inputs_for({.seed = 8}, kExtentBytesMin);
  const PlanInputs other = inputs_for({.seed = 8, .experts = 7}, kExtentBytesMin);
  inputs.metadata = other.metadata;
  EXPECT_EQ(thrown_by([&] { plan_repack(inputs); }).kind, ErrorKind::kCorrupt);
}

TEST(ExpertOrder, HottestFirstTiesInNaturalOrder) {
  std::vector<ExpertLayer> layers(3);
  for (uint32_t i = 0; i < 3; ++i) {
    layers[i].layer = i;
    layers[i].experts = 2;
  }
  using Order = std::vector<std::pair<uint32_t, uint32_t>>;
  EXPECT_EQ(expert_order(layers, std::nullopt), (Order{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}}));
  Profile profile;
  profile.layers = 2;  // the third is a drafting block
  profile.experts = 2;
  profile.counts = {5, 9, 9, 0};
  EXPECT_EQ(expert_order(layers, profile), (Order{{0, 1}, {1, 0}, {0, 0}, {1, 1}, {2, 0}, {2, 1}}));
}

}  // namespace
}  // namespace tierpack::repack

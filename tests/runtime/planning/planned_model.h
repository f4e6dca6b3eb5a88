// A model as headers would give it, for tests of planning: a qwen3moe of a few layers whose records have the sizes that a test
// wants, and nothing behind them.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "formats/pack.h"
#include "formats/profile.h"

namespace tierpack::planning {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;

struct PlannedModel {
  PackManifest manifest;
  ModelConfig config;

  // One block with `experts` experts for each size; block b's experts lie in experts.bin behind those of block b - 1.
  explicit PlannedModel(const std::vector<uint64_t>& record_bytes, uint32_t experts = 16, uint32_t used = 2, uint64_t dense_bytes = 8 * kMiB) {
    config.architecture = Architecture::kQwen3Moe;
    config.architecture_text = "qwen3moe";
    config.name = "planned";
    config.vocab = 1000;
    config.hidden = 64;
    config.layers = static_cast<uint32_t>(record_bytes.size());
    config.context = 131072;
    config.heads = 4;
    config.kv_heads = 2;
    config.head_dim = 32;
    config.rotary_dim = 32;
    config.experts = experts;
    config.experts_used = used;
    config.expert_ff = 64;
    manifest.records.push_back({0, dense_bytes, Segment::kDense, {}});
    manifest.dense.push_back({"token_embd.weight", DType::kF32, {{64, dense_bytes / 256, 1, 1}, 2}, 0});
    uint64_t offset = 0;
    for (uint32_t b = 0; b < config.layers; ++b) {
      ExpertLayer layer;
      layer.layer = b;
      layer.experts = experts;
      layer.first_record = static_cast<uint32_t>(manifest.records.size());
      layer.record_bytes = record_bytes[b];
      const std::string prefix = "blk." + std::to_string(b) + ".ffn_";
      layer.gate.tensor = prefix + "gate_exps.weight";
      layer.up.tensor = prefix + "up_exps.weight";
      layer.down.tensor = prefix + "down_exps.weight";
      for (uint32_t e = 0; e < experts; ++e) {
        manifest.records.push_back({offset, record_bytes[b], Segment::kExperts, {}});
        offset += (record_bytes[b] + 4095) / 4096 * 4096;
      }
      manifest.expert_layers.push_back(layer);
    }
  }

  // Uses that halve from one expert to the next in every layer, and sum to `config.experts_used`; layer b's times weight[b].
  std::vector<float> skewed_uses(const std::vector<double>& weight = {}) const {
    std::vector<float> uses;
    for (uint32_t b = 0; b < config.layers; ++b) {
      double share = config.experts_used / 2.0;
      for (uint32_t e = 0; e < config.experts; ++e, share /= 2) uses.push_back(static_cast<float>(share * (weight.empty() ? 1 : weight[b])));
    }
    return uses;
  }
};

}  // namespace tierpack::planning

// The dense weights of a model in device memory, and the few that the host goes on reading: the embedding, which is looked up row by
// row, and factors of experts that the CPU may compute.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/model/weights.h"

namespace tierpack::model {

class DeviceWeights {
 public:
  // Copies everything the trunk reads; `host` is freed. Draft blocks stay behind. Throws kCapacity.
  DeviceWeights(const ModelConfig& config, ModelWeights host, device::Stream& stream);

  // Pointers are device addresses, except those of `embedding` (unusable here).
  const ModelWeights& device() const { return device_; }
  // The embedding in host memory.
  const MatrixView& embedding() const { return embedding_; }
  // Factors of a trunk block's experts in host memory; null without.
  struct ExpertScales {
    const float* gate = nullptr;
    const float* up = nullptr;
    const float* down = nullptr;
  };
  const ExpertScales& expert_scales(uint32_t block) const { return scales_[block]; }
  uint64_t bytes() const { return memory_.size(); }

 private:
  class Placer;
  device::DeviceBuffer memory_;
  ModelWeights device_;
  MatrixView embedding_;
  std::vector<std::byte> embedding_bytes_;
  std::vector<float> embedding_scales_;
  std::vector<ExpertScales> scales_;
  std::vector<std::unique_ptr<float[]>> host_scales_;
};

}  // namespace tierpack::model

// What the forward passes on the CPU share: weights and scratch memory in RAM, embedding, logits. Each architecture is one file
// that reads like its paper (qwen4exp.cpp, qwen3moe.cpp) over the operations beside it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/model/model.h"

namespace tierpack::model {

class HostModel : public Model {
 public:
  std::unique_ptr<SessionState> new_state(kernels::KvType kv_type) const override;
  void forward(const Chunk& chunk, SessionState& state) override;
  std::span<const float> logits(uint32_t first, uint32_t count) override;
  uint32_t logit_rows() const override { return workspace_.logit_rows; }

  const ModelConfig& config() const { return parts_.pack.config(); }

 protected:
  explicit HostModel(ModelParts parts);

  // The chunk's tokens are known: what depends on nothing else may begin.
  virtual void prepare(const Pass& pass) { (void)pass; }
  virtual void run_blocks(const Pass& pass, SessionState& state) = 0;
  // The vectors that enter the output product: streams -> ws.x, rows [first, first + count).
  virtual void run_head(const Pass& pass, uint32_t first, uint32_t count) = 0;

  const ModelParts& parts() const { return parts_; }
  const ModelWeights& weights() const { return parts_.weights; }

 private:
  Pass pass_over(const Chunk& chunk) { return {compute_, config(), chunk, workspace_, inv_freq_.data()}; }

  ModelParts parts_;
  Compute compute_;
  std::vector<float> inv_freq_;
  CarvedMemory memory_;
  Workspace workspace_;
  Chunk last_;
};

}  // namespace tierpack::model

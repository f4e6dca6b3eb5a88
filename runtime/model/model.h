// A model: weights, graph and scratch memory of one architecture. Each architecture is one file that reads like its paper
// (qwen4exp.cpp, qwen3moe.cpp) over the operations beside it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "formats/pack.h"
#include "runtime/experts/expert_store.h"
#include "runtime/experts/record_reader.h"
#include "runtime/model/compute.h"
#include "runtime/model/pass.h"
#include "runtime/model/state.h"
#include "runtime/model/weights.h"
#include "runtime/model/workspace.h"

namespace tierpack::model {

struct ModelParts {
  const Pack& pack;
  ModelWeights weights;
  ExpertStore& experts;
  const kernels::KernelTable& kernels;
  ThreadTeam& team;
  uint32_t chunk = 0;     // most tokens of one pass
  uint32_t capacity = 0;  // most tokens of one session
  ActivationType activations = ActivationType::kInt8;
  experts::ReaderOptions reader;  // of the lookup tables' rows
};

class Model {
 public:
  virtual ~Model() = default;

  // Computes the chunk: moves `state` to its end and leaves the streams of its tokens for logits(). If it throws, the state
  // is of no further use until cleared.
  void forward(const Chunk& chunk, SessionState& state);

  // Logits of tokens [first, first + count) of the last forward, count <= logit_rows(): (count, vocab), valid until the
  // next call of either.
  std::span<const float> logits(uint32_t first, uint32_t count);
  uint32_t logit_rows() const { return workspace_.logit_rows; }

  const ModelConfig& config() const { return parts_.pack.config(); }

 protected:
  explicit Model(ModelParts parts);

  // The chunk's tokens are known: what depends on nothing else may begin.
  virtual void prepare(const Pass& pass) { (void)pass; }
  virtual void run_blocks(const Pass& pass, SessionState& state) = 0;
  // The vectors that enter the output product: streams -> ws.x, rows [first, first + count).
  virtual void run_head(const Pass& pass, uint32_t first, uint32_t count) = 0;

  const ModelParts& parts() const { return parts_; }
  const ModelWeights& weights() const { return parts_.weights; }
  // The trunk block after `block`, or null after the last.
  const BlockWeights* following(const BlockWeights& block) const {
    const BlockWeights* const next = &block + 1;
    return next == parts_.weights.blocks.data() + parts_.weights.blocks.size() ? nullptr : next;
  }

 private:
  Pass pass_over(const Chunk& chunk) { return {compute_, config(), chunk, workspace_, inv_freq_.data()}; }

  ModelParts parts_;
  Compute compute_;
  std::vector<float> inv_freq_;
  CarvedMemory memory_;
  Workspace workspace_;
  Chunk last_;
};

// The model of the pack's architecture. Throws kUnsupported for sizes beyond what the graph is built for.
std::unique_ptr<Model> make_model(ModelParts parts);

// Bytes of scratch memory that a model takes for these sizes.
uint64_t workspace_bytes(const ModelConfig& config, uint32_t chunk, uint32_t capacity);

std::unique_ptr<Model> make_qwen3moe(ModelParts parts);
std::unique_ptr<Model> make_qwen4exp(ModelParts parts);

}  // namespace tierpack::model

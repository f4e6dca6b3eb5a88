// A model: weights, graph and scratch memory of one architecture, on the CPU (host_model.h) or on a GPU (gpu/device_model.h).
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

// One forward pass at a time.
class Model {
 public:
  virtual ~Model() = default;

  // An empty session's state, where this model computes. Throws kCapacity.
  virtual std::unique_ptr<SessionState> new_state(kernels::KvType kv_type) const = 0;

  // Computes the chunk: moves `state` to its end and leaves the streams of its tokens for logits(). If it throws, the state
  // is of no further use until cleared.
  virtual void forward(const Chunk& chunk, SessionState& state) = 0;

  // Logits of tokens [first, first + count) of the last forward, count <= logit_rows(): (count, vocab), valid until the
  // next call of either.
  virtual std::span<const float> logits(uint32_t first, uint32_t count) = 0;
  virtual uint32_t logit_rows() const = 0;

  // Adds what the model counted to what the store did; from any thread.
  virtual void add_counters(ExpertCounters& counters) const { (void)counters; }
};

// The model of the pack's architecture. Throws kUnsupported for sizes beyond what the graph is built for.
std::unique_ptr<Model> make_model(ModelParts parts);

// Bytes of scratch memory that a model takes for these sizes.
uint64_t workspace_bytes(const ModelConfig& config, uint32_t chunk, uint32_t capacity);

// Throws kUnsupported for sizes that no graph is built for.
void require_within_limits(const Pack& pack);

std::unique_ptr<Model> make_qwen3moe(ModelParts parts);
std::unique_ptr<Model> make_qwen4exp(ModelParts parts);

}  // namespace tierpack::model

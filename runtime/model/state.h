// What a session remembers between tokens: key-value caches, indexer keys, delta-net states, convolution histories.
// Sized once for a number of tokens; nothing here grows or is allocated while tokens are computed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "formats/model_config.h"
#include "runtime/kernels/kernels.h"
#include "runtime/model/carver.h"

namespace tierpack::model {

struct AttentionState {
  std::byte* keys = nullptr;     // (KV, capacity) rows of the cache's type, rotated; a head's rows follow each other
  std::byte* values = nullptr;   // (KV, capacity) rows of the cache's type
  uint32_t capacity = 0;
  // Only where the block has an indexer (ratio > 0):
  float* index_tail = nullptr;   // (ratio, index dim): raw keys since the last complete block of `ratio` tokens
  float* block_keys = nullptr;   // (capacity / ratio, index dim): normalised and rotated keys of complete blocks
};

struct GdnState {
  float* conv = nullptr;   // (kernel - 1, channels): the last inputs of the convolution, oldest first
  float* state = nullptr;  // (value heads, head dim of V, head dim of K)
};

struct PleState {
  float* conv = nullptr;  // ((kernel - 1) * ngram, W): the last inputs of the dilated convolution, oldest first
};

// The memory of a state: the host's, or a device's, which the host does not read.
class StateMemory {
 public:
  virtual ~StateMemory() = default;
  virtual std::byte* data() = 0;
  virtual void zero(uint64_t bytes) = 0;  // the first `bytes`
};

class SessionState {
 public:
  // Room for `capacity` tokens. Throws kCapacity when there is no such memory. `config` must outlive the state.
  SessionState(const ModelConfig& config, uint32_t capacity, kernels::KvType kv_type);
  // The same in `memory` of bytes(config, capacity, kv_type).
  SessionState(const ModelConfig& config, uint32_t capacity, kernels::KvType kv_type, std::unique_ptr<StateMemory> memory);

  // Bytes that a state of this size takes.
  static uint64_t bytes(const ModelConfig& config, uint32_t capacity, kernels::KvType kv_type);

  // Back to no tokens.
  void clear();

  uint32_t capacity() const { return capacity_; }
  kernels::KvType kv_type() const { return kv_type_; }
  const AttentionState& attention(uint32_t block) const { return arrays_.attention[block]; }
  const GdnState& gdn(uint32_t block) const { return arrays_.gdn[block]; }
  const PleState& ple() const { return arrays_.ple; }

 private:
  struct Arrays {
    std::vector<AttentionState> attention;  // per trunk block; null pointers in recurrent ones
    std::vector<GdnState> gdn;              // per trunk block; null pointers elsewhere
    PleState ple;
    uint64_t zeroed_bytes = 0;  // from the start: everything that an empty timeline needs as zeros
  };
  static Arrays carve(Carver& carver, const ModelConfig& config, uint32_t capacity, kernels::KvType kv_type);

  uint32_t capacity_;
  kernels::KvType kv_type_;
  std::unique_ptr<StateMemory> memory_;
  Arrays arrays_;
};

}  // namespace tierpack::model

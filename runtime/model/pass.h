// One forward pass over one chunk of tokens, as every operation of the graph sees it.
#pragma once

#include <cstdint>
#include <span>

#include "formats/model_config.h"
#include "runtime/model/compute.h"
#include "runtime/model/workspace.h"

namespace tierpack {
struct ForwardObserver;
}

namespace tierpack::model {

struct Chunk {
  std::span<const uint32_t> timeline;  // every token of the session up to the chunk's last
  uint32_t first = 0;                  // position of the chunk's first token
  uint32_t tokens = 0;                 // T
  ForwardObserver* observer = nullptr;

  uint32_t position(size_t token) const { return first + static_cast<uint32_t>(token); }
};

// Rotated pairs of one head that a model may have.
inline constexpr uint32_t kMaxRotaryPairs = 512;
// Heads of a sparse attention's indexer.
inline constexpr uint32_t kMaxIndexHeads = 64;
// Taps of a convolution that a model may have.
inline constexpr uint32_t kMaxConvTaps = 16;
// Hash heads of the n-gram embedding, and bytes of one row of its table.
inline constexpr uint32_t kMaxNgramHeads = 256;
inline constexpr uint32_t kMaxNgramRowBytes = 65536;

struct Pass {
  const Compute& compute;
  const ModelConfig& config;
  const Chunk& chunk;
  Workspace& ws;
  const float* inv_freq;  // (rotary_dim / 2)
};

}  // namespace tierpack::model

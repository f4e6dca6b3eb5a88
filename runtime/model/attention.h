// Softmax attention over a key-value cache, dense or over what the indexer selects (sparse_attention.h).
#pragma once

#include <cstdint>

#include "runtime/model/pass.h"
#include "runtime/model/state.h"
#include "runtime/model/weights.h"

namespace tierpack::model {

// ws.x -> ws.y for the chunk; appends its keys and values to the cache. `block` is the number given to the observer.
//   q, k, v = projections; q, k = RMSNorm per head, rotated; o_h = softmax(q_h . K / sqrt(hd)) V over the visible tokens;
//   o_h *= sigmoid(gate_h) where the block is gated; y = output o
void attend(const Pass& pass, const AttentionWeights& weights, const AttentionState& state, kernels::KvType kv_type,
            uint32_t block);

// Rotation of every position of the chunk: ws.cos, ws.sin.
void prepare_rotation(const Pass& pass);

}  // namespace tierpack::model

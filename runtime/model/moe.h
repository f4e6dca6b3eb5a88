// Mixture of experts: a router, the routed experts that a store hands out in any order, and a shared expert.
#pragma once

#include <cstdint>

#include "runtime/experts/expert_store.h"
#include "runtime/model/pass.h"
#include "runtime/model/weights.h"

namespace tierpack::model {

// ws.x -> ws.y for the chunk. `block` is the number the store and the observer know the block by.
//   p = softmax(router x);  the K largest, ties to the lower expert;  w = p / sum of the K
//   y = sum over the K, largest first, of w_i * down_i (silu(gate_i x) * up_i x)  [+ sigmoid(g x) * shared(x)]
// Tokens are grouped by expert and the store is asked once for the chunk. Every expert's output is stored apart and summed
// in the order of selection, so the order in which experts arrive cannot change a bit. `next` is the block that comes after
// this one, or null: while decoding, its router is asked about this block's input, and the store told what to expect.
void mixture_of_experts(const Pass& pass, const MoeWeights& weights, ExpertStore& store, uint32_t block,
                        const BlockWeights* next = nullptr);

}  // namespace tierpack::model

// Hyper-connections: the residual is S streams of D values. Before a block a mixer reads the streams into one input and
// decides what share of the block's output every stream will take; they replace layer norms and the plain residual.
#pragma once

#include "runtime/model/pass.h"
#include "runtime/model/weights.h"

namespace tierpack::model {

// Rows [first, first + tokens) of the chunk: ws.streams -> ws.x, and ws.hyper.inject unless the mixer has no inject.
//   n_s = RMSNorm(R_s) * norm_s;  low = silu(down n / S);  gate = sigmoid(up low)
//   x = mean over s of gate_s * n_s;  inject_s = 2 sigmoid((inject n)_s / S)
void mix_streams(const Pass& pass, const HyperMixer& mixer, uint32_t first, uint32_t tokens);

// R_s += inject_s * y for every token of the chunk.
void combine_streams(const Pass& pass);

// Every stream starts as the token's embedding: ws.x -> ws.streams.
void start_streams(const Pass& pass);

}  // namespace tierpack::model

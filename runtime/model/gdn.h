// Gated delta net: a linear attention whose state is one matrix per value head, updated token by token.
#pragma once

#include "runtime/model/pass.h"
#include "runtime/model/state.h"
#include "runtime/model/weights.h"

namespace tierpack::model {

// Of the unit length of q and k; part of the architecture, not norm_eps.
inline constexpr float kUnitEps = 1e-6f;

// ws.x -> ws.y for the chunk; moves the state and the convolution's history to the chunk's end.
//   u = qkv x;  c = silu(conv(u));  q, k, v = c;  q, k to unit length per head, q / sqrt(dim)
//   beta = sigmoid(beta x);  g = a * softplus(alpha x + dt_bias)
//   S = e^g S;  d = beta (v - S k);  S += d k^T;  o = S q                          (value head h reads key head h % heads)
//   y = output (RMSNorm(o) * norm * sigmoid(gate x))
void delta_net(const Pass& pass, const GdnWeights& weights, const GdnState& state);

}  // namespace tierpack::model

#include "runtime/model/gdn.h"

#include <algorithm>
#include <cmath>

namespace tierpack::model {

namespace {

struct Sizes {
  explicit Sizes(const ModelConfig& c)
      : dim(c.gdn.head_dim), k_heads(c.gdn.k_heads), v_heads(c.gdn.v_heads), taps(c.gdn.conv), keys(k_heads * dim),
        values(v_heads * dim), channels(2 * keys + values) {}
  uint32_t dim, k_heads, v_heads, taps, keys, values, channels;
};

void project(const Pass& pass, const GdnWeights& w, const GdnState& state, const Sizes& n) {
  const uint32_t tokens = pass.chunk.tokens;
  GdnScratch& s = pass.ws.gdn;
  const size_t history = size_t{n.taps - 1} * n.channels;
  std::copy_n(state.conv, history, s.input);
  quantize_for(pass.compute, pass.ws.x, tokens, w.qkv, w.gate, w.beta, w.alpha);
  const kernels::ActivationView x = pass.ws.x.view(0, tokens);
  const Product products[] = {{&w.qkv, x, s.input + history, n.channels},
                              {&w.gate, x, s.z, n.values},
                              {&w.beta, x, s.beta, n.v_heads},
                              {&w.alpha, x, s.decay, n.v_heads}};
  run_products(pass.compute, products);
  std::copy_n(s.input + size_t{tokens} * n.channels, history, state.conv);
}

// Convolution, unit lengths and gates of every token.
void prepare(const Pass& pass, const GdnWeights& w, const Sizes& n) {
  const kernels::KernelTable& k = pass.compute.k;
  GdnScratch& s = pass.ws.gdn;
  const auto q_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n.dim)));
  for_ranges(pass.compute, pass.chunk.tokens, n.channels * kElementCost, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      const float* taps[kMaxConvTaps];
      for (uint32_t i = 0; i < n.taps; ++i) taps[i] = s.input + (t + i) * n.channels;
      float* const mixed = s.mixed + t * n.channels;
      k.conv(taps, w.conv, n.taps, n.channels, mixed);
      k.silu(mixed, n.channels, mixed);
      for (uint32_t h = 0; h < n.k_heads; ++h) {
        float* const q = mixed + size_t{h} * n.dim;
        k.l2_norm(q, kUnitEps, q_scale, n.dim, q);
        k.l2_norm(q + n.keys, kUnitEps, 1.0f, n.dim, q + n.keys);
      }
      float* const beta = s.beta + t * n.v_heads;
      float* const decay = s.decay + t * n.v_heads;
      k.sigmoid(beta, n.v_heads, beta);
      k.add(decay, w.dt_bias, n.v_heads, decay);
      k.softplus(decay, n.v_heads, decay);
      k.mul(decay, w.a, n.v_heads, decay);
      k.exp(decay, n.v_heads, decay);
    }
  });
}

// The recurrence: rows of the state are independent, tokens are not.
void recur(const Pass& pass, const GdnState& state, const Sizes& n) {
  GdnScratch& s = pass.ws.gdn;
  const uint32_t tokens = pass.chunk.tokens;
  for_ranges(pass.compute, n.values, uint64_t{tokens} * n.dim * kElementCost / 4, [&](size_t begin, size_t end) {
    while (begin < end) {
      const size_t head = begin / n.dim;
      const size_t stop = std::min<size_t>(end, (head + 1) * n.dim);
      const size_t key = head % n.k_heads * n.dim;
      for (size_t t = 0; t < tokens; ++t) {
        const float* const mixed = s.mixed + t * n.channels;
        pass.compute.k.delta_rule(state.state + begin * n.dim, mixed + key, mixed + n.keys + key,
                                  mixed + 2 * size_t{n.keys} + begin, s.decay[t * n.v_heads + head],
                                  s.beta[t * n.v_heads + head], n.dim, static_cast<uint32_t>(stop - begin),
                                  s.out.row(t) + begin);
      }
      begin = stop;
    }
  });
}

}  // namespace

void delta_net(const Pass& pass, const GdnWeights& w, const GdnState& state) {
  const Sizes n(pass.config);
  const kernels::KernelTable& k = pass.compute.k;
  GdnScratch& s = pass.ws.gdn;
  const uint32_t tokens = pass.chunk.tokens;

  project(pass, w, state, n);
  prepare(pass, w, n);
  recur(pass, state, n);

  for_ranges(pass.compute, size_t{tokens} * n.v_heads, n.dim * kElementCost * 2, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      float* const o = s.out.x + i * n.dim;
      k.rms_norm(o, w.norm, pass.config.norm_eps, n.dim, o);
      k.sigmoid_mul(s.z + i * n.dim, o, n.dim, o);
    }
  });
  quantize_for(pass.compute, s.out, tokens, w.output);
  const Product output[] = {{&w.output, s.out.view(0, tokens), pass.ws.y, pass.config.hidden}};
  run_products(pass.compute, output);
}

}  // namespace tierpack::model

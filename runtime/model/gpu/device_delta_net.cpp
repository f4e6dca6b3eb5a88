// The gated delta net and the n-gram embedding on a GPU: gdn.cpp and ple.cpp in whole chunks.
#include <cmath>

#include "runtime/model/gdn.h"
#include "runtime/model/gpu/device_pass.h"

namespace tierpack::model {

void delta_net(const DevicePass& pass, const GdnWeights& w, const GdnState& state) {
  const ModelConfig::Gdn& g = pass.config.gdn;
  const uint32_t tokens = pass.chunk.tokens;
  const uint32_t values = g.v_heads * g.head_dim;
  const uint32_t channels = 2 * g.k_heads * g.head_dim + values;
  const size_t history = size_t{g.conv - 1} * channels;
  GdnScratch& s = pass.ws.gdn;

  pass.stream.copy_on_device(s.input, state.conv, history * sizeof(float));
  quantize_for(pass, pass.ws.x, 0, tokens, w.qkv, w.gate, w.beta, w.alpha);
  const kernels::ActivationView x = pass.ws.x.view(0, tokens);
  const gpu::DeviceProduct products[] = {product(w.qkv, x, s.input + history, channels), product(w.gate, x, s.z, values),
                                         product(w.beta, x, s.beta, g.v_heads), product(w.alpha, x, s.decay, g.v_heads)};
  multiply(pass, products);
  pass.stream.copy_on_device(state.conv, s.input + size_t{tokens} * channels, history * sizeof(float));

  gpu::conv_silu(pass.stream, s.input, tokens, g.conv, channels, w.conv, s.mixed);
  gpu::unit_heads(pass.stream, s.mixed, tokens, channels, g.k_heads, g.head_dim, kUnitEps,
                  static_cast<float>(1.0 / std::sqrt(static_cast<double>(g.head_dim))));
  gpu::delta_gates(pass.stream, s.beta, s.decay, w.dt_bias, w.a, tokens, g.v_heads);
  gpu::delta_rule(pass.stream, state.state, s.mixed, channels, s.decay, s.beta, tokens, g.k_heads, g.v_heads, g.head_dim, s.out.x);
  gpu::gated_norm(pass.stream, s.out.x, s.z, w.norm, pass.config.norm_eps, g.head_dim, size_t{tokens} * g.v_heads);

  quantize_for(pass, s.out, 0, tokens, w.output);
  const gpu::DeviceProduct output[] = {product(w.output, s.out.view(0, tokens), pass.ws.y, pass.config.hidden)};
  multiply(pass, output);
}

void add_ngram_embedding(const DevicePass& pass, const PleWeights& w, const PleState& state, const float* embedding) {
  const ModelConfig::Ple& c = pass.config.ple;
  const uint32_t tokens = pass.chunk.tokens;
  const uint32_t streams = pass.config.hc.streams;
  const uint32_t dim = pass.config.hidden;
  const uint32_t wide = streams * dim;
  PleScratch& s = pass.ws.ple;

  pass.stream.copy_to_device(s.embedding.x, std::as_bytes(std::span(embedding, size_t{tokens} * s.embedding.n)));
  quantize_for(pass, s.embedding, 0, tokens, w.key, w.value);
  const kernels::ActivationView e = s.embedding.view(0, tokens);
  const gpu::DeviceProduct products[] = {product(w.key, e, s.key, wide), product(w.value, e, s.value, dim)};
  multiply(pass, products);

  const size_t history = size_t{c.conv - 1} * c.ngram;
  pass.stream.copy_on_device(s.conv_input, state.conv, history * wide * sizeof(float));
  gpu::ngram_gate(pass.stream, s.key, pass.ws.streams, s.value, w.norm_key, w.norm_query, w.norm_conv, pass.config.norm_eps, tokens, streams,
                  dim, s.gated, s.conv_input + history * wide);
  pass.stream.copy_on_device(state.conv, s.conv_input + size_t{tokens} * wide, history * wide * sizeof(float));
  gpu::ngram_conv(pass.stream, s.conv_input, w.conv, c.conv, c.ngram, tokens, wide, s.gated, pass.ws.streams);
}

}  // namespace tierpack::model

// Hyper-connections on a GPU: hyper_connection.cpp in whole chunks.
#include "runtime/model/gpu/device_pass.h"

namespace tierpack::model {

void mix_streams(const DevicePass& pass, const HyperMixer& mixer, uint32_t first, uint32_t tokens) {
  const uint32_t dim = pass.config.hidden;
  const uint32_t streams = pass.config.hc.streams;
  const uint32_t wide = streams * dim;
  const float share = 1.0f / static_cast<float>(streams);
  HyperScratch& s = pass.ws.hyper;

  gpu::rms_norm(pass.stream, pass.ws.streams + size_t{first} * wide, dim, mixer.norm, streams, pass.config.norm_eps, dim,
                size_t{tokens} * streams, s.normed.x);
  quantize_for(pass, s.normed, 0, tokens, mixer.down, mixer.inject);

  // low = silu(down n / S); inject.
  const gpu::DeviceProduct reads[] = {product(mixer.down, s.normed.view(0, tokens), s.low.x, s.low.n),
                                      product(mixer.inject, s.normed.view(0, tokens), s.inject, streams)};
  multiply(pass, std::span(reads, mixer.inject.rows > 0 ? 2 : 1));
  gpu::hyper_low(pass.stream, s.low.x, size_t{tokens} * s.low.n, share);
  quantize_for(pass, s.low, 0, tokens, mixer.up);

  // x = mean over the streams of gate_s * n_s.
  const gpu::DeviceProduct up[] = {product(mixer.up, s.low.view(0, tokens), s.gated, wide)};
  multiply(pass, up);
  gpu::hyper_mean(pass.stream, s.gated, s.normed.x, tokens, streams, dim, share, pass.ws.x.row(first));
  if (mixer.inject.rows > 0) gpu::hyper_inject(pass.stream, s.inject, size_t{tokens} * streams, share);
}

void combine_streams(const DevicePass& pass) {
  gpu::combine_streams(pass.stream, pass.ws.y, pass.ws.hyper.inject, pass.chunk.tokens, pass.config.hc.streams, pass.config.hidden,
                       pass.ws.streams);
}

}  // namespace tierpack::model

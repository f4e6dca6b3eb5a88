#include "runtime/model/hyper_connection.h"

#include <algorithm>

namespace tierpack::model {

void mix_streams(const Pass& pass, const HyperMixer& mixer, uint32_t first, uint32_t tokens) {
  const kernels::KernelTable& k = pass.compute.k;
  const uint32_t dim = pass.config.hidden;
  const uint32_t streams = pass.config.hc.streams;
  const uint32_t wide = streams * dim;
  HyperScratch& s = pass.ws.hyper;

  // Every stream normalised on its own. Scratch rows count from 0 for the first of the range.
  for_ranges(pass.compute, size_t{tokens} * streams, dim * kElementCost, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const size_t stream = i % streams;
      k.rms_norm(pass.ws.streams + size_t{first} * wide + i * dim, mixer.norm + stream * dim, pass.config.norm_eps, dim,
                 s.normed.x + i * dim);
    }
  });
  quantize_for(pass.compute, s.normed, tokens, mixer.down, mixer.inject);

  // low = silu(down n / S); inject.
  const Product reads[] = {{&mixer.down, s.normed.view(0, tokens), s.low.x, s.low.n},
                           {&mixer.inject, s.normed.view(0, tokens), s.inject, streams}};
  run_products(pass.compute, std::span(reads, mixer.inject.rows > 0 ? 2 : 1));
  const float share = 1.0f / static_cast<float>(streams);
  for_ranges(pass.compute, tokens, uint64_t{s.low.n} * kElementCost, [&](size_t begin, size_t end) {
    const size_t n = (end - begin) * s.low.n;
    float* const low = s.low.row(begin);
    k.scale(low, share, static_cast<uint32_t>(n), low);
    k.silu(low, static_cast<uint32_t>(n), low);
  });
  quantize_for(pass.compute, s.low, tokens, mixer.up);

  // gate_s * n_s, row block by row block of the product.
  const Product up[] = {{&mixer.up, s.low.view(0, tokens), s.gated, wide}};
  run_products(pass.compute, up, [&](size_t, uint32_t begin, uint32_t end) {
    for (size_t t = 0; t < tokens; ++t) {
      float* const gate = s.gated + t * wide + begin;
      k.sigmoid_mul(gate, s.normed.row(t) + begin, end - begin, gate);
    }
  });

  // x = mean over the streams, in their order.
  for_ranges(pass.compute, tokens, wide * kElementCost / 4, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      float* const x = pass.ws.x.row(first + t);
      const float* const gated = s.gated + t * wide;
      std::copy_n(gated, dim, x);
      for (uint32_t stream = 1; stream < streams; ++stream) k.add(x, gated + size_t{stream} * dim, dim, x);
      k.scale(x, share, dim, x);
      if (mixer.inject.rows == 0) continue;
      float* const inject = s.inject + t * streams;
      k.scale(inject, share, streams, inject);
      k.sigmoid(inject, streams, inject);
      k.scale(inject, 2.0f, streams, inject);
    }
  });
}

void combine_streams(const Pass& pass) {
  const uint32_t dim = pass.config.hidden;
  const uint32_t streams = pass.config.hc.streams;
  for_ranges(pass.compute, size_t{pass.chunk.tokens} * streams, dim * kElementCost / 4, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      pass.compute.k.add_scaled(pass.ws.y + i / streams * dim, pass.ws.hyper.inject[i], dim,
                                pass.ws.streams + i * dim);
    }
  });
}

void start_streams(const Pass& pass) {
  const uint32_t dim = pass.config.hidden;
  const uint32_t streams = pass.config.hc.streams;
  for (size_t i = 0; i < size_t{pass.chunk.tokens} * streams; ++i) {
    std::copy_n(pass.ws.x.row(i / streams), dim, pass.ws.streams + i * dim);
  }
}

}  // namespace tierpack::model

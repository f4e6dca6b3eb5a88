// One forward pass on a GPU over one chunk of tokens, as every operation of the graph sees it: the twin of pass.h. Pointers of the
// workspace, the weights and the state are device addresses; operations queue kernels on the pass's stream.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "runtime/kernels/cuda/operations.h"
#include "runtime/kernels/cuda/products.h"
#include "runtime/model/gpu/device_sizes.h"
#include "runtime/model/pass.h"
#include "runtime/model/state.h"
#include "runtime/model/weights.h"
#include "runtime/model/workspace.h"

namespace tierpack::model {

namespace gpu = kernels::cuda;

struct DevicePass {
  device::Stream& stream;
  const gpu::GridTables& grids;
  const ModelConfig& config;
  const Chunk& chunk;
  Workspace& ws;
  const DeviceScratch& scratch;
};

inline bool reads_quantised(const MatrixView& w) { return w.rows > 0 && traits(w.dtype).quantised; }

// Quantises rows [first, first + tokens) if one of the matrices asks for it.
template <typename... Matrices>
void quantize_for(const DevicePass& pass, const Activations& a, size_t first, uint32_t tokens, const Matrices&... readers) {
  if (!(reads_quantised(readers) || ...)) return;
  const kernels::ActivationView v = a.view(first, tokens);
  gpu::quantize(pass.stream, v.x, size_t{tokens} * a.n, const_cast<int8_t*>(v.q), const_cast<float*>(v.scale), const_cast<int32_t*>(v.sum));
}

// y[t * y_stride + r] = W row r . x_t.
inline gpu::DeviceProduct product(const MatrixView& w, const kernels::ActivationView& x, float* y, size_t y_stride) {
  gpu::DeviceProduct p;
  p.w = w;
  p.x = x;
  p.y = y;
  p.y_stride = y_stride;
  return p;
}
inline void multiply(const DevicePass& pass, std::span<const gpu::DeviceProduct> products) { gpu::multiply(pass.stream, pass.grids, products); }

// The graph's steps; each is defined by the function of its name on the CPU (hyper_connection.h, attention.h, gdn.h, ple.h).
void mix_streams(const DevicePass& pass, const HyperMixer& mixer, uint32_t first, uint32_t tokens);
void combine_streams(const DevicePass& pass);
void prepare_rotation(const DevicePass& pass);
void attend(const DevicePass& pass, const AttentionWeights& weights, const AttentionState& state, kernels::KvType kv_type, uint32_t block);
void delta_net(const DevicePass& pass, const GdnWeights& weights, const GdnState& state);
// `embedding`: (T, e) in page-locked host memory, which must stay until the stream is synchronised.
void add_ngram_embedding(const DevicePass& pass, const PleWeights& weights, const PleState& state, const float* embedding);

}  // namespace tierpack::model

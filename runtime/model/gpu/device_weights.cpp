#include "runtime/model/gpu/device_weights.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace tierpack::model {

namespace {

constexpr uint64_t kAlignment = 256;

uint64_t matrix_bytes(const MatrixView& w) { return w.rows * row_bytes(w.dtype, w.cols); }
uint64_t scale_count(const MatrixView& w) {
  return w.scales == nullptr ? 0 : ceil_div(uint64_t{w.rows}, uint64_t{w.scale_rows}) * ceil_div(uint64_t{w.cols}, uint64_t{w.scale_cols});
}

}  // namespace

// Gives every distinct array of the host a place; then fills the places and turns pointers to arrays into their addresses.
class DeviceWeights::Placer {
 public:
  struct Array {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  void count(const void* array, uint64_t bytes) {
    if (array == nullptr || bytes == 0) return;
    const auto [at, fresh] = arrays_.try_emplace(array, Array{end_, bytes});
    if (!fresh) {
      TIERPACK_CHECK(at->second.bytes == bytes);
      return;
    }
    order_.push_back(array);
    end_ += align_up(bytes, kAlignment);
  }
  uint64_t bytes() const { return end_; }

  void copy(device::Stream& stream, device::DeviceBuffer& to) {
    base_ = to.address();
    for (const void* const array : order_) {
      const Array& a = arrays_.at(array);
      stream.copy_to_device(to, a.offset, Bytes(static_cast<const std::byte*>(array), a.bytes));
    }
    stream.synchronize();
  }
  const void* place(const void* array) const { return array == nullptr ? nullptr : base_ + arrays_.at(array).offset; }

 private:
  std::unordered_map<const void*, Array> arrays_;
  std::vector<const void*> order_;
  uint64_t end_ = 0;
  std::byte* base_ = nullptr;
};

namespace {

// Calls matrix(MatrixView&) and floats(const float*&, count) for everything that the trunk reads but the embedding.
template <typename Matrix, typename Floats>
void for_each_array(ModelWeights& w, const ModelConfig& c, Matrix&& matrix, Floats&& floats) {
  const uint64_t wide = uint64_t{c.hc.streams} * c.hidden;
  const auto mixer = [&](HyperMixer& m) {
    if (m.norm == nullptr) return;
    floats(m.norm, wide);
    matrix(m.down), matrix(m.up), matrix(m.inject);
  };
  matrix(w.output);
  if (w.output_norm != nullptr) floats(w.output_norm, c.hidden);
  mixer(w.output_mixer);
  if (w.ple.table != nullptr) {
    matrix(w.ple.key), matrix(w.ple.value);
    floats(w.ple.norm_key, wide), floats(w.ple.norm_query, wide), floats(w.ple.norm_conv, wide);
    floats(w.ple.conv, wide * c.ple.conv);
  }
  for (BlockWeights& b : w.blocks) {
    if (b.attention_norm != nullptr) floats(b.attention_norm, c.hidden);
    if (b.ffn_norm != nullptr) floats(b.ffn_norm, c.hidden);
    mixer(b.attention_mixer);
    mixer(b.ffn_mixer);
    if (b.recurrent) {
      GdnWeights& g = b.gdn;
      const uint64_t channels = (2 * uint64_t{c.gdn.k_heads} + c.gdn.v_heads) * c.gdn.head_dim;
      matrix(g.qkv), matrix(g.gate), matrix(g.beta), matrix(g.alpha), matrix(g.output);
      floats(g.conv, channels * c.gdn.conv);
      floats(g.dt_bias, c.gdn.v_heads), floats(g.a, c.gdn.v_heads), floats(g.norm, c.gdn.head_dim);
    } else {
      AttentionWeights& a = b.attention;
      matrix(a.q), matrix(a.k), matrix(a.v), matrix(a.output);
      floats(a.q_norm, c.head_dim), floats(a.k_norm, c.head_dim);
      if (a.compress_ratio > 0) {
        matrix(a.indexer.q), matrix(a.indexer.k);
        floats(a.indexer.q_norm, c.indexer.head_dim), floats(a.indexer.k_norm, c.indexer.head_dim);
      } else {
        a.indexer = {};
      }
    }
    MoeWeights& m = b.moe;
    matrix(m.router);
    for (const float** const scales : {&m.gate_scales, &m.up_scales, &m.down_scales}) {
      if (*scales != nullptr) floats(*scales, c.experts);
    }
    if (m.has_shared) matrix(m.shared_gate_input), matrix(m.shared_gate), matrix(m.shared_up), matrix(m.shared_down);
  }
}

}  // namespace

DeviceWeights::DeviceWeights(const ModelConfig& config, ModelWeights host, device::Stream& stream) {
  host.mtp.clear();
  Placer placer;
  for_each_array(
      host, config,
      [&](MatrixView& w) {
        if (w.rows == 0) return;
        placer.count(w.data, matrix_bytes(w));
        placer.count(w.scales, scale_count(w) * sizeof(float));
      },
      [&](const float*& array, uint64_t count) { placer.count(array, count * sizeof(float)); });
  memory_ = device::DeviceBuffer(placer.bytes());
  placer.copy(stream, memory_);

  embedding_ = host.embedding;
  embedding_bytes_.assign(embedding_.data, embedding_.data + matrix_bytes(embedding_));
  embedding_.data = embedding_bytes_.data();
  if (embedding_.scales != nullptr) {
    embedding_scales_.assign(embedding_.scales, embedding_.scales + scale_count(embedding_));
    embedding_.scales = embedding_scales_.data();
  }
  const auto keep = [&](const float* scales) -> const float* {
    if (scales == nullptr) return nullptr;
    std::unique_ptr<float[]>& copy = host_scales_.emplace_back(std::make_unique<float[]>(config.experts));
    std::copy_n(scales, config.experts, copy.get());
    return copy.get();
  };
  for (const BlockWeights& b : host.blocks) {
    scales_.push_back({keep(b.moe.gate_scales), keep(b.moe.up_scales), keep(b.moe.down_scales)});
  }

  for_each_array(
      host, config,
      [&](MatrixView& w) {
        if (w.rows == 0) return;
        w.data = static_cast<const std::byte*>(placer.place(w.data));
        w.scales = static_cast<const float*>(placer.place(w.scales));
      },
      [&](const float*& array, uint64_t) { array = static_cast<const float*>(placer.place(array)); });
  host.embedding = {};
  host.dense = {};
  host.decoded.clear();
  device_ = std::move(host);
}

}  // namespace tierpack::model

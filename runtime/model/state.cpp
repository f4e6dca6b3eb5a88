#include "runtime/model/state.h"

#include <cstring>
#include <utility>

namespace tierpack::model {

namespace {

class HostStateMemory final : public StateMemory {
 public:
  explicit HostStateMemory(uint64_t bytes) : memory_(bytes) {}
  std::byte* data() override { return memory_.data(); }
  void zero(uint64_t bytes) override { std::memset(memory_.data(), 0, bytes); }

 private:
  CarvedMemory memory_;
};

}  // namespace

SessionState::SessionState(const ModelConfig& config, uint32_t capacity, kernels::KvType kv_type)
    : SessionState(config, capacity, kv_type, std::make_unique<HostStateMemory>(bytes(config, capacity, kv_type))) {}

SessionState::SessionState(const ModelConfig& config, uint32_t capacity, kernels::KvType kv_type, std::unique_ptr<StateMemory> memory)
    : capacity_(capacity), kv_type_(kv_type), memory_(std::move(memory)) {
  Carver carver(memory_->data());
  arrays_ = carve(carver, config, capacity, kv_type);
  clear();
}

uint64_t SessionState::bytes(const ModelConfig& config, uint32_t capacity, kernels::KvType kv_type) {
  Carver counter;
  carve(counter, config, capacity, kv_type);
  return counter.bytes();
}

SessionState::Arrays SessionState::carve(Carver& carver, const ModelConfig& c, uint32_t capacity,
                                         kernels::KvType kv_type) {
  Arrays arrays;
  arrays.attention.resize(c.layers);
  arrays.gdn.resize(c.layers);
  const auto recurrent = [&](uint32_t i) { return !c.recurrent.empty() && c.recurrent[i]; };

  for (uint32_t i = 0; i < c.layers; ++i) {
    if (!recurrent(i)) continue;
    const uint64_t dim = c.gdn.head_dim;
    const uint64_t channels = (2 * uint64_t{c.gdn.k_heads} + c.gdn.v_heads) * dim;
    arrays.gdn[i].conv = carver.take<float>((c.gdn.conv - 1) * channels);
    arrays.gdn[i].state = carver.take<float>(c.gdn.v_heads * dim * dim);
  }
  if (c.ple.layer >= 0) {
    const uint64_t history = uint64_t{c.ple.conv - 1} * c.ple.ngram;
    arrays.ple.conv = carver.take<float>(history * c.hc.streams * c.hidden);
  }
  arrays.zeroed_bytes = carver.bytes();

  for (uint32_t i = 0; i < c.layers; ++i) {
    if (recurrent(i)) continue;
    const uint64_t cache = uint64_t{capacity} * c.kv_heads * kernels::kv_row_bytes(kv_type, c.head_dim);
    arrays.attention[i].keys = carver.take<std::byte>(cache);
    arrays.attention[i].values = carver.take<std::byte>(cache);
    arrays.attention[i].capacity = capacity;
    const uint32_t ratio = c.compress_ratio.empty() ? 0 : c.compress_ratio[i];
    if (ratio == 0) continue;
    arrays.attention[i].index_tail = carver.take<float>(uint64_t{ratio} * c.indexer.head_dim);
    arrays.attention[i].block_keys = carver.take<float>(uint64_t{capacity / ratio} * c.indexer.head_dim);
  }
  return arrays;
}

void SessionState::clear() {
  if (arrays_.zeroed_bytes > 0) memory_->zero(arrays_.zeroed_bytes);
}

}  // namespace tierpack::model

#include "runtime/model/gpu/device_sizes.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "runtime/experts/record_reader.h"

namespace tierpack::model {

namespace {

constexpr uint64_t kTensorAlignment = 256;
// What operations.h states.
constexpr uint32_t kDeviceExpertsMax = 4096;
constexpr uint32_t kDeviceExpertsUsedMax = 32;
constexpr uint32_t kDeviceHiddenMax = 8190;  // rows of the n-gram gate and of long norms in shared memory
constexpr uint32_t kDeviceDeltaDimMax = 256;
constexpr uint64_t kDeviceIndexQueryBytesMax = 32768;
constexpr uint64_t kAttentionChunkTokens = 64;  // kernels::kAttentionChunk

// The number of the block that a tensor belongs to; -1 for tensors outside of blocks.
int64_t block_of(const std::string& name) {
  if (!name.starts_with("blk.")) return -1;
  return std::atoll(name.c_str() + 4);
}

// Positions that a query sees at most.
uint64_t attended_most(const ModelConfig& c, uint32_t capacity) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < c.layers; ++i) {
    if (!c.recurrent.empty() && c.recurrent[i]) continue;
    const uint32_t ratio = c.compress_ratio.empty() ? 0 : c.compress_ratio[i];
    most = std::max<uint64_t>(most, ratio == 0 ? capacity : std::min<uint64_t>(capacity, uint64_t{c.indexer.budget} + ratio));
  }
  return most;
}

uint32_t smallest_ratio(const ModelConfig& c) {
  uint32_t smallest = 0;
  for (const uint32_t ratio : c.compress_ratio) {
    if (ratio > 0) smallest = smallest == 0 ? ratio : std::min(smallest, ratio);
  }
  return smallest;
}

}  // namespace

DeviceScratch DeviceScratch::carve(Carver& carver, const ModelConfig& c, uint32_t tokens, uint32_t capacity) {
  DeviceScratch s;
  const uint64_t pairs = c.rotary_dim / 2;
  s.inv_freq = carver.take<float>(pairs);
  if (const uint32_t ratio = smallest_ratio(c); ratio > 0) {
    s.block_cos = carver.take<float>((tokens / ratio + uint64_t{1}) * pairs);
    s.block_sin = carver.take<float>((tokens / ratio + uint64_t{1}) * pairs);
  }
  s.attention_bytes = c.heads * ceil_div(attended_most(c, capacity), kAttentionChunkTokens) * (align_up(uint64_t{c.head_dim}, 4) + 4) * sizeof(float);
  s.attention = carver.take<float>(s.attention_bytes / sizeof(float));
  s.next_router = carver.take<float>(c.experts);
  s.guess = carver.take<uint32_t>(c.experts_used);
  s.guess_weights = carver.take<float>(c.experts_used);
  s.ids = carver.take<uint32_t>(uint64_t{c.layers} * c.experts_used);
  s.weights = carver.take<float>(uint64_t{c.layers} * c.experts_used);
  s.addresses = carver.take<uint64_t>(uint64_t{c.layers} * c.experts);
  return s;
}

std::string device_model_limit(const ModelConfig& c) {
  const auto over = [](const char* what, uint64_t found, uint64_t most) { return fmt::format("{} is {}; kernels of a GPU take at most {}", what, found, most); };
  if (c.experts > kDeviceExpertsMax) return over("the number of experts of a block", c.experts, kDeviceExpertsMax);
  if (c.experts_used > kDeviceExpertsUsedMax) return over("the number of experts of a token", c.experts_used, kDeviceExpertsUsedMax);
  if (c.hidden > kDeviceHiddenMax) return over("the hidden size", c.hidden, kDeviceHiddenMax);
  if (c.architecture != Architecture::kQwen4Exp) return {};
  if (c.gdn.head_dim > kDeviceDeltaDimMax) return over("the head size of the delta net", c.gdn.head_dim, kDeviceDeltaDimMax);
  const uint64_t query_bytes = align_up(uint64_t{c.indexer.heads}, 4) * c.indexer.head_dim * sizeof(float);
  if (query_bytes > kDeviceIndexQueryBytesMax) return over("a query of the indexer in bytes", query_bytes, kDeviceIndexQueryBytesMax);
  if (c.gdn.head_dim % 4 != 0) return fmt::format("the head size of the delta net is {}; kernels of a GPU take multiples of 4", c.gdn.head_dim);
  return {};
}

uint64_t device_weight_bytes(const PackManifest& manifest, const ModelConfig& config) {
  const auto has = [&](const std::string& name) {
    return std::any_of(manifest.dense.begin(), manifest.dense.end(), [&](const DenseTensor& t) { return t.name == name; });
  };
  const bool untied = has("output.weight");
  uint64_t sum = 0;
  for (const DenseTensor& tensor : manifest.dense) {
    if (block_of(tensor.name) >= static_cast<int64_t>(config.layers)) continue;
    if (untied && tensor.name == "token_embd.weight") continue;
    // Vectors of small types are held as f32.
    const bool vector = tensor.shape.ne[1] == 1 || tensor.name.find("conv1d") != std::string::npos || tensor.name.find("norm") != std::string::npos;
    const uint64_t bytes = vector ? tensor.shape.elements() * sizeof(float) : manifest.records[tensor.record].bytes;
    sum += align_up(bytes, kTensorAlignment);
  }
  return sum;
}

uint64_t device_work_bytes(const ModelConfig& config, uint32_t tokens, uint32_t capacity) {
  Carver counter;
  Workspace::carve(counter, config, tokens, capacity, WorkspacePlace::kDevice);
  DeviceScratch::carve(counter, config, tokens, capacity);
  return counter.bytes();
}

uint64_t device_staging_bytes(const PackManifest& manifest) {
  uint64_t largest = 0;
  for (const ExpertLayer& layer : manifest.expert_layers) largest = std::max(largest, layer.record_bytes);
  return align_up(largest, kTensorAlignment) * kStagedRecords;
}

DeviceHostBuffers DeviceHostBuffers::carve(Carver& carver, const ModelConfig& c, uint32_t tokens) {
  DeviceHostBuffers b;
  const uint64_t pairs = uint64_t{tokens} * c.experts_used;
  const uint64_t records = std::max<uint64_t>(pairs, uint64_t{c.layers} * c.experts_used);  // one token keeps those of all blocks
  b.embedding = carver.take<float>(uint64_t{tokens} * c.hidden);
  if (c.ple.layer >= 0) b.ngram = carver.take<float>(uint64_t{tokens} * c.ple.heads() * c.ple.head_dim);
  b.ids = carver.take<uint32_t>(records);
  b.weights = carver.take<float>(records);
  b.guess = carver.take<uint32_t>(c.experts_used);
  b.row = carver.take<uint32_t>(pairs);
  b.pair_token = carver.take<uint32_t>(pairs);
  b.out = carver.take<float>(pairs * c.hidden);
  b.logits = carver.take<float>(uint64_t{logit_rows(c, tokens)} * c.vocab);
  b.input = take_activations(carver, tokens, c.hidden);
  b.gathered = take_activations(carver, tokens > 1 ? pairs : 0, c.hidden);
  b.gate = carver.take<float>(pairs * c.expert_ff);
  b.up = carver.take<float>(pairs * c.expert_ff);
  b.hidden = take_activations(carver, pairs, expert_hidden_columns(c));
  b.pairs = carver.take<uint32_t>(pairs);
  b.first_pair = carver.take<uint32_t>(uint64_t{c.experts} + 1);
  b.requested = carver.take<uint32_t>(c.experts);
  b.counts = carver.take<uint32_t>(c.experts);
  return b;
}

uint64_t device_host_bytes(const PackManifest& manifest, const ModelConfig& config, uint32_t tokens) {
  Carver counter;
  DeviceHostBuffers::carve(counter, config, tokens);
  uint64_t embedding = 0;
  for (const DenseTensor& tensor : manifest.dense) {
    if (tensor.name == "token_embd.weight" || tensor.name == "token_embd.scale") embedding += manifest.records[tensor.record].bytes;
  }
  return counter.bytes() + embedding;
}

}  // namespace tierpack::model

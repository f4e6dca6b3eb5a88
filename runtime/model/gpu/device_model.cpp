#include "runtime/model/gpu/device_model.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runtime/engine.h"
#include "runtime/experts/row_store.h"
#include "runtime/model/decoded_weights.h"
#include "runtime/model/gpu/device_experts.h"
#include "runtime/model/gpu/device_pass.h"
#include "runtime/model/ple.h"
#include "runtime/model/sparse_attention.h"

namespace tierpack::model {

namespace {

class DeviceStateMemory final : public StateMemory {
 public:
  DeviceStateMemory(uint64_t bytes, int device) : device_(device), memory_(bytes) {}
  std::byte* data() override { return memory_.address(); }
  void zero(uint64_t bytes) override {
    device::use_device(device_);
    stream_.clear(memory_.address(), bytes);
    stream_.synchronize();
  }

 private:
  int device_;
  device::DeviceBuffer memory_;
  device::Stream stream_;
};

class DeviceModel final : public Model {
 public:
  explicit DeviceModel(DeviceModelParts parts)
      : parts_(std::move(parts)),
        compute_{parts_.kernels, parts_.team},
        memory_(device_work_bytes(config(), parts_.chunk, parts_.capacity)),
        host_memory_(host_bytes()),
        grids_(stream_) {
    Carver carver(memory_.address());
    workspace_ = Workspace::carve(carver, config(), parts_.chunk, parts_.capacity, WorkspacePlace::kDevice);
    scratch_ = DeviceScratch::carve(carver, config(), parts_.chunk, parts_.capacity);
    Carver host_carver(host_memory_.bytes().data());
    host_ = DeviceHostBuffers::carve(host_carver, config(), parts_.chunk);
    experts_.emplace(parts_.pack, parts_.weights, parts_.experts, compute_, host_);
    std::vector<float> inv_freq(config().rotary_dim / 2);
    kernels::rope_inv_freq(config().rope_base, config().rotary_dim, inv_freq.data());
    stream_.copy_to_device(scratch_.inv_freq, std::as_bytes(std::span(inv_freq)));
    stream_.synchronize();
    if (weights().ple.table != nullptr) rows_.emplace(parts_.pack, parts_.reader, experts::kRowCacheBytes);
  }
  ~DeviceModel() override {
    experts_->abandon();  // before the store is
  }

  std::unique_ptr<SessionState> new_state(kernels::KvType kv_type) const override {
    device::use_device(parts_.device);
    return std::make_unique<SessionState>(
        config(), parts_.capacity, kv_type,
        std::make_unique<DeviceStateMemory>(SessionState::bytes(config(), parts_.capacity, kv_type), parts_.device));
  }

  void forward(const Chunk& chunk, SessionState& state) override {
    TIERPACK_CHECK(chunk.tokens >= 1 && chunk.tokens <= workspace_.tokens);
    TIERPACK_CHECK(chunk.timeline.size() == size_t{chunk.first} + chunk.tokens);
    TIERPACK_CHECK(chunk.timeline.size() <= state.capacity() && state.capacity() <= parts_.capacity);
    device::use_device(parts_.device);
    stream_.synchronize();
    last_ = chunk;
    const DevicePass pass = pass_over(last_);
    // The first token alone comes without: kernels are loaded by then.
    const bool graph = parts_.graph && chunk.tokens == 1 && std::exchange(warm_, true) && (chunk.observer == nullptr || !chunk.observer->wants_attention()) &&
                       experts_->all_resident(pass, weights().blocks);
    bool recording = false;
    try {
      if (graph) {
        graph_.record(stream_);
        recording = true;
      }
      run(pass, state);
      recording = false;
      if (graph) graph_.finish(stream_, graph_shape(chunk));
      stream_.synchronize();
    } catch (...) {
      if (recording) graph_.abandon(stream_);
      // Kernels may still read what the lease holds.
      try {
        stream_.synchronize();
      } catch (...) {
      }
      experts_->abandon();
      throw;
    }
    experts_->finish(pass);
  }

  std::span<const float> logits(uint32_t first, uint32_t count) override {
    TIERPACK_CHECK(count <= workspace_.logit_rows && first + count <= last_.tokens);
    device::use_device(parts_.device);
    const DevicePass pass = pass_over(last_);
    const MatrixView& output = weights().output;
    if (hyper_connected()) {
      mix_streams(pass, weights().output_mixer, first, count);
    } else {
      normalise(pass, weights().output_norm, first, count);
    }
    quantize_for(pass, workspace_.x, first, count, output);
    const gpu::DeviceProduct products[] = {product(output, workspace_.x.view(first, count), workspace_.logits, output.rows)};
    multiply(pass, products);
    const std::span<float> logits(host_.logits, size_t{count} * output.rows);
    stream_.copy_to_host(std::as_writable_bytes(logits), workspace_.logits);
    stream_.synchronize();
    return logits;
  }

  uint32_t logit_rows() const override { return workspace_.logit_rows; }
  void add_counters(ExpertCounters& counters) const override { experts_->add_counters(counters); }

 private:
  const ModelConfig& config() const { return parts_.pack.config(); }
  const ModelWeights& weights() const { return parts_.weights.device(); }
  bool hyper_connected() const { return config().hc.streams > 0; }
  DevicePass pass_over(const Chunk& chunk) { return {stream_, grids_, config(), chunk, workspace_, scratch_}; }
  uint64_t host_bytes() const {
    Carver counter;
    DeviceHostBuffers::carve(counter, config(), parts_.chunk);
    return counter.bytes();
  }

  void run(const DevicePass& pass, SessionState& state) {
    const Chunk& chunk = pass.chunk;
    const size_t dim = config().hidden;
    if (rows_) request_ngram_rows(config().ple, chunk, *rows_, weights().ple);
    for (uint32_t t = 0; t < chunk.tokens; ++t) {
      decode_matrix_row(compute_.k, parts_.weights.embedding(), chunk.timeline[chunk.position(t)], host_.embedding + t * dim);
    }
    stream_.copy_to_device(workspace_.x.x, std::as_bytes(std::span(host_.embedding, chunk.tokens * dim)));
    prepare_rotation(pass);
    // Every stream, or the residual, starts as the embedding.
    if (hyper_connected()) {
      gpu::start_streams(stream_, workspace_.x.x, chunk.tokens, config().hc.streams, config().hidden, workspace_.streams);
    } else {
      stream_.copy_on_device(workspace_.streams, workspace_.x.x, chunk.tokens * dim * sizeof(float));
    }
    for (const BlockWeights& block : weights().blocks) {
      if (static_cast<int32_t>(block.index) == config().ple.layer) {
        read_ngram_rows(compute_.k, config().ple, chunk, *rows_, weights().ple, host_.ngram);
        add_ngram_embedding(pass, weights().ple, state.ple(), host_.ngram);
      }
      enter(pass, block.attention_mixer, block.attention_norm);
      if (block.recurrent) {
        delta_net(pass, block.gdn, state.gdn(block.index));
      } else {
        attend(pass, block.attention, state.attention(block.index), state.kv_type(), block.index);
      }
      leave(pass);

      enter(pass, block.ffn_mixer, block.ffn_norm);
      experts_->run(pass, block, weights().following(block));
      leave(pass);
    }
    experts_->end_pass(pass);
  }

  // Which operations a token at this position queues: blocks of the indexer end at some, and past the budget queries are sparse.
  uint64_t graph_shape(const Chunk& chunk) const {
    uint64_t shape = 0;
    for (const uint32_t ratio : config().compress_ratio) {
      if (ratio > 0) shape = (uint64_t{chunk.first % ratio} << 2 | uint64_t{is_sparse(chunk.first, ratio, config().indexer.budget)} << 1 | 1u) + 64 * shape % 8191;
    }
    const bool split = chunk.first + 1 > kernels::kAttentionChunk;  // attention of more than one chunk
    return shape << 1 | split;
  }

  // The input of a part of a block from the residual, and its output back into it.
  void enter(const DevicePass& pass, const HyperMixer& mixer, const float* gamma) {
    if (hyper_connected()) {
      mix_streams(pass, mixer, 0, pass.chunk.tokens);
    } else {
      normalise(pass, gamma, 0, pass.chunk.tokens);
    }
  }
  void leave(const DevicePass& pass) {
    if (hyper_connected()) {
      combine_streams(pass);
    } else {
      gpu::add(stream_, workspace_.streams, workspace_.y, size_t{pass.chunk.tokens} * config().hidden);
    }
  }
  // ws.x = RMSNorm(residual) * gamma, rows [first, first + count).
  void normalise(const DevicePass& pass, const float* gamma, uint32_t first, uint32_t count) {
    const uint32_t dim = config().hidden;
    gpu::rms_norm(stream_, workspace_.streams + size_t{first} * dim, dim, gamma, 1, pass.config.norm_eps, dim, count, workspace_.x.row(first));
  }

  DeviceModelParts parts_;
  Compute compute_;
  device::Stream stream_;
  device::WorkGraph graph_;
  device::DeviceBuffer memory_;
  device::PinnedBuffer host_memory_;
  gpu::GridTables grids_;
  Workspace workspace_;
  DeviceScratch scratch_;
  DeviceHostBuffers host_;
  std::optional<DeviceExperts> experts_;
  std::optional<experts::RowStore> rows_;
  Chunk last_;
  bool warm_ = false;
};

}  // namespace

std::unique_ptr<Model> make_device_model(DeviceModelParts parts) {
  require_runnable(parts.pack.config(), parts.pack.directory().filename().string());
  require_within_limits(parts.pack);
  switch (parts.pack.config().architecture) {
    case Architecture::kQwen3Moe:
    case Architecture::kQwen4Exp: break;
    default:
      fail(ErrorKind::kUnsupported, "{}: no forward pass for architecture {}", parts.pack.directory().filename().string(),
           architecture_name(parts.pack.config().architecture));
  }
  device::use_device(parts.device);
  return std::make_unique<DeviceModel>(std::move(parts));
}

std::string device_model_problem(int device) {
  if (std::string reason = device::unavailable_reason(); !reason.empty()) return reason;
  const int devices = device::device_count();
  if (device < 0 || device >= devices) return fmt::format("--gpu {}: there {} {}, counted from 0", device, devices == 1 ? "is" : "are", devices);
  const int found = device::compute_capability(device);
  if (found >= gpu::least_compute_capability()) return {};
  return fmt::format("GPU {} has compute capability {}.{}, and this program was built for {}.{} and newer", device, found / 10, found % 10,
                     gpu::least_compute_capability() / 10, gpu::least_compute_capability() % 10);
}

}  // namespace tierpack::model

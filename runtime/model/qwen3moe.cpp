// qwen3moe: Qwen3-30B-A3B and its larger siblings. A plain residual, RMSNorm before attention and experts, attention with
// normalised queries and keys.
#include "runtime/model/attention.h"
#include "runtime/model/host_model.h"
#include "runtime/model/moe.h"

namespace tierpack::model {

namespace {

class Qwen3Moe final : public HostModel {
 public:
  explicit Qwen3Moe(ModelParts parts) : HostModel(std::move(parts)) {}

 private:
  void run_blocks(const Pass& pass, SessionState& state) override {
    // The residual starts as the embedding.
    const size_t tokens = pass.chunk.tokens;
    std::copy_n(pass.ws.x.x, tokens * pass.config.hidden, pass.ws.streams);
    for (const BlockWeights& block : weights().blocks) {
      normalise(pass, block.attention_norm, 0, pass.chunk.tokens);
      attend(pass, block.attention, state.attention(block.index), state.kv_type(), block.index);
      add_to_residual(pass);

      normalise(pass, block.ffn_norm, 0, pass.chunk.tokens);
      mixture_of_experts(pass, block.moe, parts().experts, block.index, weights().following(block));
      add_to_residual(pass);
    }
  }

  void run_head(const Pass& pass, uint32_t first, uint32_t count) override {
    normalise(pass, weights().output_norm, first, count);
  }

  // ws.x = RMSNorm(residual) * gamma, rows [first, first + count).
  static void normalise(const Pass& pass, const float* gamma, uint32_t first, uint32_t count) {
    const uint32_t dim = pass.config.hidden;
    for_ranges(pass.compute, count, dim * kElementCost, [&](size_t begin, size_t end) {
      for (size_t t = first + begin; t < first + end; ++t) {
        pass.compute.k.rms_norm(pass.ws.streams + t * dim, gamma, pass.config.norm_eps, dim, pass.ws.x.row(t));
      }
    });
  }

  // residual += ws.y
  static void add_to_residual(const Pass& pass) {
    const uint32_t dim = pass.config.hidden;
    for_ranges(pass.compute, pass.chunk.tokens, dim * kElementCost / 4, [&](size_t begin, size_t end) {
      for (size_t t = begin; t < end; ++t) {
        float* const row = pass.ws.streams + t * dim;
        pass.compute.k.add(row, pass.ws.y + t * dim, dim, row);
      }
    });
  }
};

}  // namespace

std::unique_ptr<Model> make_qwen3moe(ModelParts parts) { return std::make_unique<Qwen3Moe>(std::move(parts)); }

}  // namespace tierpack::model

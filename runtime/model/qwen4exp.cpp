// qwen4exp: Qwen3.8-Flash-Next. Hyper-connected streams, gated delta nets with sparse attention in between, an n-gram
// embedding in one block, and a mixture of experts with a shared expert in every block.
#include <optional>

#include "runtime/experts/row_store.h"
#include "runtime/model/attention.h"
#include "runtime/model/gdn.h"
#include "runtime/model/hyper_connection.h"
#include "runtime/model/host_model.h"
#include "runtime/model/moe.h"
#include "runtime/model/ple.h"

namespace tierpack::model {

namespace {

class Qwen4Exp final : public HostModel {
 public:
  explicit Qwen4Exp(ModelParts given) : HostModel(std::move(given)) {
    if (weights().ple.table != nullptr) rows_.emplace(parts().pack, parts().reader, experts::kRowCacheBytes);
  }

 private:
  void prepare(const Pass& pass) override {
    if (rows_) request_ngram_rows(pass.config.ple, pass.chunk, *rows_, weights().ple);
  }

  void run_blocks(const Pass& pass, SessionState& state) override {
    start_streams(pass);
    for (const BlockWeights& block : weights().blocks) {
      if (static_cast<int32_t>(block.index) == pass.config.ple.layer) {
        add_ngram_embedding(pass, *rows_, weights().ple, state.ple());
      }

      mix_streams(pass, block.attention_mixer, 0, pass.chunk.tokens);
      if (block.recurrent) {
        delta_net(pass, block.gdn, state.gdn(block.index));
      } else {
        attend(pass, block.attention, state.attention(block.index), state.kv_type(), block.index);
      }
      combine_streams(pass);

      mix_streams(pass, block.ffn_mixer, 0, pass.chunk.tokens);
      mixture_of_experts(pass, block.moe, parts().experts, block.index, weights().following(block));
      combine_streams(pass);
    }
  }

  void run_head(const Pass& pass, uint32_t first, uint32_t count) override {
    mix_streams(pass, weights().output_mixer, first, count);
  }

  std::optional<experts::RowStore> rows_;
};

}  // namespace

std::unique_ptr<Model> make_qwen4exp(ModelParts parts) { return std::make_unique<Qwen4Exp>(std::move(parts)); }

}  // namespace tierpack::model

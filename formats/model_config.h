// Hyper-parameters of a model, read from metadata and checked before anyone indexes with them. Every model can be
// packed, verified and unpacked; which ones can be computed is a question of its own (require_runnable).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/metadata.h"

namespace tierpack {

enum class Architecture { kQwen3Moe, kQwen3Next, kQwen35Moe, kQwen4Exp, kDeepseek2, kGptOss, kGlm4Moe, kOther };
// The value of general.architecture; "other" for kOther.
const char* architecture_name(Architecture architecture);

// Names follow GGUF's keys. Of a model that can be run every count is at least 1 where the architecture uses it, and
// every division that the forward pass relies on is exact. Of kOther, anything that metadata does not say is 0.
struct ModelConfig {
  Architecture architecture = Architecture::kQwen3Moe;
  std::string architecture_text;  // general.architecture, as the file has it
  // Why no forward pass here computes this model although its architecture has one ("rope is scaled ..."); else empty.
  std::string obstacle;
  std::string name;
  uint32_t vocab = 0;       // rows of token_embd; 0 = not known
  uint32_t hidden = 0;      // embedding_length
  uint32_t layers = 0;      // trunk blocks, MTP blocks not counted
  uint32_t dense_layers = 0;  // leading blocks without experts
  uint32_t mtp_layers = 0;  // nextn_predict_layers; blocks layers .. layers + mtp_layers - 1
  uint32_t context = 0;     // context_length
  float norm_eps = 1e-6f;

  uint32_t heads = 0;  // query heads
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;    // key_length
  uint32_t rotary_dim = 0;  // rotated leading dims of a head, even
  float rope_base = 0;

  uint32_t experts = 0;  // 0 = a model without routed experts
  uint32_t experts_used = 0;
  uint32_t expert_ff = 0;  // width of a routed expert; the largest where blocks differ
  bool expert_ff_differs = false;  // between blocks
  uint32_t shared_ff = 0;  // width of the shared experts together, 0 = none

  // qwen3next, qwen35moe and qwen4exp; the rest of these qwen4exp only.
  std::vector<bool> recurrent;           // [layers + mtp_layers]: gated delta net instead of attention
  std::vector<uint32_t> compress_ratio;  // [layers + mtp_layers]: tokens a QSA block, 0 = dense attention
  struct Gdn {
    uint32_t conv = 0, head_dim = 0, k_heads = 0, v_heads = 0;
  } gdn;
  struct Indexer {
    uint32_t heads = 0, head_dim = 0, budget = 0 /* tokens */;
  } indexer;
  struct HyperConnection {
    uint32_t streams = 0, low_rank = 0;
  } hc;
  struct Ple {
    int32_t layer = -1;  // the one block that has it, -1 = none
    uint32_t ngram = 0, heads_per_ngram = 0, conv = 0, head_dim = 0, eos = 0;
    std::vector<uint64_t> multipliers;  // [ngram]
    std::vector<uint64_t> offsets;      // [heads], rows
    std::vector<uint64_t> sizes;        // [heads], rows
    uint32_t heads() const { return static_cast<uint32_t>(sizes.size()); }
    uint64_t table_rows = 0;  // smallest table that holds every head
  } ple;

  uint32_t blocks() const { return layers + mtp_layers; }
};

// Throws kCorrupt for values that contradict each other or are out of range. `vocab` is taken from the tokenizer's
// token list or from <arch>.vocab_size.
ModelConfig read_model_config(const Metadata& metadata);

// Throws kUnsupported, naming the architecture or what stands in the way, unless the forward passes here compute such a
// model. `source` is what the message speaks of.
void require_runnable(const ModelConfig& config, const std::string& source);

}  // namespace tierpack

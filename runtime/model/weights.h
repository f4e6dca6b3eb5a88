// The weights of a model as the forward pass names them. Shapes are (rows, columns) with rows = outputs, as in
// kernels::MatrixView; GGUF writes the same bytes as {columns, rows}. The names of the tensors stand in weights.cpp.
//
// D = hidden, S = hyper-connection streams, W = S * D, L = low rank of a mixer, H / KV = query / key-value heads, hd =
// head_dim, E = experts, F = expert_ff.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "formats/pack.h"
#include "runtime/kernels/kernels.h"
#include "runtime/model/tensor_binder.h"

namespace tierpack::model {

using kernels::MatrixView;

// Reads S streams into one block input and says how much of the block's output each stream takes.
struct HyperMixer {
  const float* norm = nullptr;  // (S, D)
  MatrixView down;              // (L, W)
  MatrixView up;                // (W, L)
  MatrixView inject;            // (S, W); no rows in a head mixer
};

struct IndexerWeights {
  MatrixView q;                   // (index heads * index dim, D)
  MatrixView k;                   // (index dim, D)
  const float* q_norm = nullptr;  // (index dim)
  const float* k_norm = nullptr;  // (index dim)
};

struct AttentionWeights {
  MatrixView q;                   // (H * hd, D), or (H * 2 hd, D): per head the query, then its output gate
  MatrixView k, v;                // (KV * hd, D)
  MatrixView output;              // (D, H * hd)
  const float* q_norm = nullptr;  // (hd)
  const float* k_norm = nullptr;  // (hd)
  bool gated = false;
  uint32_t compress_ratio = 0;    // tokens in a block of the indexer, 0 = dense
  IndexerWeights indexer;         // bound when compress_ratio > 0
};

// kd = key heads * head dim, vd = value heads * head dim; V heads are tiled: head h reads K head h % key heads.
struct GdnWeights {
  MatrixView qkv;                  // (kd + kd + vd, D)
  MatrixView gate;                 // (vd, D)
  MatrixView beta, alpha;          // (value heads, D)
  const float* conv = nullptr;     // (kd + kd + vd, kernel)
  const float* dt_bias = nullptr;  // (value heads)
  const float* a = nullptr;        // (value heads), -exp(A_log)
  const float* norm = nullptr;     // (head dim)
  MatrixView output;               // (D, vd)
};

struct MoeWeights {
  MatrixView router;                     // (E, D)
  const ExpertLayer* experts = nullptr;  // layout of the records the store hands out
  // (E) factors of the results of quantised experts whose records hold no scales; null: none.
  const float* gate_scales = nullptr;
  const float* up_scales = nullptr;
  const float* down_scales = nullptr;
  bool has_shared = false;
  MatrixView shared_gate_input;          // (1, D): the shared expert's own gate
  MatrixView shared_gate, shared_up;     // (shared_ff, D)
  MatrixView shared_down;                // (D, shared_ff)
};

// The n-gram embedding and its way into the streams; e = heads * head dim values of a token.
struct PleWeights {
  const RowTable* table = nullptr;
  MatrixView key;                     // (W, e)
  MatrixView value;                   // (D, e)
  const float* norm_key = nullptr;    // (S, D)
  const float* norm_query = nullptr;  // (S, D)
  const float* norm_conv = nullptr;   // (S, D)
  const float* conv = nullptr;        // (W, kernel)
};

struct BlockWeights {
  uint32_t index = 0;                        // block number in the file
  bool recurrent = false;
  const float* attention_norm = nullptr;     // (D), qwen3moe
  const float* ffn_norm = nullptr;           // (D), qwen3moe
  HyperMixer attention_mixer, ffn_mixer;     // qwen4exp
  AttentionWeights attention;                // unless recurrent
  GdnWeights gdn;                            // if recurrent
  MoeWeights moe;
};

// A draft block: predicts the token after the next from the trunk's streams and the next token.
struct MtpWeights {
  const float* embedding_norm = nullptr;  // (D)
  const float* hidden_norm = nullptr;     // (S, D)
  MatrixView projection;                  // (D, 2 D): of the embedding's D values, then a stream's
  HyperMixer head_mixer;
  MatrixView embedding;                   // (vocab, D); the trunk's where the block has none of its own
  MatrixView output;                      // (vocab, D); likewise
  BlockWeights block;
};

struct ModelWeights {
  DenseTensors dense;                              // owns what every view below points into
  std::vector<std::unique_ptr<float[]>> decoded;   // and the vectors that were not stored as F32
  MatrixView embedding;                            // (vocab, D)
  MatrixView output;                               // (vocab, D); the embedding where the two are tied
  const float* output_norm = nullptr;              // (D), qwen3moe
  HyperMixer output_mixer;                         // qwen4exp, no inject
  PleWeights ple;                                  // qwen4exp with config.ple.layer >= 0
  std::vector<BlockWeights> blocks;                // trunk
  std::vector<MtpWeights> mtp;

  // The trunk block after `block`, one of `blocks`; null after the last.
  const BlockWeights* following(const BlockWeights& block) const {
    const BlockWeights* const next = &block + 1;
    return next == blocks.data() + blocks.size() ? nullptr : next;
  }
};

// Binds every tensor of the pack's architecture. Throws kCorrupt for a missing tensor or another shape than the
// hyper-parameters ask for, kUnsupported for a type that no kernel reads or a tensor that the forward pass does not know.
ModelWeights bind_weights(const Pack& pack, DenseTensors tensors);

}  // namespace tierpack::model

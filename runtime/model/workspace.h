// The scratch memory of one forward pass over a chunk of tokens: every intermediate of the graph, with its shape. Owned
// by the model, sized once for the largest chunk, reused for every chunk of every session.
//
// T = tokens of the chunk, D = hidden, S = streams (1 without hyper-connections), W = S * D, K = experts used per token.
// Parts of a block that are never alive together share memory.
#pragma once

#include <cstdint>

#include "formats/model_config.h"
#include "runtime/model/carver.h"
#include "runtime/model/compute.h"

namespace tierpack::model {

// Queries of a sparse attention that are selected for at a time on the CPU.
inline constexpr uint32_t kSparseQueries = 16;
// And on a GPU.
inline constexpr uint32_t kDeviceSparseQueries = 64;

struct HyperScratch {
  Activations normed;       // (T, W): every stream normalised on its own
  Activations low;          // (T, L)
  float* gated = nullptr;   // (T, W)
  float* inject = nullptr;  // (T, S)
};

struct AttentionScratch {
  float* q = nullptr;          // (T, H * hd) or (T, H * 2 hd) when gated
  float* k = nullptr;          // (T, KV * hd)
  float* v = nullptr;          // (T, KV * hd)
  Activations heads;           // (T, H * hd): attention output, gated
  float* index_q = nullptr;    // (T, index heads * index dim)
  float* index_raw = nullptr;  // (ratio - 1 + T, index dim): the tail carried over, then the chunk's raw keys
  float* scores = nullptr;     // (kSparseQueries, blocks of the context)
  uint32_t* picked = nullptr;  // (kSparseQueries, budget / ratio)
  uint32_t* visible = nullptr;        // (kSparseQueries, visible_stride)
  size_t visible_stride = 0;          // budget + ratio - 1
  uint32_t* visible_count = nullptr;  // (kSparseQueries)
};

struct GdnScratch {
  float* input = nullptr;  // (kernel - 1 + T, channels): the history, then the chunk's qkv
  float* mixed = nullptr;  // (T, channels): after convolution and silu; q and k then normalised in place
  float* z = nullptr;      // (T, vd): output gate
  float* beta = nullptr;   // (T, value heads)
  float* decay = nullptr;  // (T, value heads)
  Activations out;         // (T, vd)
};

struct MoeScratch {
  float* router = nullptr;       // (T, E): logits, then probabilities
  uint32_t* ids = nullptr;       // (T, K): experts of a token, largest weight first
  float* weights = nullptr;      // (T, K)
  uint32_t* row = nullptr;       // (T, K): where that pair's output lies in `out`
  uint32_t* pair_token = nullptr;  // (T * K): the token of a row, rows grouped by expert
  uint32_t* first_row = nullptr;   // (E + 1)
  uint32_t* requested = nullptr;   // (E): distinct experts of the chunk, ascending
  uint32_t* counts = nullptr;      // (E): tokens that chose each of them
  uint32_t* guess = nullptr;       // (K): experts that the next block may choose
  Activations input;             // (T * K, D): x gathered by row; unused for one token
  float* gate = nullptr;         // (T * K, F)
  float* up = nullptr;           // (T * K, F)
  Activations hidden;            // (T * K, F filled up to a multiple of 64)
  float* out = nullptr;          // (T * K, D)
  float* shared_weight = nullptr;  // (T)
  float* shared_gate = nullptr;    // (T, shared F)
  float* shared_up = nullptr;      // (T, shared F)
  Activations shared_hidden;       // (T, shared F)
  float* shared_out = nullptr;     // (T, D)
};

struct PleScratch {
  Activations embedding;        // (T, e)
  float* key = nullptr;         // (T, W)
  float* value = nullptr;       // (T, D)
  float* query = nullptr;       // (T, W)
  float* gated = nullptr;       // (T, W)
  float* conv_input = nullptr;  // ((kernel - 1) * ngram + T, W): the history, then the chunk
  float* conv = nullptr;        // (T, W)
};

// Whose kernels use a workspace: a GPU's gather activations themselves and select for more queries at a time.
enum class WorkspacePlace { kHost, kDevice };

// Tokens whose logits are computed together in chunks of `tokens`.
uint32_t logit_rows(const ModelConfig& config, uint32_t tokens);
// Columns of the values between an expert's two products: rows of the second are filled up to whole blocks.
uint32_t expert_hidden_columns(const ModelConfig& config);
// (rows, n) as rows and, where n allows, quantised.
Activations take_activations(Carver& carver, uint64_t rows, uint64_t n);

struct Workspace {
  uint32_t tokens = 0;       // T the buffers are sized for
  uint32_t logit_rows = 0;   // tokens whose logits are computed together

  float* streams = nullptr;  // (T, W): the residual
  Activations x;             // (T, D): input of a block's attention, delta net, experts or head
  float* y = nullptr;        // (T, D): their output
  float* cos = nullptr;      // (T, rotary_dim / 2)
  float* sin = nullptr;      // (T, rotary_dim / 2)
  float* logits = nullptr;   // (logit_rows, vocab)
  HyperScratch hyper;
  AttentionScratch attention;
  GdnScratch gdn;
  MoeScratch moe;
  PleScratch ple;

  // Takes everything from `carver` for chunks of `tokens` and sessions of at most `capacity` tokens.
  static Workspace carve(Carver& carver, const ModelConfig& config, uint32_t tokens, uint32_t capacity,
                         WorkspacePlace place = WorkspacePlace::kHost);
};

}  // namespace tierpack::model

// What each architecture's checkpoint calls its tensors, as tables: one row for each tensor of a pack, in the order in
// which a pack holds them. Rules that a row
// only names (How) are carried out in hf_mapping.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "formats/model_config.h"

namespace tierpack::repack {

// Widths that shapes are written in. Those that the configuration does not give are taken from the first tensor that
// has one; every later tensor must agree.
enum class Dim : uint8_t {
  kNone,  // the shape has no more dimensions
  kAny,
  kHidden,
  kTwoHidden,
  kVocab,
  kHeads,
  kHeadDim,
  kQueries,          // heads * head_dim
  kQueriesAndGates,  // twice that: per head its query, then its gate
  kKeys,             // kv_heads * head_dim; of values too
  kExperts,
  kExpertFf,
  kSharedFf,
  kDenseFf,
  // Gated delta net: k and v heads of one width.
  kGdnHeadDim,
  kGdnConv,
  kGdnVHeads,
  kGdnTwoVHeads,
  kGdnValues,  // v_heads * head_dim
  kGdnQkv,     // (2 k_heads + v_heads) * head_dim
  kGdnQkvz,    // kGdnQkv + kGdnValues
  // Hyper-connections, indexer, n-gram embedding.
  kWide,  // streams * hidden
  kLowRank,
  kStreams,
  kIndexHeadDim,
  kIndexQueries,
  kPleWidth,
  kPleConv,
  // Multi-head latent attention.
  kQueryRank,
  kKeyRank,         // of keys and values
  kKeyRankAndRope,  // kKeyRank and the rotated part of the one key
  kMlaQueries,      // heads * (kMlaKey + rotated)
  kMlaKey,          // unrotated part of a head's key
  kMlaValue,
  kMlaKeysAndValues,  // heads * (kMlaKey + kMlaValue)
  kMlaValues,         // heads * kMlaValue
  kCount,
};

// How a source becomes a target. g counts K heads, j the V heads of one K head.
enum class How : uint8_t {
  kMatrix,       // moved as it is
  kFloats,       // f32
  kPlusOne,      // f32, 1 + x
  kNextRows,     // the rows of the source that follow those of the row above
  kSideBySide,   // two sources "A+B" of one height, A's columns first
  kExpertGate,   // source "mlp.experts.*.gate_proj.weight", or the first half of the rows of mlp.experts.gate_up_proj
  kExpertUp,     // likewise, the second half
  kExpertDown,   // likewise, or mlp.experts.down_proj
  kInterleaved,  // two targets "A+B" of rows 0, 2, 4 .. and 1, 3, 5 ..; plain types: stored transposed
  kStack,        // one matrix an expert; plain types: stored transposed
  kEvenFloats,   // f32, elements 0, 2, 4 ..
  kOddFloats,    // f32, elements 1, 3, 5 ..
  kShards,  // source with '*' for 0, 1, 2 ..: rows of one after the other; a whole table is its name without the shard
  kVHeadRows,      // rows of V heads. Tiled architectures: head j * k_heads + g is the source's head g * r + j
  kVHeadColumns,   // columns, likewise
  kVHeadFloats,    // f32, one a V head, likewise
  kVHeadDecay,     // f32, -exp(x), one a V head, likewise
  kQkvRows,        // q and k rows as they are, V heads as in kVHeadRows
  kQkvChannels,    // f32, channels like kQkvRows
  kQkvOfGroups,    // q, k and v of rows that are stored by K head: q, k, r v heads, r z heads
  kZOfGroups,      // z of those
  kKeysOfHeads,    // first kMlaKey of the kMlaKey + kMlaValue rows of each head, transposed
  kValuesOfHeads,  // the others
};

enum class Need : bool { kOptional, kRequired };

struct HfRow {
  const char* target;        // after "blk.N." in a block
  std::array<Dim, 3> shape;  // ggml order
  const char* source;        // after "model.layers.N." in a block
  How how = How::kMatrix;
  Need need = Need::kRequired;
};
using HfRows = std::span<const HfRow>;

struct HfTables {
  HfRows first;      // of the model, after "model."; before the blocks
  HfRows lookup;     // of the model; sources in the block with the n-gram embedding
  HfRows norms;      // of every block; in this order with what follows
  HfRows recurrent;  // blocks with a gated delta net
  HfRows attention;  // all others
  HfRows lite;       // of these, if not empty: the ones that have a self_attn.q_proj
  HfRows ple;        // the block with the n-gram embedding
  HfRows dense;      // blocks without a router
  HfRows experts;    // blocks with one
  HfRows draft;      // draft blocks, beside the above
  HfRows last;       // of the model, after "model."
  HfRows head;       // of the model, names in full; the very last
  // Draft blocks are "mtp.layers.K.", and the rows of `draft` follow "mtp."; otherwise both are like the blocks of the
  // trunk.
  bool draft_apart = false;
  bool tiled = false;  // see How::kVHeadRows
};

// Throws kUnsupported for an architecture without tables.
HfTables hf_tables(Architecture architecture);

HfTables qwen3moe_tables();
HfTables qwen3next_tables();
HfTables qwen35moe_tables();
HfTables qwen4exp_tables();
HfTables deepseek2_tables();
HfTables glm4moe_tables();
HfTables gpt_oss_tables();

// The same in every architecture.
inline constexpr HfRow kTokenEmbedding[] = {
    {"token_embd.weight", {Dim::kHidden, Dim::kVocab}, "embed_tokens.weight"},
};
inline constexpr HfRow kOutput[] = {
    {"output.weight", {Dim::kHidden, Dim::kVocab}, "lm_head.weight", How::kMatrix, Need::kOptional},
};

}  // namespace tierpack::repack

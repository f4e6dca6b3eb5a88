// qwen3moe, qwen3next, qwen35moe and qwen4exp.
#include "repack/hf_tables.h"

namespace tierpack::repack {

namespace {

using enum Dim;
using enum How;
using enum Need;

// clang-format off

// ---- qwen3moe: gammas as they are

constexpr HfRow kPlainNorms[] = {
    {"attn_norm.weight",            {kHidden}, "input_layernorm.weight", kFloats},
    {"ffn_norm.weight",             {kHidden}, "post_attention_layernorm.weight", kFloats},
};
constexpr HfRow kPlainAttention[] = {
    {"attn_q.weight",               {kHidden, kQueries}, "self_attn.q_proj.weight"},
    {"attn_k.weight",               {kHidden, kKeys},    "self_attn.k_proj.weight"},
    {"attn_v.weight",               {kHidden, kKeys},    "self_attn.v_proj.weight"},
    {"attn_output.weight",          {kQueries, kHidden}, "self_attn.o_proj.weight"},
    {"attn_q_norm.weight",          {kHeadDim},          "self_attn.q_norm.weight", kFloats},
    {"attn_k_norm.weight",          {kHeadDim},          "self_attn.k_norm.weight", kFloats},
};
constexpr HfRow kExpertRows[] = {
    {"ffn_gate_inp.weight",         {kHidden, kExperts},            "mlp.gate.weight"},
    {"ffn_gate_exps.weight",        {kHidden, kExpertFf, kExperts}, "mlp.experts.*.gate_proj.weight", kExpertGate},
    {"ffn_up_exps.weight",          {kHidden, kExpertFf, kExperts}, "mlp.experts.*.up_proj.weight", kExpertUp},
    {"ffn_down_exps.weight",        {kExpertFf, kHidden, kExperts}, "mlp.experts.*.down_proj.weight", kExpertDown},
};
constexpr HfRow kPlainLast[] = {
    {"output_norm.weight",          {kHidden}, "norm.weight", kFloats},
};

// ---- qwen3next and qwen35moe: all gammas + 1 but linear_attn.norm

constexpr HfRow kNorms[] = {
    {"attn_norm.weight",            {kHidden}, "input_layernorm.weight", kPlusOne},
    {"post_attention_norm.weight",  {kHidden}, "post_attention_layernorm.weight", kPlusOne},
};
constexpr HfRow kGatedAttention[] = {
    {"attn_q.weight",               {kHidden, kQueriesAndGates}, "self_attn.q_proj.weight"},
    {"attn_k.weight",               {kHidden, kKeys},            "self_attn.k_proj.weight"},
    {"attn_v.weight",               {kHidden, kKeys},            "self_attn.v_proj.weight"},
    {"attn_output.weight",          {kQueries, kHidden},         "self_attn.o_proj.weight"},
    {"attn_q_norm.weight",          {kHeadDim},                  "self_attn.q_norm.weight", kPlusOne},
    {"attn_k_norm.weight",          {kHeadDim},                  "self_attn.k_norm.weight", kPlusOne},
};
constexpr HfRow kDeltaNetByGroup[] = {
    {"attn_qkv.weight",             {kHidden, kGdnQkv},       "linear_attn.in_proj_qkvz.weight", kQkvOfGroups},
    {"attn_gate.weight",            {kHidden, kGdnValues},    "linear_attn.in_proj_qkvz.weight", kZOfGroups},
    {"ssm_conv1d.weight",           {kGdnConv, kGdnQkv},      "linear_attn.conv1d.weight", kQkvChannels},
    {"ssm_dt.bias",                 {kGdnVHeads},             "linear_attn.dt_bias", kVHeadFloats},
    {"ssm_a",                       {kGdnVHeads},             "linear_attn.A_log", kVHeadDecay},
    {"ssm_ba.weight",               {kHidden, kGdnTwoVHeads}, "linear_attn.in_proj_ba.weight"},
    {"ssm_norm.weight",             {kGdnHeadDim},            "linear_attn.norm.weight", kFloats},
    {"ssm_out.weight",              {kGdnValues, kHidden},    "linear_attn.out_proj.weight", kVHeadColumns},
};
constexpr HfRow kDeltaNet[] = {
    {"attn_qkv.weight",             {kHidden, kGdnQkv},    "linear_attn.in_proj_qkv.weight", kQkvRows},
    {"attn_gate.weight",            {kHidden, kGdnValues}, "linear_attn.in_proj_z.weight", kVHeadRows},
    {"ssm_conv1d.weight",           {kGdnConv, kGdnQkv},   "linear_attn.conv1d.weight", kQkvChannels},
    {"ssm_dt.bias",                 {kGdnVHeads},          "linear_attn.dt_bias", kVHeadFloats},
    {"ssm_a",                       {kGdnVHeads},          "linear_attn.A_log", kVHeadDecay},
    {"ssm_beta.weight",             {kHidden, kGdnVHeads}, "linear_attn.in_proj_b.weight", kVHeadRows},
    {"ssm_alpha.weight",            {kHidden, kGdnVHeads}, "linear_attn.in_proj_a.weight", kVHeadRows},
    {"ssm_norm.weight",             {kGdnHeadDim},         "linear_attn.norm.weight", kFloats},
    {"ssm_out.weight",              {kGdnValues, kHidden}, "linear_attn.out_proj.weight", kVHeadColumns},
};
constexpr HfRow kExpertsAndShared[] = {
    {"ffn_gate_inp.weight",         {kHidden, kExperts},            "mlp.gate.weight"},
    {"ffn_gate_exps.weight",        {kHidden, kExpertFf, kExperts}, "mlp.experts.*.gate_proj.weight", kExpertGate},
    {"ffn_up_exps.weight",          {kHidden, kExpertFf, kExperts}, "mlp.experts.*.up_proj.weight", kExpertUp},
    {"ffn_down_exps.weight",        {kExpertFf, kHidden, kExperts}, "mlp.experts.*.down_proj.weight", kExpertDown},
    {"ffn_gate_inp_shexp.weight",   {kHidden},                      "mlp.shared_expert_gate.weight", kFloats},
    {"ffn_gate_shexp.weight",       {kHidden, kSharedFf},           "mlp.shared_expert.gate_proj.weight"},
    {"ffn_up_shexp.weight",         {kHidden, kSharedFf},           "mlp.shared_expert.up_proj.weight"},
    {"ffn_down_shexp.weight",       {kSharedFf, kHidden},           "mlp.shared_expert.down_proj.weight"},
};
constexpr HfRow kDraft[] = {
    {"nextn.eh_proj.weight",          {kTwoHidden, kHidden}, "fc.weight"},
    {"nextn.enorm.weight",            {kHidden},             "pre_fc_norm_embedding.weight", kPlusOne},
    {"nextn.hnorm.weight",            {kHidden},             "pre_fc_norm_hidden.weight", kPlusOne},
    {"nextn.shared_head_norm.weight", {kHidden},             "norm.weight", kPlusOne},
    {"nextn.embed_tokens.weight",     {kHidden, kVocab},     "embed_tokens.weight", kMatrix, kOptional},
    {"nextn.shared_head_head.weight", {kHidden, kVocab},     "lm_head.weight", kMatrix, kOptional},
};
constexpr HfRow kLast[] = {
    {"output_norm.weight",          {kHidden}, "norm.weight", kPlusOne},
};

// ---- qwen4exp: hyper-connections in place of norms, an indexer, an n-gram embedding

constexpr HfRow kMixers[] = {
    {"hc_attn_norm.weight",         {kWide},           "attn_hyper_connection.hc_norm.weight", kPlusOne},
    {"hc_attn_down.weight",         {kWide, kLowRank}, "attn_hyper_connection.input_mix_weight_down.weight"},
    {"hc_attn_up.weight",           {kLowRank, kWide}, "attn_hyper_connection.input_mix_weight_up.weight"},
    {"hc_attn_inject.weight",       {kWide, kStreams}, "attn_hyper_connection.block_inject_weight.weight"},
    {"hc_ffn_norm.weight",          {kWide},           "mlp_hyper_connection.hc_norm.weight", kPlusOne},
    {"hc_ffn_down.weight",          {kWide, kLowRank}, "mlp_hyper_connection.input_mix_weight_down.weight"},
    {"hc_ffn_up.weight",            {kLowRank, kWide}, "mlp_hyper_connection.input_mix_weight_up.weight"},
    {"hc_ffn_inject.weight",        {kWide, kStreams}, "mlp_hyper_connection.block_inject_weight.weight"},
};
constexpr HfRow kSparseAttention[] = {
    {"attn_q.weight",               {kHidden, kQueriesAndGates}, "self_attn.q_proj.weight"},
    {"attn_k.weight",               {kHidden, kKeys},            "self_attn.k_proj.weight"},
    {"attn_v.weight",               {kHidden, kKeys},            "self_attn.v_proj.weight"},
    {"attn_output.weight",          {kQueries, kHidden},         "self_attn.o_proj.weight"},
    {"attn_q_norm.weight",          {kHeadDim},                  "self_attn.q_norm.weight", kPlusOne},
    {"attn_k_norm.weight",          {kHeadDim},                  "self_attn.k_norm.weight", kPlusOne},
    {"indexer.q_proj.weight",       {kHidden, kIndexQueries},    "self_attn.indexer.index_qk_proj.weight", kNextRows, kOptional},
    {"indexer.k_proj.weight",       {kHidden, kIndexHeadDim},    "self_attn.indexer.index_qk_proj.weight", kNextRows, kOptional},
    {"indexer.q_norm.weight",       {kIndexHeadDim},             "self_attn.indexer.q_layernorm.weight", kPlusOne, kOptional},
    {"indexer.k_norm.weight",       {kIndexHeadDim},             "self_attn.indexer.k_layernorm.weight", kPlusOne, kOptional},
};
constexpr HfRow kPle[] = {
    {"ple_key.weight",              {kHidden, kWide},   "ple.key_proj.weight"},
    {"ple_value.weight",            {kHidden, kHidden}, "ple.value_proj.weight"},
    {"ple_norm_key.weight",         {kWide},            "ple.norm_key.weight", kPlusOne},
    {"ple_norm_query.weight",       {kWide},            "ple.norm_query.weight", kPlusOne},
    {"ple_norm_conv.weight",        {kWide},            "ple.norm_conv.weight", kPlusOne},
    {"ple_conv1d.weight",           {kPleConv, kWide},  "ple.conv1d.weight", kFloats},
};
constexpr HfRow kLookup[] = {
    {"per_layer_token_embd.weight", {kPleWidth, kAny}, "ple.ple_embedding.ngram_embedding.shard_*.weight", kShards},
};
constexpr HfRow kWideDraft[] = {
    {"nextn.enorm.weight",            {kHidden},             "pre_fc_norm_embedding.weight", kPlusOne},
    {"nextn.hnorm.weight",            {kWide},               "pre_fc_norm_hidden.weight", kPlusOne},
    {"nextn.eh_proj.weight",          {kTwoHidden, kHidden}, "fc_embedding.weight+fc_hidden.weight", kSideBySide},
    {"nextn.hc_head_norm.weight",     {kWide},               "hyper_connection_mixer.hc_norm.weight", kPlusOne},
    {"nextn.hc_head_down.weight",     {kWide, kLowRank},     "hyper_connection_mixer.input_mix_weight_down.weight"},
    {"nextn.hc_head_up.weight",       {kLowRank, kWide},     "hyper_connection_mixer.input_mix_weight_up.weight"},
    {"nextn.embed_tokens.weight",     {kHidden, kVocab},     "embed_tokens.weight", kMatrix, kOptional},
    {"nextn.shared_head_head.weight", {kHidden, kVocab},     "lm_head.weight", kMatrix, kOptional},
};
constexpr HfRow kWideLast[] = {
    {"output_hc_norm.weight",       {kWide},           "hyper_connection_mixer.hc_norm.weight", kPlusOne},
    {"output_hc_down.weight",       {kWide, kLowRank}, "hyper_connection_mixer.input_mix_weight_down.weight"},
    {"output_hc_up.weight",         {kLowRank, kWide}, "hyper_connection_mixer.input_mix_weight_up.weight"},
};

// clang-format on

}  // namespace

HfTables qwen3moe_tables() {
  HfTables t;
  t.first = kTokenEmbedding;
  t.norms = kPlainNorms;
  t.attention = kPlainAttention;
  t.experts = kExpertRows;
  t.last = kPlainLast;
  t.head = kOutput;
  return t;
}

HfTables qwen3next_tables() {
  HfTables t;
  t.first = kTokenEmbedding;
  t.norms = kNorms;
  t.recurrent = kDeltaNetByGroup;
  t.attention = kGatedAttention;
  t.experts = kExpertsAndShared;
  t.draft = kDraft;
  t.last = kLast;
  t.head = kOutput;
  t.draft_apart = true;
  return t;
}

HfTables qwen35moe_tables() {
  HfTables t = qwen3next_tables();
  t.recurrent = kDeltaNet;
  t.tiled = true;
  return t;
}

HfTables qwen4exp_tables() {
  HfTables t = qwen35moe_tables();
  t.norms = kMixers;
  t.attention = kSparseAttention;
  t.ple = kPle;
  t.lookup = kLookup;
  t.draft = kWideDraft;
  t.last = kWideLast;
  return t;
}

}  // namespace tierpack::repack

// deepseek2, glm4moe and gpt-oss, and the choice among all tables.
#include "base/error.h"
#include "repack/hf_tables.h"

namespace tierpack::repack {

namespace {

using enum Dim;
using enum How;
using enum Need;

// clang-format off

constexpr HfRow kLast[] = {
    {"output_norm.weight",          {kHidden}, "norm.weight", kFloats},
};
constexpr HfRow kDenseFeedForward[] = {
    {"ffn_gate.weight",             {kHidden, kDenseFf}, "mlp.gate_proj.weight"},
    {"ffn_up.weight",               {kHidden, kDenseFf}, "mlp.up_proj.weight"},
    {"ffn_down.weight",             {kDenseFf, kHidden}, "mlp.down_proj.weight"},
};
constexpr HfRow kExpertsAndShared[] = {
    {"ffn_gate_inp.weight",         {kHidden, kExperts},            "mlp.gate.weight"},
    {"exp_probs_b.bias",            {kExperts},                     "mlp.gate.e_score_correction_bias", kFloats, kOptional},
    {"ffn_gate_exps.weight",        {kHidden, kExpertFf, kExperts}, "mlp.experts.*.gate_proj.weight", kExpertGate},
    {"ffn_up_exps.weight",          {kHidden, kExpertFf, kExperts}, "mlp.experts.*.up_proj.weight", kExpertUp},
    {"ffn_down_exps.weight",        {kExpertFf, kHidden, kExperts}, "mlp.experts.*.down_proj.weight", kExpertDown},
    {"ffn_gate_shexp.weight",       {kHidden, kSharedFf},           "mlp.shared_experts.gate_proj.weight", kMatrix, kOptional},
    {"ffn_up_shexp.weight",         {kHidden, kSharedFf},           "mlp.shared_experts.up_proj.weight", kMatrix, kOptional},
    {"ffn_down_shexp.weight",       {kSharedFf, kHidden},           "mlp.shared_experts.down_proj.weight", kMatrix, kOptional},
};
constexpr HfRow kDraft[] = {
    {"nextn.eh_proj.weight",          {kTwoHidden, kHidden}, "eh_proj.weight"},
    {"nextn.enorm.weight",            {kHidden},             "enorm.weight", kFloats},
    {"nextn.hnorm.weight",            {kHidden},             "hnorm.weight", kFloats},
    {"nextn.shared_head_norm.weight", {kHidden},             "shared_head.norm.weight", kFloats},
    {"nextn.embed_tokens.weight",     {kHidden, kVocab},     "embed_tokens.weight", kMatrix, kOptional},
    {"nextn.shared_head_head.weight", {kHidden, kVocab},     "shared_head.head.weight", kMatrix, kOptional},
};

// ---- deepseek2: queries of low rank; the lite models have plain ones

constexpr HfRow kMlaNorms[] = {
    {"attn_norm.weight",            {kHidden}, "input_layernorm.weight", kFloats},
    {"ffn_norm.weight",             {kHidden}, "post_attention_layernorm.weight", kFloats},
};
constexpr HfRow kLatentAttention[] = {
    {"attn_q_a.weight",             {kHidden, kQueryRank},         "self_attn.q_a_proj.weight"},
    {"attn_q_a_norm.weight",        {kQueryRank},                  "self_attn.q_a_layernorm.weight", kFloats},
    {"attn_q_b.weight",             {kQueryRank, kMlaQueries},     "self_attn.q_b_proj.weight"},
    {"attn_kv_a_mqa.weight",        {kHidden, kKeyRankAndRope},    "self_attn.kv_a_proj_with_mqa.weight"},
    {"attn_kv_a_norm.weight",       {kKeyRank},                    "self_attn.kv_a_layernorm.weight", kFloats},
    {"attn_k_b.weight",             {kMlaKey, kKeyRank, kHeads},   "self_attn.kv_b_proj.weight", kKeysOfHeads},
    {"attn_v_b.weight",             {kKeyRank, kMlaValue, kHeads}, "self_attn.kv_b_proj.weight", kValuesOfHeads},
    {"attn_output.weight",          {kMlaValues, kHidden},         "self_attn.o_proj.weight"},
};
constexpr HfRow kLiteLatentAttention[] = {
    {"attn_q.weight",               {kHidden, kMlaQueries},        "self_attn.q_proj.weight"},
    {"attn_kv_a_mqa.weight",        {kHidden, kKeyRankAndRope},    "self_attn.kv_a_proj_with_mqa.weight"},
    {"attn_kv_a_norm.weight",       {kKeyRank},                    "self_attn.kv_a_layernorm.weight", kFloats},
    {"attn_k_b.weight",             {kMlaKey, kKeyRank, kHeads},   "self_attn.kv_b_proj.weight", kKeysOfHeads},
    {"attn_v_b.weight",             {kKeyRank, kMlaValue, kHeads}, "self_attn.kv_b_proj.weight", kValuesOfHeads},
    {"attn_output.weight",          {kMlaValues, kHidden},         "self_attn.o_proj.weight"},
};

// ---- glm4moe

constexpr HfRow kGlmNorms[] = {
    {"attn_norm.weight",            {kHidden}, "input_layernorm.weight", kFloats},
    {"post_attention_norm.weight",  {kHidden}, "post_attention_layernorm.weight", kFloats},
};
constexpr HfRow kGlmAttention[] = {
    {"attn_q.weight",               {kHidden, kQueries}, "self_attn.q_proj.weight"},
    {"attn_q.bias",                 {kQueries},          "self_attn.q_proj.bias", kFloats, kOptional},
    {"attn_k.weight",               {kHidden, kKeys},    "self_attn.k_proj.weight"},
    {"attn_k.bias",                 {kKeys},             "self_attn.k_proj.bias", kFloats, kOptional},
    {"attn_v.weight",               {kHidden, kKeys},    "self_attn.v_proj.weight"},
    {"attn_v.bias",                 {kKeys},             "self_attn.v_proj.bias", kFloats, kOptional},
    {"attn_output.weight",          {kQueries, kHidden}, "self_attn.o_proj.weight"},
    {"attn_q_norm.weight",          {kHeadDim},          "self_attn.q_norm.weight", kFloats, kOptional},
    {"attn_k_norm.weight",          {kHeadDim},          "self_attn.k_norm.weight", kFloats, kOptional},
};

// ---- gpt-oss: every matrix has a bias

constexpr HfRow kSinkAttention[] = {
    {"attn_q.weight",               {kHidden, kQueries}, "self_attn.q_proj.weight"},
    {"attn_q.bias",                 {kQueries},          "self_attn.q_proj.bias", kFloats},
    {"attn_k.weight",               {kHidden, kKeys},    "self_attn.k_proj.weight"},
    {"attn_k.bias",                 {kKeys},             "self_attn.k_proj.bias", kFloats},
    {"attn_v.weight",               {kHidden, kKeys},    "self_attn.v_proj.weight"},
    {"attn_v.bias",                 {kKeys},             "self_attn.v_proj.bias", kFloats},
    {"attn_output.weight",          {kQueries, kHidden}, "self_attn.o_proj.weight"},
    {"attn_output.bias",            {kHidden},           "self_attn.o_proj.bias", kFloats},
    {"attn_sinks.weight",           {kHeads},            "self_attn.sinks", kFloats},
};
constexpr HfRow kBiasedExperts[] = {
    {"ffn_gate_inp.weight",         {kHidden, kExperts},            "mlp.router.weight"},
    {"ffn_gate_inp.bias",           {kExperts},                     "mlp.router.bias", kFloats},
    {"ffn_gate_exps.weight+ffn_up_exps.weight",
                                    {kHidden, kExpertFf, kExperts}, "mlp.experts.gate_up_proj", kInterleaved},
    {"ffn_gate_exps.bias",          {kExpertFf, kExperts},          "mlp.experts.gate_up_proj_bias", kEvenFloats},
    {"ffn_up_exps.bias",            {kExpertFf, kExperts},          "mlp.experts.gate_up_proj_bias", kOddFloats},
    {"ffn_down_exps.weight",        {kExpertFf, kHidden, kExperts}, "mlp.experts.down_proj", kStack},
    {"ffn_down_exps.bias",          {kHidden, kExperts},            "mlp.experts.down_proj_bias", kFloats},
};

// clang-format on

}  // namespace

HfTables glm4moe_tables() {
  HfTables t;
  t.first = kTokenEmbedding;
  t.norms = kGlmNorms;
  t.attention = kGlmAttention;
  t.dense = kDenseFeedForward;
  t.experts = kExpertsAndShared;
  t.draft = kDraft;
  t.last = kLast;
  t.head = kOutput;
  return t;
}

HfTables deepseek2_tables() {
  HfTables t = glm4moe_tables();
  t.norms = kMlaNorms;
  t.attention = kLatentAttention;
  t.lite = kLiteLatentAttention;
  return t;
}

HfTables gpt_oss_tables() {
  HfTables t;
  t.first = kTokenEmbedding;
  t.norms = kGlmNorms;
  t.attention = kSinkAttention;
  t.experts = kBiasedExperts;
  t.last = kLast;
  t.head = kOutput;
  return t;
}

HfTables hf_tables(Architecture architecture) {
  switch (architecture) {
    case Architecture::kQwen3Moe: return qwen3moe_tables();
    case Architecture::kQwen3Next: return qwen3next_tables();
    case Architecture::kQwen35Moe: return qwen35moe_tables();
    case Architecture::kQwen4Exp: return qwen4exp_tables();
    case Architecture::kDeepseek2: return deepseek2_tables();
    case Architecture::kGlm4Moe: return glm4moe_tables();
    case Architecture::kGptOss: return gpt_oss_tables();
    case Architecture::kOther: break;
  }
  fail(ErrorKind::kUnsupported,
       "safetensors checkpoints of the architecture '{}' are not known; known are qwen3moe, qwen3next, qwen35moe, "
       "qwen4exp, deepseek2, glm4moe and gpt-oss",
       architecture_name(architecture));
}

}  // namespace tierpack::repack

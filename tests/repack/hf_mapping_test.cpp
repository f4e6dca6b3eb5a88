// Every architecture: what the pack holds, against loops that are written by hand from the checkpoint's own tensors.
#include "repack/hf_mapping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "tests/support/made_models.h"

namespace tierpack::repack {
namespace {

using namespace testing_support;
using Floats = std::vector<float>;

// A model that is mapped, with the text of its file.
struct Opened {
  explicit Opened(const MadeModel& model)
      : text(model.checkpoint.file()),
        m(SafetensorsSource::open_single(std::make_unique<MemorySource>(as_bytes(text), "made"), "made"),
          model.config) {
    for (const TensorInfo& t : m.mapping.tensors) unchecked.insert(t.name);
    for (const DerivedTensor& d : m.mapping.derived) unchecked.insert(d.target.name);
  }
  // Fails when a tensor of the pack was not compared.
  ~Opened() {
    std::string rest;
    for (const std::string& name : unchecked) rest += " " + name;
    EXPECT_EQ(rest, "");
  }

  void same(const std::string& name, const Floats& got, const Floats& want, const Shape& shape,
            const char* shape_text) {
    unchecked.erase(name);
    EXPECT_EQ(shape.text(), shape_text) << name;
    ASSERT_EQ(got.size(), want.size()) << name;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i])) << name << " at " << i;
    }
  }
  void moved(const std::string& name, const Floats& want, const char* shape, DType type = DType::kBF16) {
    const TensorInfo* t = m.tensor(name);
    ASSERT_NE(t, nullptr) << name;
    EXPECT_EQ(t->dtype, type) << name;
    EXPECT_EQ(t->bytes, row_bytes(type, t->shape.ne[0]) * t->shape.rows()) << name;
    same(name, m.moved(name), want, t->shape, shape);
  }
  void as_is(const std::string& name, const std::string& source, const char* shape, DType type = DType::kBF16) {
    moved(name, m.weight(source), shape, type);
  }
  void derived(const std::string& name, const Floats& want, const char* shape) {
    const DerivedTensor* d = m.derived(name);
    ASSERT_NE(d, nullptr) << name;
    EXPECT_EQ(d->target.dtype, DType::kF32);
    EXPECT_EQ(d->target.bytes, 4 * want.size()) << name;
    same(name, m.values(name), want, d->target.shape, shape);
  }
  void floats(const std::string& name, const std::string& source, const char* shape) {
    derived(name, m.weight(source), shape);
  }
  void plus_one(const std::string& name, const std::string& source, const char* shape) {
    Floats want = m.weight(source);
    for (float& x : want) x = 1.0f + x;
    derived(name, want, shape);
  }

  std::string text;
  Mapped m;
  std::set<std::string> unchecked;
};

Floats rows_of(const Floats& matrix, uint64_t columns, uint64_t first, uint64_t count) {
  return Floats(matrix.begin() + static_cast<long>(first * columns),
                matrix.begin() + static_cast<long>((first + count) * columns));
}
void append(Floats& to, const Floats& more) { to.insert(to.end(), more.begin(), more.end()); }

// ffn_{gate,up,down}_exps of experts that are stored apart or fused, width 96, hidden 64.
void check_experts(Opened& o, const std::string& target, const std::string& source, bool fused) {
  Floats gate, up, down;
  for (int e = 0; e < 3; ++e) {
    if (fused) {
      const Floats& both = o.m.weight(source + "mlp.experts.gate_up_proj");
      append(gate, rows_of(both, 64, static_cast<uint64_t>(e) * 192, 96));
      append(up, rows_of(both, 64, static_cast<uint64_t>(e) * 192 + 96, 96));
    } else {
      append(gate, o.m.weight(fmt::format("{}mlp.experts.{}.gate_proj.weight", source, e)));
      append(up, o.m.weight(fmt::format("{}mlp.experts.{}.up_proj.weight", source, e)));
      append(down, o.m.weight(fmt::format("{}mlp.experts.{}.down_proj.weight", source, e)));
    }
  }
  if (fused) down = o.m.weight(source + "mlp.experts.down_proj");
  o.moved(target + "ffn_gate_exps.weight", gate, "{64, 96, 3}");
  o.moved(target + "ffn_up_exps.weight", up, "{64, 96, 3}");
  o.moved(target + "ffn_down_exps.weight", down, "{96, 64, 3}");
  o.as_is(target + "ffn_gate_inp.weight", source + "mlp.gate.weight", "{64, 3}");
}

void check_ends(Opened& o, const std::string& model) {
  o.as_is("token_embd.weight", model + "embed_tokens.weight", "{64, 6}");
  o.as_is("output.weight", "lm_head.weight", "{64, 6}");
}

void check_plain_attention(Opened& o, const std::string& target, const std::string& source) {
  o.as_is(target + "attn_q.weight", source + "self_attn.q_proj.weight", "{64, 64}");
  o.as_is(target + "attn_k.weight", source + "self_attn.k_proj.weight", "{64, 32}");
  o.as_is(target + "attn_v.weight", source + "self_attn.v_proj.weight", "{64, 32}");
  o.as_is(target + "attn_output.weight", source + "self_attn.o_proj.weight", "{64, 64}");
}

TEST(HfMapping, Qwen3Moe) {
  for (const bool fused : {false, true}) {
    Opened o(made_qwen3moe(fused));
    for (int n = 0; n < 2; ++n) {
      const std::string target = fmt::format("blk.{}.", n), source = fmt::format("model.layers.{}.", n);
      o.floats(target + "attn_norm.weight", source + "input_layernorm.weight", "{64}");
      o.floats(target + "ffn_norm.weight", source + "post_attention_layernorm.weight", "{64}");
      check_plain_attention(o, target, source);
      o.floats(target + "attn_q_norm.weight", source + "self_attn.q_norm.weight", "{32}");
      o.floats(target + "attn_k_norm.weight", source + "self_attn.k_norm.weight", "{32}");
      check_experts(o, target, source, fused);
    }
    o.floats("output_norm.weight", "model.norm.weight", "{64}");
    check_ends(o, "model.");
    EXPECT_TRUE(o.m.mapping.kept_only.empty());
  }
}

TEST(HfMapping, TensorsAreInTheOrderOfTheTables) {
  Opened o(made_qwen3moe());
  o.unchecked.clear();
  std::vector<std::string> names;
  for (const TensorInfo& t : o.m.mapping.tensors) names.push_back(t.name);
  std::vector<std::string> want = {"token_embd.weight"};
  for (const char* block : {"blk.0.", "blk.1."}) {
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_inp", "ffn_gate_exps",
                             "ffn_up_exps", "ffn_down_exps"}) {
      want.push_back(fmt::format("{}{}.weight", block, name));
    }
  }
  want.push_back("output.weight");
  EXPECT_EQ(names, want);
  EXPECT_EQ(o.m.mapping.derived.front().target.name, "blk.0.attn_norm.weight");
  EXPECT_EQ(o.m.mapping.derived.back().target.name, "output_norm.weight");
}

// What qwen3next, qwen35moe and qwen4exp share. V head p of the pack is the checkpoint's head v_head(p).
uint64_t grouped(uint64_t p) { return p; }
uint64_t tiled(uint64_t p) { return p % 2 * 3 + p / 2; }  // two K heads of three V heads

void check_delta_net_rest(Opened& o, const std::string& target, const std::string& source,
                          uint64_t (*v_head)(uint64_t)) {
  const std::string at = source + "linear_attn.";
  const Floats &conv = o.m.weight(at + "conv1d.weight"), &dt = o.m.weight(at + "dt_bias"),
               &a = o.m.weight(at + "A_log");
  const Floats& out = o.m.weight(at + "out_proj.weight");
  Floats channels = rows_of(conv, 4, 0, 256), bias, decay, columns(64 * 384);
  for (uint64_t p = 0; p < 6; ++p) {
    append(channels, rows_of(conv, 4, 256 + v_head(p) * 64, 64));
    bias.push_back(dt[v_head(p)]);
    decay.push_back(static_cast<float>(-std::exp(static_cast<double>(a[v_head(p)]))));
    for (uint64_t row = 0; row < 64; ++row) {
      for (uint64_t c = 0; c < 64; ++c) columns[row * 384 + p * 64 + c] = out[row * 384 + v_head(p) * 64 + c];
    }
  }
  o.derived(target + "ssm_conv1d.weight", channels, "{4, 640}");
  o.derived(target + "ssm_dt.bias", bias, "{6}");
  o.derived(target + "ssm_a", decay, "{6}");
  o.floats(target + "ssm_norm.weight", at + "norm.weight", "{64}");
  o.moved(target + "ssm_out.weight", columns, "{384, 64}");
}

void check_tiled_delta_net(Opened& o, const std::string& target, const std::string& source) {
  const std::string at = source + "linear_attn.";
  const Floats& qkv_source = o.m.weight(at + "in_proj_qkv.weight");
  Floats qkv = rows_of(qkv_source, 64, 0, 256), z, a, b;
  for (uint64_t p = 0; p < 6; ++p) {
    append(qkv, rows_of(qkv_source, 64, 256 + tiled(p) * 64, 64));
    append(z, rows_of(o.m.weight(at + "in_proj_z.weight"), 64, tiled(p) * 64, 64));
    append(a, rows_of(o.m.weight(at + "in_proj_a.weight"), 64, tiled(p), 1));
    append(b, rows_of(o.m.weight(at + "in_proj_b.weight"), 64, tiled(p), 1));
  }
  o.moved(target + "attn_qkv.weight", qkv, "{64, 640}");
  o.moved(target + "attn_gate.weight", z, "{64, 384}");
  o.moved(target + "ssm_alpha.weight", a, "{64, 6}");
  o.moved(target + "ssm_beta.weight", b, "{64, 6}");
  check_delta_net_rest(o, target, source, tiled);
}

void check_gated_attention(Opened& o, const std::string& target, const std::string& source) {
  o.as_is(target + "attn_q.weight", source + "self_attn.q_proj.weight", "{64, 128}");
  o.as_is(target + "attn_k.weight", source + "self_attn.k_proj.weight", "{64, 32}");
  o.as_is(target + "attn_v.weight", source + "self_attn.v_proj.weight", "{64, 32}");
  o.as_is(target + "attn_output.weight", source + "self_attn.o_proj.weight", "{64, 64}");
  o.plus_one(target + "attn_q_norm.weight", source + "self_attn.q_norm.weight", "{32}");
  o.plus_one(target + "attn_k_norm.weight", source + "self_attn.k_norm.weight", "{32}");
}

void check_shared_expert(Opened& o, const std::string& target, const std::string& source) {
  o.floats(target + "ffn_gate_inp_shexp.weight", source + "mlp.shared_expert_gate.weight", "{64}");
  o.as_is(target + "ffn_gate_shexp.weight", source + "mlp.shared_expert.gate_proj.weight", "{64, 32}");
  o.as_is(target + "ffn_up_shexp.weight", source + "mlp.shared_expert.up_proj.weight", "{64, 32}");
  o.as_is(target + "ffn_down_shexp.weight", source + "mlp.shared_expert.down_proj.weight", "{32, 64}");
}

void check_gamma_norms(Opened& o, const std::string& target, const std::string& source) {
  o.plus_one(target + "attn_norm.weight", source + "input_layernorm.weight", "{64}");
  o.plus_one(target + "post_attention_norm.weight", source + "post_attention_layernorm.weight", "{64}");
}

TEST(HfMapping, Qwen3Next) {
  Opened o(made_qwen3next(Architecture::kQwen3Next, 0));
  const std::string source = "model.layers.0.";
  // Rows by K head: q (64), k (64), v (3 * 64), z (3 * 64).
  const Floats& all = o.m.weight(source + "linear_attn.in_proj_qkvz.weight");
  Floats q, k, v, z;
  for (uint64_t g = 0; g < 2; ++g) {
    append(q, rows_of(all, 64, g * 512, 64));
    append(k, rows_of(all, 64, g * 512 + 64, 64));
    append(v, rows_of(all, 64, g * 512 + 128, 192));
    append(z, rows_of(all, 64, g * 512 + 320, 192));
  }
  append(q, k);
  append(q, v);
  o.moved("blk.0.attn_qkv.weight", q, "{64, 640}");
  o.moved("blk.0.attn_gate.weight", z, "{64, 384}");
  o.as_is("blk.0.ssm_ba.weight", source + "linear_attn.in_proj_ba.weight", "{64, 12}");
  check_delta_net_rest(o, "blk.0.", source, grouped);
  check_gated_attention(o, "blk.1.", "model.layers.1.");
  for (int n = 0; n < 2; ++n) {
    const std::string target = fmt::format("blk.{}.", n), block = fmt::format("model.layers.{}.", n);
    check_gamma_norms(o, target, block);
    check_experts(o, target, block, false);
    check_shared_expert(o, target, block);
  }
  o.plus_one("output_norm.weight", "model.norm.weight", "{64}");
  check_ends(o, "model.");
  // The configuration does not count the draft block.
  EXPECT_EQ(o.m.mapping.kept_only.size(), 26u);
  for (const std::string& name : o.m.mapping.kept_only) EXPECT_TRUE(name.starts_with("mtp.")) << name;
}

TEST(HfMapping, Qwen35Moe) {
  Opened o(made_qwen3next(Architecture::kQwen35Moe, 1));
  const std::string model = "model.language_model.";
  check_tiled_delta_net(o, "blk.0.", model + "layers.0.");
  check_gated_attention(o, "blk.1.", model + "layers.1.");
  check_gated_attention(o, "blk.2.", "mtp.layers.0.");
  for (int n = 0; n < 3; ++n) {
    const std::string target = fmt::format("blk.{}.", n);
    const std::string block = n == 2 ? "mtp.layers.0." : fmt::format("{}layers.{}.", model, n);
    check_gamma_norms(o, target, block);
    check_experts(o, target, block, true);
    check_shared_expert(o, target, block);
  }
  o.as_is("blk.2.nextn.eh_proj.weight", "mtp.fc.weight", "{128, 64}");
  o.plus_one("blk.2.nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight", "{64}");
  o.plus_one("blk.2.nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight", "{64}");
  o.plus_one("blk.2.nextn.shared_head_norm.weight", "mtp.norm.weight", "{64}");
  o.plus_one("output_norm.weight", model + "norm.weight", "{64}");
  check_ends(o, model);
  EXPECT_EQ(o.m.mapping.kept_only, std::vector<std::string>{"model.visual.patch_embed.proj.weight"});
}

// Without the lists of a configuration, the tensors say which blocks are delta nets.
TEST(HfMapping, RecurrentBlocksAreSeenByTheirTensors) {
  MadeModel model = made_qwen3next(Architecture::kQwen35Moe, 1);
  model.config.recurrent.clear();
  Opened o(model);
  o.unchecked.clear();
  EXPECT_NE(o.m.tensor("blk.0.ssm_out.weight"), nullptr);
  EXPECT_NE(o.m.tensor("blk.1.attn_q.weight"), nullptr);
}

void check_mixer(Opened& o, const std::string& target, const std::string& source, bool inject) {
  o.plus_one(target + "_norm.weight", source + "hc_norm.weight", "{128}");
  o.as_is(target + "_down.weight", source + "input_mix_weight_down.weight", "{128, 32}");
  o.as_is(target + "_up.weight", source + "input_mix_weight_up.weight", "{32, 128}");
  if (inject) o.as_is(target + "_inject.weight", source + "block_inject_weight.weight", "{128, 2}");
}

TEST(HfMapping, Qwen4Exp) {
  Opened o(made_qwen4exp());
  const std::string model = "model.language_model.";
  for (int n = 0; n < 3; ++n) {
    const std::string target = fmt::format("blk.{}.", n);
    const std::string block = n == 2 ? "mtp.layers.0." : fmt::format("{}layers.{}.", model, n);
    check_mixer(o, target + "hc_attn", block + "attn_hyper_connection.", true);
    check_mixer(o, target + "hc_ffn", block + "mlp_hyper_connection.", true);
    if (n == 0)
      check_tiled_delta_net(o, target, block);
    else
      check_gated_attention(o, target, block);
    check_experts(o, target, block, true);
    check_shared_expert(o, target, block);
  }
  const std::string ple = model + "layers.0.ple.", indexer = model + "layers.1.self_attn.indexer.";
  o.as_is("blk.0.ple_key.weight", ple + "key_proj.weight", "{64, 128}");
  o.as_is("blk.0.ple_value.weight", ple + "value_proj.weight", "{64, 64}");
  for (const char* norm : {"key", "query", "conv"}) {
    o.plus_one(fmt::format("blk.0.ple_norm_{}.weight", norm), fmt::format("{}norm_{}.weight", ple, norm), "{128}");
  }
  o.floats("blk.0.ple_conv1d.weight", ple + "conv1d.weight", "{4, 128}");
  Floats table;
  for (int i = 0; i < 3; ++i)
    append(table, o.m.weight(fmt::format("{}ple_embedding.ngram_embedding.shard_{}.weight", ple, i)));
  o.moved("per_layer_token_embd.weight", table, "{16, 15}");
  const Floats& qk = o.m.weight(indexer + "index_qk_proj.weight");
  o.moved("blk.1.indexer.q_proj.weight", rows_of(qk, 64, 0, 48), "{64, 48}");
  o.moved("blk.1.indexer.k_proj.weight", rows_of(qk, 64, 48, 16), "{64, 16}");
  o.plus_one("blk.1.indexer.q_norm.weight", indexer + "q_layernorm.weight", "{16}");
  o.plus_one("blk.1.indexer.k_norm.weight", indexer + "k_layernorm.weight", "{16}");
  const Floats &left = o.m.weight("mtp.fc_embedding.weight"), &right = o.m.weight("mtp.fc_hidden.weight");
  Floats joined;
  for (uint64_t row = 0; row < 64; ++row) {
    append(joined, rows_of(left, 64, row, 1));
    append(joined, rows_of(right, 64, row, 1));
  }
  o.moved("blk.2.nextn.eh_proj.weight", joined, "{128, 64}");
  o.plus_one("blk.2.nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight", "{64}");
  o.plus_one("blk.2.nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight", "{128}");
  check_mixer(o, "blk.2.nextn.hc_head", "mtp.hyper_connection_mixer.", false);
  check_mixer(o, "output_hc", model + "hyper_connection_mixer.", false);
  check_ends(o, model);
  EXPECT_EQ(o.m.mapping.kept_only, std::vector<std::string>{ple + "ple_embedding.layer_multipliers"});
  EXPECT_EQ(o.m.mapping.tensors[1].name, "per_layer_token_embd.weight");
}

TEST(HfMapping, Qwen4ExpWithDenseAttentionLearnsTheIndexer) {
  MadeModel model = made_qwen4exp();
  model.config.indexer = {};
  Opened o(model);
  o.unchecked.clear();
  EXPECT_EQ(o.m.tensor("blk.1.indexer.q_proj.weight")->shape.text(), "{64, 48}");
}

void check_deep_feed_forward(Opened& o, const std::string& target, const std::string& source, bool dense) {
  if (dense) {
    o.as_is(target + "ffn_gate.weight", source + "mlp.gate_proj.weight", "{64, 160}");
    o.as_is(target + "ffn_up.weight", source + "mlp.up_proj.weight", "{64, 160}");
    o.as_is(target + "ffn_down.weight", source + "mlp.down_proj.weight", "{160, 64}");
    return;
  }
  check_experts(o, target, source, false);
  o.floats(target + "exp_probs_b.bias", source + "mlp.gate.e_score_correction_bias", "{3}");
  o.as_is(target + "ffn_gate_shexp.weight", source + "mlp.shared_experts.gate_proj.weight", "{64, 32}");
  o.as_is(target + "ffn_up_shexp.weight", source + "mlp.shared_experts.up_proj.weight", "{64, 32}");
  o.as_is(target + "ffn_down_shexp.weight", source + "mlp.shared_experts.down_proj.weight", "{32, 64}");
}

void check_deep_draft(Opened& o) {
  const std::string target = "blk.2.nextn.", source = "model.layers.2.";
  o.as_is(target + "eh_proj.weight", source + "eh_proj.weight", "{128, 64}");
  o.floats(target + "enorm.weight", source + "enorm.weight", "{64}");
  o.floats(target + "hnorm.weight", source + "hnorm.weight", "{64}");
  o.floats(target + "shared_head_norm.weight", source + "shared_head.norm.weight", "{64}");
  o.as_is(target + "shared_head_head.weight", source + "shared_head.head.weight", "{64, 6}");
  o.as_is(target + "embed_tokens.weight", source + "embed_tokens.weight", "{64, 6}");
}

TEST(HfMapping, Deepseek2) {
  for (const bool lite : {false, true}) {
    const uint32_t drafts = lite ? 0 : 1;
    Opened o(made_deepseek2(lite, drafts));
    for (uint32_t n = 0; n < 2 + drafts; ++n) {
      const std::string target = fmt::format("blk.{}.", n), block = fmt::format("model.layers.{}.", n);
      const std::string at = block + "self_attn.";
      o.floats(target + "attn_norm.weight", block + "input_layernorm.weight", "{64}");
      o.floats(target + "ffn_norm.weight", block + "post_attention_layernorm.weight", "{64}");
      if (lite) {
        o.as_is(target + "attn_q.weight", at + "q_proj.weight", "{64, 144}");
      } else {
        o.as_is(target + "attn_q_a.weight", at + "q_a_proj.weight", "{64, 96}");
        o.floats(target + "attn_q_a_norm.weight", at + "q_a_layernorm.weight", "{96}");
        o.as_is(target + "attn_q_b.weight", at + "q_b_proj.weight", "{96, 144}");
      }
      o.as_is(target + "attn_kv_a_mqa.weight", at + "kv_a_proj_with_mqa.weight", "{64, 80}");
      o.floats(target + "attn_kv_a_norm.weight", at + "kv_a_layernorm.weight", "{64}");
      // Per head 32 rows of keys and 48 of values; keys as [head][64][32].
      const Floats& both = o.m.weight(at + "kv_b_proj.weight");
      Floats keys, values;
      for (uint64_t h = 0; h < 3; ++h) {
        for (uint64_t c = 0; c < 64; ++c) {
          for (uint64_t d = 0; d < 32; ++d) keys.push_back(both[(h * 80 + d) * 64 + c]);
        }
        append(values, rows_of(both, 64, h * 80 + 32, 48));
      }
      o.moved(target + "attn_k_b.weight", keys, "{32, 64, 3}");
      o.moved(target + "attn_v_b.weight", values, "{64, 48, 3}");
      o.as_is(target + "attn_output.weight", at + "o_proj.weight", "{144, 64}");
      check_deep_feed_forward(o, target, block, n == 0);
    }
    if (drafts != 0) check_deep_draft(o);
    o.floats("output_norm.weight", "model.norm.weight", "{64}");
    check_ends(o, "model.");
    EXPECT_EQ(o.m.mapping.kept_only.size(), lite ? 30u : 3u) << "inv_freq, and the draft block without a place";
  }
}

TEST(HfMapping, Glm4Moe) {
  Opened o(made_glm4moe());
  for (int n = 0; n < 3; ++n) {
    const std::string target = fmt::format("blk.{}.", n), block = fmt::format("model.layers.{}.", n);
    o.floats(target + "attn_norm.weight", block + "input_layernorm.weight", "{64}");
    o.floats(target + "post_attention_norm.weight", block + "post_attention_layernorm.weight", "{64}");
    check_plain_attention(o, target, block);
    o.floats(target + "attn_q.bias", block + "self_attn.q_proj.bias", "{64}");
    o.floats(target + "attn_k.bias", block + "self_attn.k_proj.bias", "{32}");
    o.floats(target + "attn_v.bias", block + "self_attn.v_proj.bias", "{32}");
    check_deep_feed_forward(o, target, block, n == 0);
  }
  check_deep_draft(o);
  o.floats("output_norm.weight", "model.norm.weight", "{64}");
  check_ends(o, "model.");
}

TEST(HfMapping, GptOss) {
  for (const bool mxfp4 : {true, false}) {
    Opened o(made_gpt_oss(mxfp4));
    const std::string block = "model.layers.0.", experts = block + "mlp.experts.";
    o.floats("blk.0.attn_norm.weight", block + "input_layernorm.weight", "{64}");
    o.floats("blk.0.post_attention_norm.weight", block + "post_attention_layernorm.weight", "{64}");
    check_plain_attention(o, "blk.0.", block);
    o.floats("blk.0.attn_q.bias", block + "self_attn.q_proj.bias", "{64}");
    o.floats("blk.0.attn_k.bias", block + "self_attn.k_proj.bias", "{32}");
    o.floats("blk.0.attn_v.bias", block + "self_attn.v_proj.bias", "{32}");
    o.floats("blk.0.attn_output.bias", block + "self_attn.o_proj.bias", "{64}");
    o.floats("blk.0.attn_sinks.weight", block + "self_attn.sinks", "{2}");
    o.as_is("blk.0.ffn_gate_inp.weight", block + "mlp.router.weight", "{64, 3}");
    o.floats("blk.0.ffn_gate_inp.bias", block + "mlp.router.bias", "{3}");
    const Floats &both = o.m.weight(experts + "gate_up_proj"), &down = o.m.weight(experts + "down_proj");
    const Floats& bias = o.m.weight(experts + "gate_up_proj_bias");
    Floats gate, up, gate_bias, up_bias, down_rows;
    for (uint64_t e = 0; e < 3; ++e) {
      for (uint64_t r = 0; r < 96; ++r) {
        for (uint64_t i = 0; i < 64; ++i) {
          const auto at = [&](uint64_t row) { return mxfp4 ? (e * 192 + row) * 64 + i : (e * 64 + i) * 192 + row; };
          gate.push_back(both[at(2 * r)]);
          up.push_back(both[at(2 * r + 1)]);
        }
        gate_bias.push_back(bias[e * 192 + 2 * r]);
        up_bias.push_back(bias[e * 192 + 2 * r + 1]);
      }
      for (uint64_t r = 0; r < 64; ++r) {
        for (uint64_t i = 0; i < 96; ++i)
          down_rows.push_back(down[mxfp4 ? (e * 64 + r) * 96 + i : (e * 96 + i) * 64 + r]);
      }
    }
    const DType type = mxfp4 ? DType::kMXFP4 : DType::kBF16;
    o.moved("blk.0.ffn_gate_exps.weight", gate, "{64, 96, 3}", type);
    o.moved("blk.0.ffn_up_exps.weight", up, "{64, 96, 3}", type);
    o.moved("blk.0.ffn_down_exps.weight", down_rows, "{96, 64, 3}", type);
    o.derived("blk.0.ffn_gate_exps.bias", gate_bias, "{96, 3}");
    o.derived("blk.0.ffn_up_exps.bias", up_bias, "{96, 3}");
    o.floats("blk.0.ffn_down_exps.bias", experts + "down_proj_bias", "{64, 3}");
    o.floats("output_norm.weight", "model.norm.weight", "{64}");
    check_ends(o, "model.");
  }
}

TEST(HfMapping, KeepsEveryPlainType) {
  MadeModel model = made_qwen3moe();
  for (const auto& [part, type] : {std::pair{"q", HfType::kF16}, {"k", HfType::kF32}, {"v", HfType::kF8E4M3}}) {
    const std::string name = fmt::format("model.layers.0.self_attn.{}_proj.weight", part);
    model.checkpoint.remove(name);
    model.checkpoint.add(name, {*part == 'q' ? 64u : 32u, 64}, type);
  }
  Opened o(model);
  o.unchecked.clear();
  o.as_is("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", "{64, 64}", DType::kF16);
  o.as_is("blk.0.attn_k.weight", "model.layers.0.self_attn.k_proj.weight", "{64, 32}", DType::kF32);
  o.as_is("blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight", "{64, 32}", DType::kF8_E4M3);
  EXPECT_EQ(o.m.derived("blk.0.attn_v.scale"), nullptr);
}

}  // namespace
}  // namespace tierpack::repack

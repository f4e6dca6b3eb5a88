// Small safetensors checkpoints of every architecture, and their configurations.
#pragma once

#include <string>

#include "formats/model_config.h"
#include "tests/support/made_checkpoint.h"

namespace tierpack::testing_support {

inline ModelConfig moe_config(Architecture architecture, uint32_t layers) {
  ModelConfig c;
  c.architecture = architecture;
  c.vocab = 6;
  c.hidden = 64;
  c.layers = layers;
  c.heads = 2;
  c.kv_heads = 1;
  c.head_dim = 32;
  c.experts = 3;
  c.experts_used = 2;
  c.expert_ff = 96;
  return c;
}

// self_attn of plain or gated attention, with its norms of heads.
inline void add_attention(MadeCheckpoint& made, const std::string& block, const ModelConfig& c, uint64_t gates) {
  const uint64_t queries = uint64_t{c.heads} * c.head_dim, keys = uint64_t{c.kv_heads} * c.head_dim;
  made.add(block + "self_attn.q_proj.weight", {queries * gates, c.hidden})
      .add(block + "self_attn.k_proj.weight", {keys, c.hidden})
      .add(block + "self_attn.v_proj.weight", {keys, c.hidden})
      .add(block + "self_attn.o_proj.weight", {c.hidden, queries});
}
inline void add_head_norms(MadeCheckpoint& made, const std::string& block, const ModelConfig& c) {
  made.add(block + "self_attn.q_norm.weight", {c.head_dim}).add(block + "self_attn.k_norm.weight", {c.head_dim});
}
inline void add_norms(MadeCheckpoint& made, const std::string& block, const ModelConfig& c) {
  made.add(block + "input_layernorm.weight", {c.hidden}).add(block + "post_attention_layernorm.weight", {c.hidden});
}
inline void add_separate_experts(MadeCheckpoint& made, const std::string& block, const ModelConfig& c) {
  made.add(block + "mlp.gate.weight", {c.experts, c.hidden});
  for (uint32_t e = 0; e < c.experts; ++e) {
    const std::string expert = fmt::format("{}mlp.experts.{}.", block, e);
    made.add(expert + "gate_proj.weight", {c.expert_ff, c.hidden})
        .add(expert + "up_proj.weight", {c.expert_ff, c.hidden})
        .add(expert + "down_proj.weight", {c.hidden, c.expert_ff});
  }
}
inline void add_fused_experts(MadeCheckpoint& made, const std::string& block, const ModelConfig& c) {
  made.add(block + "mlp.gate.weight", {c.experts, c.hidden})
      .add(block + "mlp.experts.gate_up_proj", {c.experts, uint64_t{2} * c.expert_ff, c.hidden})
      .add(block + "mlp.experts.down_proj", {c.experts, c.hidden, c.expert_ff});
}
inline void add_mlp(MadeCheckpoint& made, const std::string& mlp, uint64_t hidden, uint64_t width) {
  made.add(mlp + "gate_proj.weight", {width, hidden})
      .add(mlp + "up_proj.weight", {width, hidden})
      .add(mlp + "down_proj.weight", {hidden, width});
}
inline void add_shared_expert(MadeCheckpoint& made, const std::string& block, const ModelConfig& c) {
  made.add(block + "mlp.shared_expert_gate.weight", {1, c.hidden});
  add_mlp(made, block + "mlp.shared_expert.", c.hidden, c.shared_ff);
}
inline void add_ends(MadeCheckpoint& made, const std::string& model, const ModelConfig& c) {
  made.add(model + "embed_tokens.weight", {c.vocab, c.hidden}).add("lm_head.weight", {c.vocab, c.hidden});
  if (c.architecture != Architecture::kQwen4Exp) made.add(model + "norm.weight", {c.hidden});
}

struct MadeModel {
  ModelConfig config;
  MadeCheckpoint checkpoint;
};

inline MadeModel made_qwen3moe(bool fused = false) {
  MadeModel m{moe_config(Architecture::kQwen3Moe, 2), {}};
  for (const std::string block : {"model.layers.0.", "model.layers.1."}) {
    add_norms(m.checkpoint, block, m.config);
    add_attention(m.checkpoint, block, m.config, 1);
    add_head_norms(m.checkpoint, block, m.config);
    (fused ? add_fused_experts : add_separate_experts)(m.checkpoint, block, m.config);
  }
  add_ends(m.checkpoint, "model.", m.config);
  return m;
}

// Two K heads and six V heads of 64.
inline ModelConfig delta_config(Architecture architecture, uint32_t layers) {
  ModelConfig c = moe_config(architecture, layers);
  c.shared_ff = 32;
  c.gdn = {4, 64, 2, 6};
  c.recurrent.assign(layers, true);
  return c;
}
inline void add_delta_net(MadeCheckpoint& made, const std::string& block, const ModelConfig& c) {
  const std::string at = block + "linear_attn.";
  const uint64_t head = c.gdn.head_dim, keys = c.gdn.k_heads * head, values = c.gdn.v_heads * head,
                 heads = c.gdn.v_heads;
  if (c.architecture == Architecture::kQwen3Next) {
    made.add(at + "in_proj_qkvz.weight", {2 * keys + 2 * values, c.hidden});
    made.add(at + "in_proj_ba.weight", {2 * heads, c.hidden});
  } else {
    made.add(at + "in_proj_qkv.weight", {2 * keys + values, c.hidden});
    made.add(at + "in_proj_z.weight", {values, c.hidden});
    made.add(at + "in_proj_b.weight", {heads, c.hidden});
    made.add(at + "in_proj_a.weight", {heads, c.hidden});
  }
  made.add(at + "conv1d.weight", {2 * keys + values, 1, c.gdn.conv})
      .add(at + "dt_bias", {heads})
      .add(at + "A_log", {heads}, HfType::kF32)
      .add(at + "norm.weight", {head}, HfType::kF32)
      .add(at + "out_proj.weight", {c.hidden, values});
}

// Block 0 a delta net, block 1 attention; a draft block whether the configuration counts it or not.
inline MadeModel made_qwen3next(Architecture architecture, uint32_t mtp_layers) {
  MadeModel m{delta_config(architecture, 2), {}};
  ModelConfig& c = m.config;
  c.mtp_layers = mtp_layers;
  c.recurrent = {true, false};
  c.recurrent.resize(c.blocks());
  const bool next = architecture == Architecture::kQwen3Next;
  const std::string model = next ? "model." : "model.language_model.";
  for (const std::string& block : {model + "layers.0.", model + "layers.1.", std::string("mtp.layers.0.")}) {
    add_norms(m.checkpoint, block, c);
    if (block.ends_with("s.0.") && block[1] == 'o') {
      add_delta_net(m.checkpoint, block, c);
    } else {
      add_attention(m.checkpoint, block, c, 2);
      add_head_norms(m.checkpoint, block, c);
    }
    (next ? add_separate_experts : add_fused_experts)(m.checkpoint, block, c);
    add_shared_expert(m.checkpoint, block, c);
  }
  m.checkpoint.add("mtp.fc.weight", {c.hidden, uint64_t{2} * c.hidden})
      .add("mtp.pre_fc_norm_embedding.weight", {c.hidden})
      .add("mtp.pre_fc_norm_hidden.weight", {c.hidden})
      .add("mtp.norm.weight", {c.hidden});
  if (!next) m.checkpoint.add("model.visual.patch_embed.proj.weight", {4, 3, 2, 2, 2});
  add_ends(m.checkpoint, model, c);
  return m;
}

inline void add_mixer(MadeCheckpoint& made, const std::string& at, const ModelConfig& c, bool inject) {
  const uint64_t wide = uint64_t{c.hc.streams} * c.hidden;
  made.add(at + "hc_norm.weight", {wide})
      .add(at + "input_mix_weight_down.weight", {c.hc.low_rank, wide})
      .add(at + "input_mix_weight_up.weight", {wide, c.hc.low_rank});
  if (inject) made.add(at + "block_inject_weight.weight", {c.hc.streams, wide});
}

// Block 0 a delta net with the n-gram embedding, block 1 attention with an indexer, a draft block without one.
inline MadeModel made_qwen4exp() {
  MadeModel m{delta_config(Architecture::kQwen4Exp, 2), {}};
  ModelConfig& c = m.config;
  c.mtp_layers = 1;
  c.recurrent = {true, false, false};
  c.hc = {2, 32};
  c.indexer = {3, 16, 8};
  c.ple.layer = 0;
  c.ple.conv = 4;
  c.ple.head_dim = 16;
  c.ple.table_rows = 14;
  const std::string model = "model.language_model.";
  const uint64_t wide = uint64_t{c.hc.streams} * c.hidden;
  for (const std::string& block : {model + "layers.0.", model + "layers.1.", std::string("mtp.layers.0.")}) {
    add_mixer(m.checkpoint, block + "attn_hyper_connection.", c, true);
    add_mixer(m.checkpoint, block + "mlp_hyper_connection.", c, true);
    if (block == model + "layers.0.") {
      add_delta_net(m.checkpoint, block, c);
      const std::string ple = block + "ple.", table = ple + "ple_embedding.";
      m.checkpoint.add(ple + "key_proj.weight", {wide, c.hidden}).add(ple + "value_proj.weight", {c.hidden, c.hidden});
      for (const char* norm : {"key", "query", "conv"})
        m.checkpoint.add(fmt::format("{}norm_{}.weight", ple, norm), {wide});
      m.checkpoint.add(ple + "conv1d.weight", {wide, 1, c.ple.conv});
      for (int i = 0; i < 3; ++i) m.checkpoint.add(fmt::format("{}ngram_embedding.shard_{}.weight", table, i), {5, 16});
      m.checkpoint.add(table + "layer_multipliers", {3}, HfType::kI64);
    } else {
      add_attention(m.checkpoint, block, c, 2);
      add_head_norms(m.checkpoint, block, c);
      if (block == model + "layers.1.") {
        m.checkpoint.add(block + "self_attn.indexer.index_qk_proj.weight", {4 * 16, c.hidden})
            .add(block + "self_attn.indexer.q_layernorm.weight", {16})
            .add(block + "self_attn.indexer.k_layernorm.weight", {16});
      }
    }
    add_fused_experts(m.checkpoint, block, c);
    add_shared_expert(m.checkpoint, block, c);
  }
  add_mixer(m.checkpoint, model + "hyper_connection_mixer.", c, false);
  add_mixer(m.checkpoint, "mtp.hyper_connection_mixer.", c, false);
  m.checkpoint.add("mtp.fc_embedding.weight", {c.hidden, c.hidden})
      .add("mtp.fc_hidden.weight", {c.hidden, c.hidden})
      .add("mtp.pre_fc_norm_embedding.weight", {c.hidden})
      .add("mtp.pre_fc_norm_hidden.weight", {wide});
  add_ends(m.checkpoint, model, c);
  return m;
}

// The feed-forward part of deepseek2 and glm4moe: block 0 dense, the others with experts; the last one a draft block.
inline void add_deep_feed_forward(MadeModel& m, const std::string& block, bool dense) {
  if (dense) return add_mlp(m.checkpoint, block + "mlp.", m.config.hidden, 160);
  add_separate_experts(m.checkpoint, block, m.config);
  m.checkpoint.add(block + "mlp.gate.e_score_correction_bias", {m.config.experts}, HfType::kF32);
  add_mlp(m.checkpoint, block + "mlp.shared_experts.", m.config.hidden, 32);
}
inline void add_deep_draft(MadeModel& m, const std::string& block) {
  const uint64_t hidden = m.config.hidden;
  m.checkpoint.add(block + "eh_proj.weight", {hidden, 2 * hidden})
      .add(block + "enorm.weight", {hidden})
      .add(block + "hnorm.weight", {hidden})
      .add(block + "shared_head.norm.weight", {hidden})
      .add(block + "shared_head.head.weight", {m.config.vocab, hidden})
      .add(block + "embed_tokens.weight", {m.config.vocab, hidden});
}

// Heads of 32 + 16 with values of 48; latent vectors of 64.
inline MadeModel made_deepseek2(bool lite, uint32_t mtp_layers) {
  MadeModel m{moe_config(Architecture::kDeepseek2, 2), {}};
  ModelConfig& c = m.config;
  c.mtp_layers = mtp_layers;
  c.heads = 3;
  for (uint32_t n = 0; n < 3; ++n) {
    const std::string block = fmt::format("model.layers.{}.", n), at = block + "self_attn.";
    add_norms(m.checkpoint, block, c);
    if (lite) {
      m.checkpoint.add(at + "q_proj.weight", {3 * 48, c.hidden});
    } else {
      m.checkpoint.add(at + "q_a_proj.weight", {96, c.hidden})
          .add(at + "q_a_layernorm.weight", {96})
          .add(at + "q_b_proj.weight", {3 * 48, 96});
    }
    m.checkpoint.add(at + "kv_a_proj_with_mqa.weight", {64 + 16, c.hidden})
        .add(at + "kv_a_layernorm.weight", {64})
        .add(at + "kv_b_proj.weight", {3 * (32 + 48), 64})
        .add(at + "o_proj.weight", {c.hidden, 3 * 48})
        .add(at + "rotary_emb.inv_freq", {8}, HfType::kF32);
    add_deep_feed_forward(m, block, n == 0);
    if (n == 2) add_deep_draft(m, block);
  }
  add_ends(m.checkpoint, "model.", c);
  return m;
}

inline MadeModel made_glm4moe() {
  MadeModel m{moe_config(Architecture::kGlm4Moe, 2), {}};
  ModelConfig& c = m.config;
  c.mtp_layers = 1;
  for (uint32_t n = 0; n < 3; ++n) {
    const std::string block = fmt::format("model.layers.{}.", n);
    add_norms(m.checkpoint, block, c);
    add_attention(m.checkpoint, block, c, 1);
    for (const char* part : {"q", "k", "v"}) {
      m.checkpoint.add(fmt::format("{}self_attn.{}_proj.bias", block, part), {*part == 'q' ? 64u : 32u});
    }
    add_deep_feed_forward(m, block, n == 0);
    if (n == 2) add_deep_draft(m, block);
  }
  add_ends(m.checkpoint, "model.", c);
  return m;
}

inline MadeModel made_gpt_oss(bool mxfp4) {
  MadeModel m{moe_config(Architecture::kGptOss, 1), {}};
  const ModelConfig& c = m.config;
  const std::string block = "model.layers.0.", experts = block + "mlp.experts.";
  const uint64_t n = c.experts, ff = c.expert_ff, hidden = c.hidden;
  add_norms(m.checkpoint, block, c);
  add_attention(m.checkpoint, block, c, 1);
  m.checkpoint.add(block + "self_attn.q_proj.bias", {64})
      .add(block + "self_attn.k_proj.bias", {32})
      .add(block + "self_attn.v_proj.bias", {32})
      .add(block + "self_attn.o_proj.bias", {hidden})
      .add(block + "self_attn.sinks", {c.heads})
      .add(block + "mlp.router.weight", {n, hidden})
      .add(block + "mlp.router.bias", {n})
      .add(experts + "gate_up_proj_bias", {n, 2 * ff})
      .add(experts + "down_proj_bias", {n, hidden});
  if (mxfp4) {
    m.checkpoint.add(experts + "gate_up_proj_blocks", {n, 2 * ff, hidden / 32, 16}, HfType::kU8)
        .positive(experts + "gate_up_proj_scales", {n, 2 * ff, hidden / 32}, HfType::kU8)
        .add(experts + "down_proj_blocks", {n, hidden, ff / 32, 16}, HfType::kU8)
        .positive(experts + "down_proj_scales", {n, hidden, ff / 32}, HfType::kU8);
  } else {
    m.checkpoint.add(experts + "gate_up_proj", {n, hidden, 2 * ff}).add(experts + "down_proj", {n, ff, hidden});
  }
  add_ends(m.checkpoint, "model.", c);
  return m;
}

}  // namespace tierpack::testing_support

#include "tests/runtime/model/random_model.h"

#include <algorithm>
#include <cmath>

namespace tierpack::testing_support {

namespace {

constexpr uint32_t kVocab = 50;

void add_common(RandomModel& m, const std::string& architecture, uint32_t hidden, uint32_t blocks) {
  const std::string a = architecture + ".";
  m.gguf.string("general.architecture", architecture).string("general.name", "random");
  m.gguf.u32(a + "block_count", blocks).u32(a + "context_length", 512).u32(a + "embedding_length", hidden);
  m.gguf.u32(a + "vocab_size", kVocab).f32(a + "attention.layer_norm_rms_epsilon", 1e-6f);
  m.gguf.string("tokenizer.ggml.model", "no_vocab");
  m.add("token_embd.weight", {hidden, kVocab}, 1.0);
  m.add("output.weight", {hidden, kVocab}, 0.3);
}

void add_experts(RandomModel& m, const std::string& p, uint32_t hidden, uint32_t ff, uint32_t experts) {
  m.add(p + "ffn_gate_inp.weight", {hidden, experts}, 0.4);
  m.add(p + "ffn_gate_exps.weight", {hidden, ff, experts}, 0.3);
  m.add(p + "ffn_up_exps.weight", {hidden, ff, experts}, 0.3);
  m.add(p + "ffn_down_exps.weight", {ff, hidden, experts}, 0.3);
}

}  // namespace

double RandomModel::uniform() {
  state_ += 0x9E3779B97F4A7C15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (static_cast<double>((z ^ (z >> 31)) >> 11) + 0.5) / static_cast<double>(uint64_t{1} << 53);
}

void RandomModel::add(const std::string& name, std::vector<uint64_t> shape, double deviation, double mean) {
  uint64_t n = 1;
  for (const uint64_t d : shape) n *= d;
  std::vector<float> values(n);
  for (float& v : values) {
    const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform());
    v = static_cast<float>(mean + deviation * normal);
  }
  gguf.add_f32(name, std::move(shape), values);
  tensors[name] = std::move(values);
}

void RandomModel::remove(const std::string& name) {
  std::erase_if(gguf.tensors, [&](const GgufBuilder::Tensor& t) { return t.name == name; });
  tensors.erase(name);
}

RandomModel random_qwen3moe(const Qwen3MoeSizes& sizes) {
  const auto [hidden, heads, kv_heads, head_dim, experts, ff, layers] = sizes;
  RandomModel m;
  add_common(m, "qwen3moe", hidden, layers);
  m.gguf.u32("qwen3moe.attention.head_count", heads).u32("qwen3moe.attention.head_count_kv", kv_heads);
  m.gguf.u32("qwen3moe.attention.key_length", head_dim).u32("qwen3moe.attention.value_length", head_dim);
  m.gguf.f32("qwen3moe.rope.freq_base", 10000.0f);
  m.gguf.u32("qwen3moe.expert_count", experts).u32("qwen3moe.expert_used_count", 3);
  m.gguf.u32("qwen3moe.expert_feed_forward_length", ff);
  m.add("output_norm.weight", {hidden}, 0.2, 1);
  for (uint32_t i = 0; i < layers; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    m.add(p + "attn_norm.weight", {hidden}, 0.2, 1);
    m.add(p + "ffn_norm.weight", {hidden}, 0.2, 1);
    m.add(p + "attn_q.weight", {hidden, heads * head_dim}, 0.3);
    m.add(p + "attn_k.weight", {hidden, kv_heads * head_dim}, 0.3);
    m.add(p + "attn_v.weight", {hidden, kv_heads * head_dim}, 0.3);
    m.add(p + "attn_output.weight", {heads * head_dim, hidden}, 0.3);
    m.add(p + "attn_q_norm.weight", {head_dim}, 0.2, 1);
    m.add(p + "attn_k_norm.weight", {head_dim}, 0.2, 1);
    add_experts(m, p, hidden, ff, experts);
  }
  return m;
}

RandomModel random_qwen4exp() {
  constexpr uint32_t hidden = 40, streams = 3, low_rank = 14, layers = 4, wide = streams * hidden;
  constexpr uint32_t heads = 4, kv_heads = 2, head_dim = 12, rotary = 8;
  constexpr uint32_t index_heads = 3, index_dim = 10, experts = 9, ff = 24, shared_ff = 20;
  constexpr uint32_t gdn_dim = 6, k_heads = 2, v_heads = 6, channels = (2 * k_heads + v_heads) * gdn_dim, conv = 4;
  constexpr uint32_t ple_dim = 10, ple_conv = 3;
  RandomModel m;
  const std::string a = "qwen4exp.";
  add_common(m, "qwen4exp", hidden, layers + 1);
  m.gguf.u32(a + "nextn_predict_layers", 1);
  m.gguf.u32(a + "attention.head_count", heads).u32(a + "attention.head_count_kv", kv_heads);
  m.gguf.u32(a + "attention.key_length", head_dim).u32(a + "attention.value_length", head_dim);
  m.gguf.u32(a + "rope.dimension_count", rotary).f32(a + "rope.freq_base", 10000.0f);
  m.gguf.u32(a + "expert_count", experts).u32(a + "expert_used_count", 3);
  m.gguf.u32(a + "expert_feed_forward_length", ff).u32(a + "expert_shared_feed_forward_length", shared_ff);
  m.gguf.u32(a + "ssm.conv_kernel", conv).u32(a + "ssm.state_size", gdn_dim).u32(a + "ssm.group_count", k_heads);
  m.gguf.u32(a + "ssm.time_step_rank", v_heads).u32(a + "ssm.inner_size", v_heads * gdn_dim);
  m.gguf.u32(a + "full_attention_interval", 2);
  m.gguf.u32(a + "hyper_connection.count", streams).u32(a + "hyper_connection.low_rank", low_rank);
  m.gguf.u32(a + "attention.indexer.head_count", index_heads).u32(a + "attention.indexer.key_length", index_dim);
  m.gguf.u32(a + "attention.indexer.top_k", 12);
  m.gguf.u32s(a + "attention.compress_ratios", {0, 4, 0, 3, 0});
  m.gguf.u32s(a + "ple.layers", {0}).u32(a + "ple.ngram_size", 3).u32(a + "ple.heads_per_ngram", 2);
  m.gguf.u32(a + "ple.conv_kernel", ple_conv).u32(a + "ple.eos_token_id", 49);
  m.gguf.u32(a + "embedding_length_per_layer_input", ple_dim);
  m.gguf.u64s(a + "ple.layer_multipliers", {23703573157769u, 20109073645365u, 8052911324071u});
  m.gguf.u64s(a + "ple.head_offsets", {0, 11, 24, 41}).u64s(a + "ple.head_vocab_sizes", {11, 13, 17, 19});

  const auto mixer = [&](const std::string& p, bool inject) {
    m.add(p + "_norm.weight", {hidden, streams}, 0.2, 1);
    m.add(p + "_down.weight", {wide, low_rank}, 0.2);
    m.add(p + "_up.weight", {low_rank, wide}, 0.4);
    if (inject) m.add(p + "_inject.weight", {wide, streams}, 0.2);
  };
  const auto block = [&](uint32_t i, bool recurrent) {
    const std::string p = "blk." + std::to_string(i) + ".";
    mixer(p + "hc_attn", true);
    mixer(p + "hc_ffn", true);
    if (recurrent) {
      m.add(p + "attn_qkv.weight", {hidden, channels}, 0.3);
      m.add(p + "attn_gate.weight", {hidden, v_heads * gdn_dim}, 0.3);
      m.add(p + "ssm_conv1d.weight", {conv, channels}, 0.5);
      m.add(p + "ssm_dt.bias", {v_heads}, 1.0, -2);
      m.add(p + "ssm_a", {v_heads}, 0.2, -1);
      m.add(p + "ssm_beta.weight", {hidden, v_heads}, 0.3);
      m.add(p + "ssm_alpha.weight", {hidden, v_heads}, 0.3);
      m.add(p + "ssm_norm.weight", {gdn_dim}, 0.2, 1);
      m.add(p + "ssm_out.weight", {v_heads * gdn_dim, hidden}, 0.3);
    } else {
      m.add(p + "attn_q.weight", {hidden, 2 * heads * head_dim}, 0.3);
      m.add(p + "attn_k.weight", {hidden, kv_heads * head_dim}, 0.3);
      m.add(p + "attn_v.weight", {hidden, kv_heads * head_dim}, 0.3);
      m.add(p + "attn_output.weight", {heads * head_dim, hidden}, 0.3);
      m.add(p + "attn_q_norm.weight", {head_dim}, 0.2, 1);
      m.add(p + "attn_k_norm.weight", {head_dim}, 0.2, 1);
      m.add(p + "indexer.q_proj.weight", {hidden, index_heads * index_dim}, 0.3);
      m.add(p + "indexer.k_proj.weight", {hidden, index_dim}, 0.3);
      m.add(p + "indexer.q_norm.weight", {index_dim}, 0.2, 1);
      m.add(p + "indexer.k_norm.weight", {index_dim}, 0.2, 1);
    }
    add_experts(m, p, hidden, ff, experts);
    m.add(p + "ffn_gate_inp_shexp.weight", {hidden}, 0.3);
    m.add(p + "ffn_gate_shexp.weight", {hidden, shared_ff}, 0.3);
    m.add(p + "ffn_up_shexp.weight", {hidden, shared_ff}, 0.3);
    m.add(p + "ffn_down_shexp.weight", {shared_ff, hidden}, 0.3);
  };
  mixer("output_hc", false);
  for (uint32_t i = 0; i < layers; ++i) block(i, i % 2 == 0);
  m.add("blk.0.ple_key.weight", {hidden, wide}, 0.3);
  m.add("blk.0.ple_value.weight", {hidden, hidden}, 0.3);
  for (const char* which : {"key", "query", "conv"}) {
    m.add("blk.0.ple_norm_" + std::string(which) + ".weight", {wide}, 0.2, 1);
  }
  m.add("blk.0.ple_conv1d.weight", {ple_conv, wide}, 0.5);
  m.add("per_layer_token_embd.weight", {ple_dim, 60}, 1.0);

  block(layers, false);
  const std::string p = "blk." + std::to_string(layers) + ".nextn.";
  m.add(p + "enorm.weight", {hidden}, 0.2, 1);
  m.add(p + "hnorm.weight", {wide}, 0.2, 1);
  m.add(p + "eh_proj.weight", {2 * hidden, hidden}, 0.3);
  mixer(p + "hc_head", false);
  return m;
}

}  // namespace tierpack::testing_support

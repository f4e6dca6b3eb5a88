// The texts of small Hugging Face checkpoints, one for each architecture, for tests of what is read from them. The
// configurations have the numbers of published models.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/hf_metadata.h"

namespace tierpack::testing_support {

inline std::optional<std::vector<int64_t>> no_integers(std::string_view) { return std::nullopt; }

// {"model_type": ...} of Qwen3-235B, Qwen3-Next-80B, Qwen3.5-35B, DeepSeek V3 and V2-Lite, gpt-oss-120b, GLM-4.5.
inline std::string hf_config(std::string_view model_type) {
  if (model_type == "qwen3_moe") {
    return R"({"model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 4096, "num_hidden_layers": 94,
      "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
      "moe_intermediate_size": 1536, "intermediate_size": 12288, "norm_topk_prob": true, "mlp_only_layers": [],
      "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "rope_scaling": null, "max_position_embeddings": 40960})";
  }
  if (model_type == "qwen3_next") {
    return R"({"model_type": "qwen3_next", "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 48,
      "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "partial_rotary_factor": 0.25,
      "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512, "norm_topk_prob": true,
      "shared_expert_intermediate_size": 512, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
      "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
      "full_attention_interval": 4, "rms_norm_eps": 1e-06, "rope_theta": 10000000, "max_position_embeddings": 262144})";
  }
  if (model_type == "qwen3_5_moe") {
    return R"({"model_type": "qwen3_5_moe", "image_token_id": 5, "text_config": {"model_type": "qwen3_5_moe_text",
      "vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16,
      "num_key_value_heads": 2, "head_dim": 256, "num_experts": 256, "num_experts_per_tok": 8,
      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "linear_conv_kernel_dim": 4,
      "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
      "linear_num_value_heads": 32, "rms_norm_eps": 1e-06, "mtp_num_hidden_layers": 1,
      "max_position_embeddings": 262144, "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
      "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25}}})";
  }
  if (model_type == "deepseek_v3") {
    return R"({"model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168, "num_hidden_layers": 61,
      "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432,
      "first_k_dense_replace": 3, "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
      "n_shared_experts": 1, "n_group": 8, "topk_group": 4, "scoring_func": "sigmoid", "norm_topk_prob": true,
      "routed_scaling_factor": 2.5, "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "rms_norm_eps": 1e-06,
      "rope_theta": 10000, "max_position_embeddings": 163840, "rope_scaling": {"type": "yarn", "factor": 40,
      "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}})";
  }
  if (model_type == "deepseek_v2") {
    return R"({"model_type": "deepseek_v2", "vocab_size": 102400, "hidden_size": 2048, "num_hidden_layers": 27,
      "num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": null, "kv_lora_rank": 512,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 10944,
      "first_k_dense_replace": 1, "n_routed_experts": 64, "num_experts_per_tok": 6, "moe_intermediate_size": 1408,
      "n_shared_experts": 2, "n_group": 1, "topk_group": 1, "scoring_func": "softmax", "norm_topk_prob": false,
      "routed_scaling_factor": 1.0, "rms_norm_eps": 1e-06, "rope_theta": 10000, "max_position_embeddings": 163840,
      "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
      "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707}})";
  }
  if (model_type == "gpt_oss") {
    return R"({"model_type": "gpt_oss", "vocab_size": 201088, "hidden_size": 2880, "num_hidden_layers": 36,
      "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880,
      "num_local_experts": 128, "num_experts_per_tok": 4, "sliding_window": 128, "rms_norm_eps": 1e-05,
      "rope_theta": 150000, "max_position_embeddings": 131072, "eos_token_id": 0, "rope_scaling": {"rope_type": "yarn",
      "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096}})";
  }
  return R"({"model_type": "glm4_moe", "vocab_size": 151552, "hidden_size": 5120, "num_hidden_layers": 92,
      "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "partial_rotary_factor": 0.5,
      "intermediate_size": 12288, "first_k_dense_replace": 3, "n_routed_experts": 160, "num_experts_per_tok": 8,
      "moe_intermediate_size": 1536, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
      "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1, "rms_norm_eps": 1e-05, "rope_theta": 1000000,
      "max_position_embeddings": 131072})";
}

// Byte-level BPE with six tokens, qwen2's pre-tokenizer, and one added token.
inline std::string hf_tokenizer() {
  return R"({"added_tokens": [{"id": 6, "content": "<|endoftext|>", "special": true}], "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex":
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "Ġ": 5}, "merges": ["a b", ["ab", "c"]]}})";
}

inline HfCheckpointTexts small_texts(std::string_view model_type) {
  HfCheckpointTexts texts;
  texts.config = hf_config(model_type);
  texts.tokenizer = hf_tokenizer();
  texts.tokenizer_config = R"({"eos_token": "<|endoftext|>", "add_bos_token": false})";
  texts.source = "small";
  return texts;
}

// `object` with the members of `patch` put in or replaced; null removes one.
inline std::string patched(const std::string& object, const std::string& patch) {
  Json json = Json::parse(object);
  json.merge_patch(Json::parse(patch));
  return json.dump();
}

inline std::string config_with(const HfCheckpointTexts& texts, const std::string& patch) {
  return patched(texts.config, patch);
}

}  // namespace tierpack::testing_support

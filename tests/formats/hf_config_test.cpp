// Hyper-parameters of every model_type, and configurations that cannot be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/hf_metadata.h"
#include "formats/model_config.h"
#include "tests/support/errors.h"
#include "tests/support/hf_texts.h"

namespace tierpack {
namespace {

using testing::HasSubstr;
using testing_support::config_with;
using testing_support::no_integers;
using testing_support::small_texts;
using testing_support::thrown_by;

Metadata read(const char* model_type, bool has_mtp = false) {
  return metadata_from_hf(small_texts(model_type), no_integers, has_mtp);
}

TEST(HfConfig, Qwen3Moe) {
  const Metadata m = read("qwen3_moe");
  EXPECT_EQ(m.string("general.architecture"), "qwen3moe");
  EXPECT_EQ(m.u64("qwen3moe.block_count"), 94u);
  EXPECT_EQ(m.u64("qwen3moe.context_length"), 40960u);
  EXPECT_EQ(m.u64("qwen3moe.embedding_length"), 4096u);
  EXPECT_EQ(m.u64("qwen3moe.feed_forward_length"), 12288u);
  EXPECT_EQ(m.u64("qwen3moe.attention.head_count"), 64u);
  EXPECT_EQ(m.u64("qwen3moe.attention.head_count_kv"), 4u);
  EXPECT_EQ(m.u64("qwen3moe.attention.key_length"), 128u);
  EXPECT_EQ(m.u64("qwen3moe.attention.value_length"), 128u);
  EXPECT_EQ(m.f64("qwen3moe.rope.freq_base"), 1e6);
  EXPECT_EQ(m.u64("qwen3moe.expert_count"), 128u);
  EXPECT_EQ(m.u64("qwen3moe.expert_used_count"), 8u);
  EXPECT_EQ(m.u64("qwen3moe.expert_feed_forward_length"), 1536u);
  EXPECT_FALSE(m.has("qwen3moe.expert_weights_norm"));
  EXPECT_FALSE(m.has("qwen3moe.rope.scaling.type"));
  require_runnable(read_model_config(m), "m");
  EXPECT_EQ(thrown_by([] { read("qwen3_moe", true); }).kind, ErrorKind::kUnsupported);
}

TEST(HfConfig, Qwen3NextAndQwen35) {
  const Metadata next = read("qwen3_next", true);
  EXPECT_EQ(next.u64("qwen3next.block_count"), 49u);
  EXPECT_EQ(next.u64("qwen3next.nextn_predict_layers"), 1u);
  EXPECT_EQ(next.u64("qwen3next.rope.dimension_count"), 64u);
  EXPECT_EQ(next.u64("qwen3next.full_attention_interval"), 4u);
  EXPECT_EQ(next.u64("qwen3next.ssm.inner_size"), 4096u);
  EXPECT_EQ(next.u64("qwen3next.ssm.group_count"), 16u);
  EXPECT_EQ(next.u64("qwen3next.ssm.time_step_rank"), 32u);
  EXPECT_EQ(next.u64("qwen3next.expert_shared_feed_forward_length"), 512u);

  const Metadata m = read("qwen3_5_moe", true);
  EXPECT_EQ(m.string("general.architecture"), "qwen35moe");
  EXPECT_EQ(m.u64("qwen35moe.block_count"), 41u);
  EXPECT_EQ(m.i64_array("qwen35moe.rope.dimension_sections"), (std::vector<int64_t>{11, 11, 10, 0}));
  EXPECT_EQ(m.f64("qwen35moe.rope.freq_base"), 1e7);
  EXPECT_EQ(m.u64("qwen35moe.rope.dimension_count"), 64u);
  const ModelConfig c = read_model_config(m);
  EXPECT_EQ(c.architecture, Architecture::kQwen35Moe);
  EXPECT_EQ(c.layers, 40u);
  EXPECT_TRUE(c.recurrent[0]);
  EXPECT_FALSE(c.recurrent[39]);
  EXPECT_FALSE(c.recurrent[40]);
}

TEST(HfConfig, Deepseek) {
  const Metadata m = read("deepseek_v3", true);
  EXPECT_EQ(m.string("general.architecture"), "deepseek2");
  EXPECT_EQ(m.u64("deepseek2.block_count"), 62u);
  EXPECT_EQ(m.u64("deepseek2.vocab_size"), 129280u);
  EXPECT_EQ(m.u64("deepseek2.attention.head_count_kv"), 1u);
  EXPECT_EQ(m.u64("deepseek2.attention.q_lora_rank"), 1536u);
  EXPECT_EQ(m.u64("deepseek2.attention.kv_lora_rank"), 512u);
  EXPECT_EQ(m.u64("deepseek2.attention.key_length"), 576u);
  EXPECT_EQ(m.u64("deepseek2.attention.value_length"), 512u);
  EXPECT_EQ(m.u64("deepseek2.attention.key_length_mla"), 192u);
  EXPECT_EQ(m.u64("deepseek2.attention.value_length_mla"), 128u);
  EXPECT_EQ(m.u64("deepseek2.rope.dimension_count"), 64u);
  EXPECT_EQ(m.string("deepseek2.rope.scaling.type"), "yarn");
  EXPECT_EQ(m.f64("deepseek2.rope.scaling.factor"), 40);
  EXPECT_EQ(m.u64("deepseek2.rope.scaling.original_context_length"), 4096u);
  EXPECT_NEAR(m.f64("deepseek2.rope.scaling.yarn_log_multiplier"), 0.1, 1e-8);
  EXPECT_EQ(m.u64("deepseek2.leading_dense_block_count"), 3u);
  EXPECT_EQ(m.u64("deepseek2.expert_gating_func"), 2u);
  EXPECT_EQ(m.u64("deepseek2.expert_group_count"), 8u);
  EXPECT_EQ(m.u64("deepseek2.expert_group_used_count"), 4u);
  EXPECT_EQ(m.f64("deepseek2.expert_weights_scale"), 2.5);
  EXPECT_TRUE(m.boolean_or("deepseek2.expert_weights_norm", false));
  const ModelConfig c = read_model_config(m);
  EXPECT_EQ(c.dense_layers, 3u);
  EXPECT_EQ(c.shared_ff, 2048u);

  const Metadata lite = read("deepseek_v2");
  EXPECT_FALSE(lite.has("deepseek2.attention.q_lora_rank"));
  EXPECT_EQ(lite.u64("deepseek2.expert_gating_func"), 1u);
  EXPECT_FALSE(lite.boolean_or("deepseek2.expert_weights_norm", true));
  EXPECT_EQ(lite.u64("deepseek2.expert_shared_count"), 2u);
  EXPECT_NEAR(lite.f64("deepseek2.rope.scaling.yarn_log_multiplier"), 0.0707, 1e-7);
}

TEST(HfConfig, GptOss) {
  const Metadata m = read("gpt_oss");
  EXPECT_EQ(m.string("general.architecture"), "gpt-oss");
  EXPECT_EQ(m.u64("gpt-oss.block_count"), 36u);
  EXPECT_EQ(m.u64("gpt-oss.attention.sliding_window"), 128u);
  EXPECT_EQ(m.u64("gpt-oss.expert_count"), 128u);
  EXPECT_EQ(m.u64("gpt-oss.expert_used_count"), 4u);
  EXPECT_EQ(m.u64("gpt-oss.expert_feed_forward_length"), 2880u);
  EXPECT_EQ(m.string("gpt-oss.rope.scaling.type"), "yarn");
  EXPECT_EQ(m.f64("gpt-oss.rope.scaling.factor"), 32);
  EXPECT_EQ(m.f64("gpt-oss.rope.scaling.yarn_beta_fast"), 32);
  EXPECT_EQ(thrown_by([&] { require_runnable(read_model_config(m), "m"); }).kind, ErrorKind::kUnsupported);
}

TEST(HfConfig, Glm4Moe) {
  const Metadata m = read("glm4_moe", true);
  EXPECT_EQ(m.string("general.architecture"), "glm4moe");
  EXPECT_EQ(m.u64("glm4moe.block_count"), 93u);
  EXPECT_EQ(m.u64("glm4moe.nextn_predict_layers"), 1u);
  EXPECT_EQ(m.u64("glm4moe.rope.dimension_count"), 64u);
  EXPECT_EQ(m.u64("glm4moe.expert_gating_func"), 2u);
  EXPECT_EQ(m.u64("glm4moe.leading_dense_block_count"), 3u);
  EXPECT_EQ(m.u64("glm4moe.expert_shared_count"), 1u);
  EXPECT_EQ(m.f64("glm4moe.expert_weights_scale"), 2.5);
  EXPECT_TRUE(m.boolean_or("glm4moe.expert_weights_norm", false));
}

TEST(HfConfig, KindsOfLayersByList) {
  HfCheckpointTexts texts = small_texts("qwen3_next");
  const auto kinds = [&](const std::vector<int>& full, const char* more = "{}") {
    Json types = Json::array();
    for (int i = 0; i < 6; ++i) {
      types.push_back(std::count(full.begin(), full.end(), i) > 0 ? "full_attention" : "linear_attention");
    }
    Json patch{{"num_hidden_layers", 6}, {"full_attention_interval", nullptr}, {"layer_types", types}};
    patch.merge_patch(Json::parse(more));
    HfCheckpointTexts changed = texts;
    changed.config = config_with(texts, patch.dump());
    return metadata_from_hf(changed, no_integers, true);
  };
  EXPECT_EQ(kinds({2, 5}).u64("qwen3next.full_attention_interval"), 3u);
  EXPECT_EQ(kinds({5}).u64("qwen3next.full_attention_interval"), 6u);
  const Metadata odd = kinds({0, 5});
  EXPECT_FALSE(odd.has("qwen3next.full_attention_interval"));
  EXPECT_EQ(odd.u64_array("qwen3next.attention.recurrent_layers"), (std::vector<uint64_t>{0, 1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(read_model_config(odd).recurrent, (std::vector<bool>{0, 1, 1, 1, 1, 0, 0}));
  for (const char* more : {R"({"full_attention_interval": 4})", R"({"layer_types": ["full_attention"]})",
                           R"({"layer_types": "linear_attention"})", R"({"num_hidden_layers": 7})"}) {
    EXPECT_EQ(thrown_by([&] { kinds({2, 5}, more); }).kind, ErrorKind::kCorrupt) << more;
  }
  const char* const strange = R"({"num_hidden_layers": 1, "layer_types": ["convolution"]})";
  EXPECT_EQ(thrown_by([&] { kinds({2, 5}, strange); }).kind, ErrorKind::kUnsupported);
}

TEST(HfConfig, WhatIsNotKnownIsNamed) {
  HfCheckpointTexts texts = small_texts("qwen3_moe");
  const auto refused = [&](const char* type, const std::string& patch) {
    HfCheckpointTexts changed = small_texts(type);
    changed.config = config_with(changed, patch);
    return thrown_by([&] { metadata_from_hf(changed, no_integers, false); });
  };
  const auto unknown = refused("qwen3_moe", R"({"model_type": "llama\u001b[31m"})");
  EXPECT_EQ(unknown.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(unknown.message, HasSubstr("llama"));
  EXPECT_THAT(unknown.message, HasSubstr("qwen3_moe"));
  EXPECT_EQ(unknown.message.find('\x1b'), std::string::npos);
  EXPECT_EQ(refused("qwen3_moe", R"({"mlp_only_layers": [1]})").kind, ErrorKind::kUnsupported);
  EXPECT_EQ(refused("qwen3_moe", R"({"rope_scaling": {"type": "dynamic", "factor": 2}})").kind, ErrorKind::kUnsupported);
  EXPECT_EQ(refused("deepseek_v3", R"({"scoring_func": "tanh"})").kind, ErrorKind::kUnsupported);
  EXPECT_EQ(refused("deepseek_v3", R"({"moe_layer_freq": 2})").kind, ErrorKind::kUnsupported);
  EXPECT_EQ(refused("qwen3_next", R"({"linear_key_head_dim": 64})").kind, ErrorKind::kUnsupported);
}

TEST(HfConfig, MissingAndImpossibleNumbersAreRefused) {
  for (const char* type : {"qwen3_moe", "qwen3_next", "deepseek_v3", "gpt_oss", "glm4_moe"}) {
    const HfCheckpointTexts texts = small_texts(type);
    for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                            "num_experts_per_tok", "max_position_embeddings", "rms_norm_eps", "rope_theta"}) {
      for (const char* bad : {"null", "0", "-1", "1e300", "18446744073709551615", "\"many\"", "[]", "{}", "true"}) {
        if (std::string_view(key) == "rope_theta" && *bad == '1' && bad[1] == '8') continue;  // large, but a number
        HfCheckpointTexts changed = texts;
        changed.config = config_with(texts, fmt::format(R"({{"{}": {}}})", key, bad));
        const auto thrown = thrown_by([&] { metadata_from_hf(changed, no_integers, false); });
        EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt) << type << " " << key << " " << bad << ": " << thrown.message;
      }
    }
    for (const char* bad : {"", "{", "[]", "null", R"({"model_type": 3})", R"({"model_type": "qwen3_moe", "text_config": 1})",
                            R"({"model_type": "glm4_moe", "model_type": "glm4_moe"})"}) {
      HfCheckpointTexts changed = texts;
      changed.config = bad;
      EXPECT_EQ(thrown_by([&] { metadata_from_hf(changed, no_integers, false); }).kind, ErrorKind::kCorrupt) << bad;
    }
  }
  HfCheckpointTexts texts = small_texts("glm4_moe");
  texts.config = config_with(texts, R"({"num_nextn_predict_layers": 0})");
  EXPECT_EQ(thrown_by([&] { metadata_from_hf(texts, no_integers, true); }).kind, ErrorKind::kCorrupt);
  texts = small_texts("qwen3_moe");
  for (const char* bad : {R"({"num_experts_per_tok": 129})", R"({"num_key_value_heads": 5})", R"({"head_dim": 127})",
                          R"({"rope_scaling": {"type": "yarn"}})", R"({"rope_scaling": [1]})"}) {
    HfCheckpointTexts changed = texts;
    changed.config = config_with(texts, bad);
    EXPECT_EQ(thrown_by([&] { metadata_from_hf(changed, no_integers, false); }).kind, ErrorKind::kCorrupt) << bad;
  }
}

}  // namespace
}  // namespace tierpack

// Architectures that are packed without being run.
#include <gtest/gtest.h>

#include "formats/model_config.h"
#include "tests/support/errors.h"
#include "tests/support/model_key_list.h"

namespace tierpack {
namespace {

using testing_support::n;
using testing_support::qwen3moe;
using testing_support::qwen4exp;
using testing_support::renamed;
using testing_support::thrown_by;
using Keys = testing_support::ModelKeyList;

TEST(ModelArchitectures, Qwen3NextAndItsFamily) {
  for (const char* name : {"qwen3next", "qwen35moe"}) {
    Keys k = renamed(qwen4exp(), "qwen4exp", name);
    const ModelConfig c = k.read();
    EXPECT_STREQ(architecture_name(c.architecture), name);
    EXPECT_EQ(c.architecture_text, name);
    EXPECT_EQ(c.layers, 8u);
    EXPECT_EQ(c.mtp_layers, 1u);
    EXPECT_EQ(c.recurrent, (std::vector<bool>{1, 1, 1, 0, 1, 1, 1, 0, 0}));
    EXPECT_EQ(c.gdn.v_heads, 48u);
    EXPECT_EQ(c.shared_ff, 640u);
    EXPECT_EQ(c.ple.layer, -1);
    EXPECT_EQ(c.hc.streams, 0u);
    k.remove(std::string(name) + ".full_attention_interval");
    EXPECT_EQ(k.read().recurrent, c.recurrent);
    k.set(std::string(name) + ".ssm.group_count", n(36));
    EXPECT_EQ(thrown_by([&] { k.read(); }).kind, ErrorKind::kCorrupt);
  }
}

// DeepSeek V3 with its draft block.
Keys deepseek2() {
  const std::string a = "deepseek2.";
  Keys k;
  k.set("general.architecture", "deepseek2").set(a + "block_count", n(62)).set(a + "nextn_predict_layers", n(1));
  k.set(a + "context_length", n(163840)).set(a + "embedding_length", n(7168)).set(a + "vocab_size", n(129280));
  k.set(a + "attention.head_count", n(128)).set(a + "attention.head_count_kv", n(1));
  k.set(a + "attention.key_length", n(576)).set(a + "attention.value_length", n(512));
  k.set(a + "attention.key_length_mla", n(192)).set(a + "attention.value_length_mla", n(128));
  k.set(a + "attention.layer_norm_rms_epsilon", 1e-6).set(a + "rope.dimension_count", n(64));
  k.set(a + "rope.freq_base", 1e4).set(a + "rope.scaling.type", "yarn").set(a + "rope.scaling.factor", 40.0);
  k.set(a + "leading_dense_block_count", n(3)).set(a + "expert_count", n(256)).set(a + "expert_used_count", n(8));
  k.set(a + "expert_feed_forward_length", n(2048)).set(a + "expert_shared_count", n(1));
  k.set(a + "expert_gating_func", n(2)).set(a + "expert_weights_scale", 2.5).set(a + "expert_group_count", n(8));
  return k;
}

TEST(ModelArchitectures, Deepseek2) {
  const ModelConfig c = deepseek2().read();
  EXPECT_EQ(c.architecture, Architecture::kDeepseek2);
  EXPECT_EQ(c.layers, 61u);
  EXPECT_EQ(c.mtp_layers, 1u);
  EXPECT_EQ(c.dense_layers, 3u);
  EXPECT_EQ(c.vocab, 129280u);
  EXPECT_EQ(c.heads, 128u);
  EXPECT_EQ(c.head_dim, 192u);
  EXPECT_EQ(c.experts, 256u);
  EXPECT_EQ(c.shared_ff, 2048u);
  const auto thrown = thrown_by([&] { require_runnable(c, "r1.tierpack"); });
  EXPECT_EQ(thrown.kind, ErrorKind::kUnsupported);
  EXPECT_EQ(thrown.message,
            "r1.tierpack: the architecture 'deepseek2' has no forward pass in this program: it can be packed, verified "
            "and unpacked, but not run; those that run are qwen3moe and qwen4exp");
  // Draft blocks alone come without a tokenizer.
  EXPECT_EQ(deepseek2().remove("deepseek2.vocab_size").read().vocab, 0u);
  EXPECT_EQ(deepseek2().set("deepseek2.expert_count", n(0)).read().expert_ff, 0u);
  for (const char* key : {"block_count", "embedding_length", "attention.head_count", "expert_used_count"}) {
    const std::string name = std::string("deepseek2.") + key;
    EXPECT_EQ(thrown_by([&] { deepseek2().remove(name).read(); }).kind, ErrorKind::kCorrupt) << key;
    EXPECT_EQ(thrown_by([&] { deepseek2().set(name, n(0xffffffff)).read(); }).kind, ErrorKind::kCorrupt) << key;
  }
  for (const uint64_t dense : {62, 100000}) {
    EXPECT_EQ(thrown_by([&] { deepseek2().set("deepseek2.leading_dense_block_count", dense).read(); }).kind,
              ErrorKind::kCorrupt);
  }
}

TEST(ModelArchitectures, GptOssAndGlm) {
  Keys k = renamed(qwen3moe(), "qwen3moe", "gpt-oss");
  EXPECT_EQ(k.set("gpt-oss.attention.sliding_window", n(128)).read().architecture, Architecture::kGptOss);
  k = renamed(qwen3moe(), "qwen3moe", "glm4moe");
  k.set("glm4moe.leading_dense_block_count", n(3)).set("glm4moe.expert_shared_count", n(2));
  k.set("glm4moe.nextn_predict_layers", n(1)).set("glm4moe.expert_gating_func", n(2));
  std::vector<uint64_t> widths(48, 768);
  EXPECT_FALSE(k.set("glm4moe.expert_feed_forward_length", widths).read().expert_ff_differs);
  widths[3] = 32;
  EXPECT_TRUE(k.set("glm4moe.expert_feed_forward_length", widths).read().expert_ff_differs);
  const ModelConfig c = k.read();
  EXPECT_EQ(c.architecture, Architecture::kGlm4Moe);
  EXPECT_EQ(c.layers, 47u);
  EXPECT_EQ(c.dense_layers, 3u);
  EXPECT_EQ(c.shared_ff, 1536u);
}

TEST(ModelArchitectures, AnyOtherArchitectureIsTakenAsItIs) {
  ModelConfig c = Keys().set("general.architecture", "llama").read();
  EXPECT_EQ(c.architecture, Architecture::kOther);
  EXPECT_EQ(c.architecture_text, "llama");
  EXPECT_EQ(c.blocks(), 0u);
  EXPECT_EQ(c.experts, 0u);

  Keys projector;
  projector.set("general.architecture", "clip").set("general.type", "mmproj").set("clip.vision.block_count", n(27));
  c = projector.read();
  EXPECT_EQ(c.architecture, Architecture::kOther);
  EXPECT_EQ(c.blocks(), 0u);

  // An adapter names the architecture of its model, without hyper-parameters.
  c = Keys().set("general.architecture", "qwen3moe").set("general.type", "adapter").read();
  EXPECT_EQ(c.architecture, Architecture::kOther);
  EXPECT_EQ(c.architecture_text, "qwen3moe");

  Keys k = renamed(qwen3moe(), "qwen3moe", "granitehybrid");
  c = k.read();
  EXPECT_EQ(c.layers, 48u);
  EXPECT_EQ(c.hidden, 2048u);
  EXPECT_EQ(c.experts, 128u);
  EXPECT_EQ(c.expert_ff, 768u);
  EXPECT_EQ(c.vocab, 1000u);
  const std::string a = "granitehybrid.";
  k.set(a + "attention.head_count_kv", {0, 8, 0, 8}).set(a + "expert_feed_forward_length", {1, 2});
  k.set(a + "embedding_length", "wide").set(a + "nextn_predict_layers", n(99)).set(a + "context_length", -1.0);
  c = k.read();
  EXPECT_EQ(c.kv_heads, 8u);
  EXPECT_EQ(c.expert_ff, 0u);
  EXPECT_EQ(c.hidden, 0u);
  EXPECT_EQ(c.layers, 48u);
  EXPECT_EQ(c.context, 0u);
  EXPECT_EQ(thrown_by([&] { k.set(a + "block_count", n(5000)).read(); }).kind, ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace tierpack

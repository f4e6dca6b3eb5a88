#include "formats/model_config.h"

#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "formats/gguf.h"
#include "tests/support/errors.h"
#include "tests/support/model_key_list.h"

namespace tierpack {
namespace {

using testing_support::n;
using testing_support::qwen3moe;
using testing_support::qwen4exp;
using testing_support::thrown_by;
using Keys = testing_support::ModelKeyList;

TEST(ModelConfig, Qwen3Moe) {
  const ModelConfig c = qwen3moe().read();
  EXPECT_EQ(c.architecture, Architecture::kQwen3Moe);
  EXPECT_EQ(c.name, "Qwen3 30B A3B");
  EXPECT_EQ(c.vocab, 1000u);
  EXPECT_EQ(c.hidden, 2048u);
  EXPECT_EQ(c.layers, 48u);
  EXPECT_EQ(c.mtp_layers, 0u);
  EXPECT_EQ(c.heads, 32u);
  EXPECT_EQ(c.kv_heads, 4u);
  EXPECT_EQ(c.head_dim, 128u);
  EXPECT_EQ(c.rotary_dim, 128u);
  EXPECT_EQ(c.rope_base, 1e6f);
  EXPECT_EQ(c.norm_eps, 1e-6f);
  EXPECT_EQ(c.experts, 128u);
  EXPECT_EQ(c.experts_used, 8u);
  EXPECT_EQ(c.expert_ff, 768u);
  EXPECT_EQ(c.shared_ff, 0u);
  EXPECT_EQ(c.ple.layer, -1);
}

TEST(ModelConfig, Qwen4Exp) {
  const ModelConfig c = qwen4exp().read();
  EXPECT_EQ(c.architecture, Architecture::kQwen4Exp);
  EXPECT_EQ(c.layers, 8u);
  EXPECT_EQ(c.mtp_layers, 1u);
  EXPECT_EQ(c.blocks(), 9u);
  EXPECT_EQ(c.recurrent, (std::vector<bool>{1, 1, 1, 0, 1, 1, 1, 0, 0}));
  EXPECT_EQ(c.compress_ratio, (std::vector<uint32_t>{0, 0, 0, 4, 0, 0, 0, 4, 0}));
  EXPECT_EQ(c.rotary_dim, 64u);
  EXPECT_EQ(c.shared_ff, 640u);
  EXPECT_EQ(c.gdn.conv, 4u);
  EXPECT_EQ(c.gdn.head_dim, 128u);
  EXPECT_EQ(c.gdn.k_heads, 16u);
  EXPECT_EQ(c.gdn.v_heads, 48u);
  EXPECT_EQ(c.indexer.heads, 4u);
  EXPECT_EQ(c.indexer.head_dim, 128u);
  EXPECT_EQ(c.indexer.budget, 2048u);
  EXPECT_EQ(c.hc.streams, 4u);
  EXPECT_EQ(c.hc.low_rank, 320u);
  EXPECT_EQ(c.ple.layer, 1);
  EXPECT_EQ(c.ple.heads(), 16u);
  EXPECT_EQ(c.ple.head_dim, 160u);
  EXPECT_EQ(c.ple.eos, 999u);
  EXPECT_EQ(c.ple.table_rows, 320000000u);
  EXPECT_EQ(c.ple.multipliers[2], 8052911324071u);
}

TEST(ModelConfig, Pebble) {
  const GgufSource source =
      open_gguf(TIERPACK_SOURCE_DIR "/models/pebble/pebble-24M-A5M-MTP-Q4_K_M-00001-of-00002.gguf");
  const ModelConfig c = read_model_config(source.metadata());
  EXPECT_EQ(c.architecture, Architecture::kQwen4Exp);
  EXPECT_EQ(c.vocab, 4096u);
  EXPECT_EQ(c.layers, 6u);
  EXPECT_EQ(c.mtp_layers, 1u);
  EXPECT_EQ(c.recurrent, (std::vector<bool>{1, 1, 0, 1, 1, 0, 0}));
  EXPECT_EQ(c.indexer.budget, 64u);
  EXPECT_LE(c.ple.table_rows, source.find("per_layer_token_embd.weight")->shape.ne[1]);
}

TEST(ModelConfig, OtherSpellings) {
  // Per-block arrays where a number would do, with zeros at recurrent blocks.
  Keys k = qwen4exp();
  k.set("qwen4exp.attention.head_count_kv", {0, 0, 0, 2, 0, 0, 0, 2, 2});
  k.set("qwen4exp.expert_feed_forward_length", std::vector<uint64_t>(9, 640));
  k.remove("qwen4exp.full_attention_interval");
  k.set_flags("qwen4exp.attention.recurrent_layers", {1, 1, 1, 0, 1, 1, 1, 0, 0});
  EXPECT_EQ(k.read().kv_heads, 2u);
  EXPECT_EQ(k.read().recurrent, qwen4exp().read().recurrent);
  EXPECT_EQ(k.read().expert_ff, 640u);

  // Attention may be dense everywhere; the indexer's keys are then not needed.
  k = qwen4exp();
  k.set("qwen4exp.attention.compress_ratios", std::vector<uint64_t>(9, 0));
  for (const char* key : {"head_count", "key_length", "top_k"})
    k.remove(std::string("qwen4exp.attention.indexer.") + key);
  EXPECT_EQ(k.read().indexer.heads, 0u);
  k.remove("qwen4exp.attention.compress_ratios");
  EXPECT_EQ(k.read().compress_ratio, std::vector<uint32_t>(9, 0));

  // No n-gram table.
  k = qwen4exp();
  k.remove("qwen4exp.ple.layers");
  EXPECT_EQ(k.read().ple.layer, -1);

  // Defaults: head width from the embedding, as many key-value heads as heads, a vocabulary without tokens.
  k = qwen3moe();
  k.remove("qwen3moe.attention.key_length").remove("qwen3moe.attention.value_length");
  k.remove("qwen3moe.attention.head_count_kv").remove("tokenizer.ggml.tokens").set("qwen3moe.vocab_size", n(32000));
  EXPECT_EQ(k.read().head_dim, 64u);
  EXPECT_EQ(k.read().kv_heads, 32u);
  EXPECT_EQ(k.read().vocab, 32000u);
}

struct Change {
  const char* what;
  std::function<void(Keys&)> apply;
};

void expect_refused(const std::function<Keys()>& base, const std::vector<Change>& changes) {
  EXPECT_FALSE(thrown_by([&] { base().read(); }).kind);
  for (const Change& change : changes) {
    Keys k = base();
    change.apply(k);
    const auto thrown = thrown_by([&] { k.read(); });
    EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt) << change.what << ": " << thrown.message;
    EXPECT_EQ(thrown.message.rfind("test.gguf: ", 0), 0u) << thrown.message;
  }
}

// Models that packs hold, but nothing here computes.
void expect_not_runnable(const std::function<Keys()>& base, const std::vector<Change>& changes) {
  EXPECT_FALSE(thrown_by([&] { require_runnable(base().read(), "p"); }).kind);
  for (const Change& change : changes) {
    Keys k = base();
    change.apply(k);
    ModelConfig config;
    const auto reading = thrown_by([&] { config = k.read(); });
    EXPECT_FALSE(reading.kind) << change.what << ": " << reading.message;
    const auto thrown = thrown_by([&] { require_runnable(config, "p.tierpack"); });
    EXPECT_EQ(thrown.kind, ErrorKind::kUnsupported) << change.what << ": " << thrown.message;
    EXPECT_EQ(thrown.message.rfind("p.tierpack: ", 0), 0u) << thrown.message;
    EXPECT_NE(thrown.message.find("can be packed, verified and unpacked"), std::string::npos) << thrown.message;
  }
}

TEST(ModelConfig, ImpossibleTrunksAreRefused) {
  const double kNan = std::numeric_limits<double>::quiet_NaN();
  const double kInf = std::numeric_limits<double>::infinity();
  const std::string a = "qwen3moe.";
  std::vector<Change> changes;
  for (const char* key : {"block_count", "embedding_length", "context_length", "attention.head_count", "expert_count",
                          "expert_used_count", "expert_feed_forward_length", "attention.key_length",
                          "attention.head_count_kv", "rope.dimension_count"}) {
    for (const uint64_t value : {uint64_t{0}, uint64_t{0xffffffff}, ~uint64_t{0}}) {
      changes.push_back({key, [=](Keys& k) { k.set(a + key, value); }});
    }
    changes.push_back({key, [=](Keys& k) { k.set(a + key, "many"); }});
    changes.push_back({key, [=](Keys& k) { k.set(a + key, -1.0); }});
  }
  for (const char* key :
       {"block_count", "embedding_length", "context_length", "attention.head_count", "expert_count",
        "expert_used_count", "expert_feed_forward_length", "rope.freq_base", "attention.layer_norm_rms_epsilon"}) {
    changes.push_back({key, [=](Keys& k) { k.remove(a + key); }});
  }
  for (const double value : {0.0, -1e-6, kNan, kInf, -kInf, 1e-60, 2.0}) {
    changes.push_back({"eps", [=](Keys& k) { k.set(a + "attention.layer_norm_rms_epsilon", value); }});
  }
  for (const double value : {0.0, -1e6, kNan, kInf, -kInf}) {
    changes.push_back({"theta", [=](Keys& k) { k.set(a + "rope.freq_base", value); }});
  }
  const std::vector<Change> others = {
      {"heads do not divide", [=](Keys& k) { k.set(a + "attention.head_count_kv", n(5)); }},
      {"more experts used than there are", [=](Keys& k) { k.set(a + "expert_used_count", n(129)); }},
      {"rotation wider than the head", [=](Keys& k) { k.set(a + "rope.dimension_count", n(130)); }},
      {"odd rotation", [=](Keys& k) { k.set(a + "rope.dimension_count", n(63)); }},
      {"two vocabularies", [=](Keys& k) { k.set(a + "vocab_size", n(1001)); }},
      {"no vocabulary", [=](Keys& k) { k.remove("tokenizer.ggml.tokens"); }},
      {"short array",
       [=](Keys& k) {
         k.set(a + "attention.head_count", {32, 32});
       }},
      {"only draft blocks", [=](Keys& k) { k.set(a + "nextn_predict_layers", n(48)); }},
      {"no architecture", [](Keys& k) { k.remove("general.architecture"); }},
  };
  changes.insert(changes.end(), others.begin(), others.end());
  expect_refused(qwen3moe, changes);
}

TEST(ModelConfig, ImpossibleQwen4ExpIsRefused) {
  const std::string a = "qwen4exp.";
  std::vector<Change> changes;
  for (const char* key :
       {"expert_shared_feed_forward_length", "ssm.conv_kernel", "ssm.inner_size", "ssm.state_size",
        "ssm.time_step_rank", "ssm.group_count", "hyper_connection.count", "hyper_connection.low_rank",
        "attention.indexer.head_count", "attention.indexer.key_length", "attention.indexer.top_k", "ple.ngram_size",
        "ple.heads_per_ngram", "ple.conv_kernel", "embedding_length_per_layer_input"}) {
    changes.push_back({key, [=](Keys& k) { k.remove(a + key); }});
    for (const uint64_t value : {uint64_t{0}, uint64_t{0xffffffff}, ~uint64_t{0}}) {
      changes.push_back({key, [=](Keys& k) { k.set(a + key, value); }});
    }
  }
  const std::vector<Change> others = {
      {"one stream", [=](Keys& k) { k.set(a + "hyper_connection.count", n(1)); }},
      {"value heads do not divide", [=](Keys& k) { k.set(a + "ssm.group_count", n(36)); }},
      {"inner size", [=](Keys& k) { k.set(a + "ssm.inner_size", n(6145)); }},
      {"sections",
       [=](Keys& k) {
         k.set(a + "rope.dimension_sections", {11, 11, 11, 0});
       }},
      {"sections that wrap",
       [=](Keys& k) {
         k.set(a + "rope.dimension_sections", {1, ~uint64_t{0}, 1, 0});
       }},
      {"two sections",
       [=](Keys& k) {
         k.set(a + "rope.dimension_sections", {16, 16});
       }},
      {"no kind of layers", [=](Keys& k) { k.remove(a + "full_attention_interval"); }},
      {"two kinds of layers",
       [=](Keys& k) {
         k.set_flags(a + "attention.recurrent_layers", {1, 0, 1, 0, 1, 1, 1, 0, 0});
       }},
      {"few kinds of layers",
       [=](Keys& k) {
         k.set_flags(a + "attention.recurrent_layers", {1, 1});
       }},
      {"interval 0", [=](Keys& k) { k.set(a + "full_attention_interval", n(0)); }},
      {"few ratios",
       [=](Keys& k) {
         k.set(a + "attention.compress_ratios", {0, 0, 0, 4});
       }},
      {"no ratios", [=](Keys& k) { k.remove(a + "attention.compress_ratios"); }},
      {"ratio of a recurrent block",
       [=](Keys& k) {
         k.set(a + "attention.compress_ratios", {4, 0, 0, 4, 0, 0, 0, 4, 0});
       }},
      {"budget of half a block", [=](Keys& k) { k.set(a + "attention.indexer.top_k", n(2050)); }},
      {"narrow indexer", [=](Keys& k) { k.set(a + "attention.indexer.key_length", n(32)); }},
      {"block of the table", [=](Keys& k) { k.set(a + "ple.layers", std::vector<uint64_t>{8}); }},
      {"eos", [=](Keys& k) { k.set(a + "ple.eos_token_id", n(1000)); }},
      {"multipliers",
       [=](Keys& k) {
         k.set(a + "ple.layer_multipliers", {1, 2});
       }},
      {"offsets", [=](Keys& k) { k.set(a + "ple.head_offsets", std::vector<uint64_t>(15, 0)); }},
      {"empty head", [=](Keys& k) { k.set(a + "ple.head_vocab_sizes", std::vector<uint64_t>(16, 0)); }},
      {"heads beyond any table",
       [=](Keys& k) { k.set(a + "ple.head_offsets", std::vector<uint64_t>(16, 0x7fffffff)); }},
      {"heads that wrap", [=](Keys& k) { k.set(a + "ple.head_offsets", std::vector<uint64_t>(16, ~uint64_t{0})); }},
      {"row width", [=](Keys& k) { k.set(a + "embedding_length_per_layer_input", n(161)); }},
  };
  changes.insert(changes.end(), others.begin(), others.end());
  expect_refused(qwen4exp, changes);
}

TEST(ModelConfig, VariantsWithoutAForwardPassCanBePacked) {
  const std::string a = "qwen3moe.";
  expect_not_runnable(qwen3moe, {
      {"draft blocks", [=](Keys& k) { k.set(a + "nextn_predict_layers", n(1)); }},
      {"different heads",
       [=](Keys& k) {
         std::vector<uint64_t> heads(48, 32);
         heads[7] = 16;
         k.set(a + "attention.head_count", heads);
       }},
      {"values narrower than keys", [=](Keys& k) { k.set(a + "attention.value_length", n(64)); }},
      {"yarn", [=](Keys& k) { k.set(a + "rope.scaling.type", "yarn").set(a + "rope.scaling.factor", 4.0); }},
      {"linear", [=](Keys& k) { k.set(a + "rope.scaling.factor", 4.0); }},
      {"scaled attention", [=](Keys& k) { k.set(a + "rope.scaling.attn_factor", 1.1); }},
      {"sigmoid router", [=](Keys& k) { k.set(a + "expert_gating_func", n(2)); }},
      {"unnormalised router", [=](Keys& k) { k.set(a + "expert_weights_norm", false); }},
      {"scaled router", [=](Keys& k) { k.set(a + "expert_weights_scale", 2.5); }},
      {"groups", [=](Keys& k) { k.set(a + "expert_group_count", n(8)); }},
      {"dense blocks", [=](Keys& k) { k.set(a + "leading_dense_block_count", n(1)); }},
      {"window", [=](Keys& k) { k.set(a + "attention.sliding_window", n(128)); }},
      {"shared experts", [=](Keys& k) { k.set(a + "expert_shared_count", n(1)); }},
      {"architecture", [](Keys& k) { k.set("general.architecture", "llama"); }},
      {"projector", [](Keys& k) { k.set("general.type", "mmproj"); }},
  });
}

TEST(ModelConfig, VariantsOfQwen4ExpCanBePacked) {
  const std::string a = "qwen4exp.";
  expect_not_runnable(qwen4exp, {
      {"recurrent draft block",
       [=](Keys& k) {
         k.remove(a + "full_attention_interval");
         k.set_flags(a + "attention.recurrent_layers", {1, 1, 1, 0, 1, 1, 1, 0, 1});
       }},
      {"attention block with the table", [=](Keys& k) { k.set(a + "ple.layers", std::vector<uint64_t>{3}); }},
      {"two tables",
       [=](Keys& k) {
         k.set(a + "ple.layers", {1, 2});
       }},
  });
}

TEST(ModelConfig, MessagesAreSafeToPrint) {
  for (const char* key : {"general.architecture", "general.type"}) {
    const auto thrown = thrown_by([&] { require_runnable(qwen3moe().set(key, "\x1b[31mred").read(), "p"); });
    EXPECT_EQ(thrown.kind, ErrorKind::kUnsupported);
    EXPECT_EQ(thrown.message.find('\x1b'), std::string::npos) << thrown.message;
  }
}

}  // namespace
}  // namespace tierpack

#include "formats/model_config.h"

#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "formats/gguf.h"
#include "tests/support/errors.h"

namespace tierpack {
namespace {

using testing_support::thrown_by;

// Metadata as a list of keys that a test can change before it is read.
class Keys {
 public:
  Keys& set(const std::string& key, uint64_t v) { return put(key, MetaValue::scalar(ValueType::kU32, v)); }
  Keys& set(const std::string& key, double v) { return put(key, MetaValue::scalar(ValueType::kF32, v)); }
  Keys& set(const std::string& key, bool v) { return put(key, MetaValue::scalar(ValueType::kBool, v)); }
  Keys& set(const std::string& key, const char* v) {
    return put(key, MetaValue::scalar(ValueType::kString, std::string(v)));
  }
  Keys& set(const std::string& key, std::vector<uint64_t> v) {
    return put(key, MetaValue::array(ValueType::kU64, std::move(v)));
  }
  Keys& set_flags(const std::string& key, std::vector<bool> v) {
    return put(key, MetaValue::array(ValueType::kBool, std::move(v)));
  }
  Keys& tokens(size_t count) {
    return put("tokenizer.ggml.tokens", MetaValue::array(ValueType::kString, std::vector<std::string>(count, "t")));
  }
  Keys& remove(const std::string& key) {
    std::erase_if(entries_, [&](const auto& entry) { return entry.first == key; });
    return *this;
  }
  ModelConfig read() const {
    Metadata m("test.gguf");
    for (const auto& [key, value] : entries_) m.add(key, value);
    return read_model_config(m);
  }

 private:
  Keys& put(const std::string& key, MetaValue value) {
    remove(key);
    entries_.emplace_back(key, std::move(value));
    return *this;
  }
  std::vector<std::pair<std::string, MetaValue>> entries_;
};

uint64_t n(uint64_t v) { return v; }

// Qwen3-30B-A3B.
Keys qwen3moe() {
  const std::string a = "qwen3moe.";
  Keys k;
  k.set("general.architecture", "qwen3moe").set("general.name", "Qwen3 30B A3B");
  k.set(a + "block_count", n(48)).set(a + "context_length", n(40960)).set(a + "embedding_length", n(2048));
  k.set(a + "feed_forward_length", n(6144)).set(a + "attention.head_count", n(32));
  k.set(a + "attention.head_count_kv", n(4)).set(a + "attention.key_length", n(128));
  k.set(a + "attention.value_length", n(128)).set(a + "attention.layer_norm_rms_epsilon", 1e-6);
  k.set(a + "rope.freq_base", 1e6).set(a + "expert_count", n(128)).set(a + "expert_used_count", n(8));
  k.set(a + "expert_feed_forward_length", n(768)).tokens(1000);
  return k;
}

// Qwen3.8-Flash-Next with its draft block, 8 blocks of trunk instead of 48.
Keys qwen4exp() {
  const std::string a = "qwen4exp.";
  Keys k;
  k.set("general.architecture", "qwen4exp").set("general.type", "model");
  k.set(a + "block_count", n(9)).set(a + "nextn_predict_layers", n(1)).set(a + "context_length", n(262144));
  k.set(a + "embedding_length", n(2560))
      .set(a + "attention.head_count", n(24))
      .set(a + "attention.head_count_kv", n(2));
  k.set(a + "attention.key_length", n(256)).set(a + "attention.value_length", n(256));
  k.set(a + "attention.layer_norm_rms_epsilon", 1e-6).set(a + "rope.dimension_count", n(64));
  k.set(a + "rope.freq_base", 1e7).set(a + "rope.dimension_sections", {11, 11, 10, 0});
  k.set(a + "full_attention_interval", n(4)).set(a + "expert_count", n(512)).set(a + "expert_used_count", n(10));
  k.set(a + "expert_feed_forward_length", n(640)).set(a + "expert_shared_feed_forward_length", n(640));
  k.set(a + "ssm.conv_kernel", n(4)).set(a + "ssm.inner_size", n(6144)).set(a + "ssm.state_size", n(128));
  k.set(a + "ssm.time_step_rank", n(48)).set(a + "ssm.group_count", n(16));
  k.set(a + "hyper_connection.count", n(4)).set(a + "hyper_connection.low_rank", n(320));
  k.set(a + "attention.indexer.head_count", n(4)).set(a + "attention.indexer.key_length", n(128));
  k.set(a + "attention.indexer.top_k", n(2048)).set(a + "attention.compress_ratios", {0, 0, 0, 4, 0, 0, 0, 4, 0});
  k.set(a + "ple.layers", std::vector<uint64_t>{1})
      .set(a + "ple.ngram_size", n(3))
      .set(a + "ple.heads_per_ngram", n(8));
  k.set(a + "ple.conv_kernel", n(4)).set(a + "ple.eos_token_id", n(999));
  k.set(a + "embedding_length_per_layer_input", n(160));
  k.set(a + "ple.layer_multipliers", {23703573157769, 20109073645365, 8052911324071});
  std::vector<uint64_t> offsets, sizes;
  for (uint64_t h = 0; h < 16; ++h) {
    offsets.push_back(h * 20000000);
    sizes.push_back(20000000);
  }
  k.set(a + "ple.head_offsets", offsets).set(a + "ple.head_vocab_sizes", sizes).tokens(1000);
  return k;
}

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
  ErrorKind kind = ErrorKind::kCorrupt;
};

void expect_refused(const std::function<Keys()>& base, const std::vector<Change>& changes) {
  EXPECT_FALSE(thrown_by([&] { base().read(); }).kind);
  for (const Change& change : changes) {
    Keys k = base();
    change.apply(k);
    const auto thrown = thrown_by([&] { k.read(); });
    EXPECT_EQ(thrown.kind, change.kind) << change.what << ": " << thrown.message;
    EXPECT_EQ(thrown.message.rfind("test.gguf: ", 0), 0u) << thrown.message;
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
      {"draft blocks", [=](Keys& k) { k.set(a + "nextn_predict_layers", n(1)); }, ErrorKind::kUnsupported},
      {"different heads",
       [=](Keys& k) {
         std::vector<uint64_t> heads(48, 32);
         heads[7] = 16;
         k.set(a + "attention.head_count", heads);
       },
       ErrorKind::kUnsupported},
      {"values narrower than keys", [=](Keys& k) { k.set(a + "attention.value_length", n(64)); },
       ErrorKind::kUnsupported},
      {"yarn", [=](Keys& k) { k.set(a + "rope.scaling.type", "yarn").set(a + "rope.scaling.factor", 4.0); },
       ErrorKind::kUnsupported},
      {"linear", [=](Keys& k) { k.set(a + "rope.scaling.factor", 4.0); }, ErrorKind::kUnsupported},
      {"scaled attention", [=](Keys& k) { k.set(a + "rope.scaling.attn_factor", 1.1); }, ErrorKind::kUnsupported},
      {"sigmoid router", [=](Keys& k) { k.set(a + "expert_gating_func", n(2)); }, ErrorKind::kUnsupported},
      {"unnormalised router", [=](Keys& k) { k.set(a + "expert_weights_norm", false); }, ErrorKind::kUnsupported},
      {"scaled router", [=](Keys& k) { k.set(a + "expert_weights_scale", 2.5); }, ErrorKind::kUnsupported},
      {"groups", [=](Keys& k) { k.set(a + "expert_group_count", n(8)); }, ErrorKind::kUnsupported},
      {"dense blocks", [=](Keys& k) { k.set(a + "leading_dense_block_count", n(1)); }, ErrorKind::kUnsupported},
      {"window", [=](Keys& k) { k.set(a + "attention.sliding_window", n(128)); }, ErrorKind::kUnsupported},
      {"shared experts", [=](Keys& k) { k.set(a + "expert_shared_count", n(1)); }, ErrorKind::kUnsupported},
      {"architecture", [](Keys& k) { k.set("general.architecture", "llama"); }, ErrorKind::kUnsupported},
      {"no architecture", [](Keys& k) { k.remove("general.architecture"); }},
      {"projector", [](Keys& k) { k.set("general.type", "mmproj"); }, ErrorKind::kUnsupported},
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
      {"recurrent draft block",
       [=](Keys& k) {
         k.remove(a + "full_attention_interval");
         k.set_flags(a + "attention.recurrent_layers", {1, 1, 1, 0, 1, 1, 1, 0, 1});
       },
       ErrorKind::kUnsupported},
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
      {"attention block with the table", [=](Keys& k) { k.set(a + "ple.layers", std::vector<uint64_t>{3}); },
       ErrorKind::kUnsupported},
      {"two tables",
       [=](Keys& k) {
         k.set(a + "ple.layers", {1, 2});
       },
       ErrorKind::kUnsupported},
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

TEST(ModelConfig, MessagesAreSafeToPrint) {
  const auto thrown = thrown_by([] { qwen3moe().set("general.architecture", "\x1b[31mred").read(); });
  EXPECT_EQ(thrown.message.find('\x1b'), std::string::npos) << thrown.message;
}

}  // namespace
}  // namespace tierpack

// Metadata of a model as a list of keys that a test can change before it is read, and two published models in that form.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "formats/model_config.h"

namespace tierpack::testing_support {

// Metadata as a list of keys that a test can change before it is read.
class ModelKeyList {
 public:
  ModelKeyList& set(const std::string& key, uint64_t v) { return put(key, MetaValue::scalar(ValueType::kU32, v)); }
  ModelKeyList& set(const std::string& key, double v) { return put(key, MetaValue::scalar(ValueType::kF32, v)); }
  ModelKeyList& set(const std::string& key, bool v) { return put(key, MetaValue::scalar(ValueType::kBool, v)); }
  ModelKeyList& set(const std::string& key, const char* v) {
    return put(key, MetaValue::scalar(ValueType::kString, std::string(v)));
  }
  ModelKeyList& set(const std::string& key, std::vector<uint64_t> v) {
    return put(key, MetaValue::array(ValueType::kU64, std::move(v)));
  }
  ModelKeyList& set_flags(const std::string& key, std::vector<bool> v) {
    return put(key, MetaValue::array(ValueType::kBool, std::move(v)));
  }
  ModelKeyList& tokens(size_t count) {
    return put("tokenizer.ggml.tokens", MetaValue::array(ValueType::kString, std::vector<std::string>(count, "t")));
  }
  ModelKeyList& remove(const std::string& key) {
    std::erase_if(entries_, [&](const auto& entry) { return entry.first == key; });
    return *this;
  }
  // The entries of another list, keys that begin with `from` beginning with `to`.
  void take(const ModelKeyList& other, const std::string& from, const std::string& to) {
    for (const auto& [key, value] : other.entries_) {
      entries_.emplace_back(key.starts_with(from) ? to + key.substr(from.size()) : key, value);
    }
  }
  ModelConfig read() const {
    Metadata m("test.gguf");
    for (const auto& [key, value] : entries_) m.add(key, value);
    return read_model_config(m);
  }

 private:
  ModelKeyList& put(const std::string& key, MetaValue value) {
    remove(key);
    entries_.emplace_back(key, std::move(value));
    return *this;
  }
  std::vector<std::pair<std::string, MetaValue>> entries_;
};

inline uint64_t n(uint64_t v) { return v; }

// Qwen3-30B-A3B.
inline ModelKeyList qwen3moe() {
  const std::string a = "qwen3moe.";
  ModelKeyList k;
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
inline ModelKeyList qwen4exp() {
  const std::string a = "qwen4exp.";
  ModelKeyList k;
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

// The keys of `base` under another architecture.
inline ModelKeyList renamed(const ModelKeyList& base, const std::string& from, const std::string& to) {
  ModelKeyList out;
  out.take(base, from + ".", to + ".");
  return out.set("general.architecture", to.c_str());
}

}  // namespace tierpack::testing_support

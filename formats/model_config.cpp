#include "formats/model_config.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace tierpack {
namespace {

// Bounds far above any model, low enough that products of two of these values fit 64 bits with room to spare and
// per-layer arrays stay small.
constexpr uint32_t kLayersMax = 4096;
constexpr uint32_t kWidthMax = 1u << 20;
constexpr uint32_t kHeadsMax = 1u << 14;
constexpr uint32_t kExpertsMax = 1u << 16;
constexpr uint32_t kVocabMax = 1u << 24;
constexpr uint32_t kKernelMax = 64;

// Reads the keys of one architecture and complains in its terms.
class KeyReader {
 public:
  KeyReader(const Metadata& metadata, const char* architecture) : metadata_(metadata), prefix_(architecture) {
    prefix_ += '.';
  }

  std::string key(const char* name) const { return prefix_ + name; }
  bool has(const char* name) const { return metadata_.has(key(name)); }
  const Metadata& metadata() const { return metadata_; }

  uint32_t count(const char* name, uint32_t low, uint32_t high) const {
    return in_range(name, metadata_.u64(key(name)), low, high);
  }
  uint32_t count_or(const char* name, uint32_t fallback, uint32_t low, uint32_t high) const {
    return has(name) ? count(name, low, high) : fallback;
  }

  // A count that may be given once or for each block; blocks where `skipped` holds may say 0.
  uint32_t uniform_count(const char* name, uint32_t low, uint32_t high, const std::vector<bool>& skipped) const {
    const std::vector<uint64_t> values = metadata_.u64_array(key(name));
    if (values.size() == 1) return in_range(name, values.front(), low, high);
    require_blocks(name, values.size(), skipped.size());
    std::optional<uint64_t> common;
    for (size_t i = 0; i < skipped.size(); ++i) {
      if (skipped[i] && values[i] == 0) continue;
      if (common && *common != values[i]) {
        unsupported(fmt::format("{} differs between blocks ({} and {})", key(name), *common, values[i]));
      }
      common = values[i];
    }
    if (!common) corrupt(fmt::format("{} is 0 for every block", key(name)));
    return in_range(name, *common, low, high);
  }

  std::vector<uint32_t> block_counts(const char* name, size_t blocks, uint32_t high) const {
    const std::vector<uint64_t> values = metadata_.u64_array(key(name));
    require_blocks(name, values.size(), blocks);
    std::vector<uint32_t> out;
    for (size_t i = 0; i < blocks; ++i) out.push_back(in_range(name, values[i], 0, high));
    return out;
  }

  double positive(const char* name, double high) const {
    const double value = metadata_.f64(key(name));
    if (!(value > 0 && value <= high)) {
      corrupt(fmt::format("{} is {}; it must be above 0 and at most {}", key(name), value, high));
    }
    return value;
  }

  [[noreturn]] void corrupt(const std::string& message) const {
    fail(ErrorKind::kCorrupt, "{}: {}", metadata_.source(), message);
  }
  [[noreturn]] void unsupported(const std::string& message) const {
    fail(ErrorKind::kUnsupported, "{}: {}, which this program cannot compute", metadata_.source(), message);
  }

 private:
  uint32_t in_range(const char* name, uint64_t value, uint32_t low, uint32_t high) const {
    if (value < low || value > high) {
      corrupt(fmt::format("{} is {}; it must be from {} to {}", key(name), value, low, high));
    }
    return static_cast<uint32_t>(value);
  }

  void require_blocks(const char* name, size_t found, size_t blocks) const {
    if (found < blocks) {
      corrupt(fmt::format("{} has {} values for {} blocks", key(name), found, blocks));
    }
  }

  const Metadata& metadata_;
  std::string prefix_;
};

uint32_t read_vocab(const KeyReader& in) {
  const MetaValue* tokens = in.metadata().find("tokenizer.ggml.tokens");
  const uint64_t listed = tokens ? tokens->array_size() : 0;
  if (listed == 0) return in.count("vocab_size", 1, kVocabMax);
  if (listed > kVocabMax) in.corrupt(fmt::format("tokenizer.ggml.tokens has {} tokens, limit {}", listed, kVocabMax));
  const auto vocab = static_cast<uint32_t>(listed);
  if (in.has("vocab_size") && in.count("vocab_size", 1, kVocabMax) != vocab) {
    in.corrupt(fmt::format("{} is {} but tokenizer.ggml.tokens has {} tokens", in.key("vocab_size"),
                           in.count("vocab_size", 1, kVocabMax), vocab));
  }
  return vocab;
}

// Refuses what would change the arithmetic without a place in ModelConfig.
void refuse_variants(const KeyReader& in) {
  const std::string scaling = in.metadata().string_or(in.key("rope.scaling.type"), "none");
  const double factor = in.metadata().f64_or(in.key("rope.scaling.factor"), 1);
  if (scaling != "none" && !(scaling == "linear" && factor == 1)) {
    in.unsupported(fmt::format("rope is scaled ('{}', factor {})",
                               in.metadata().find(in.key("rope.scaling.type"))->text(40), factor));
  }
  if (scaling == "none" && !in.has("rope.scaling.type") && factor != 1) {
    in.unsupported(fmt::format("rope is scaled by {}", factor));
  }
  if (in.metadata().f64_or(in.key("rope.scaling.attn_factor"), 1) != 1) {
    in.unsupported(fmt::format("{} is not 1", in.key("rope.scaling.attn_factor")));
  }
  if (in.count_or("expert_gating_func", 1, 0, 255) > 1) {  // 0 and 1: softmax
    in.unsupported(fmt::format("{} is not softmax", in.key("expert_gating_func")));
  }
  if (!in.metadata().boolean_or(in.key("expert_weights_norm"), true)) {
    in.unsupported(fmt::format("{} is false", in.key("expert_weights_norm")));
  }
  const double scale = in.metadata().f64_or(in.key("expert_weights_scale"), 1);
  if (scale != 1 && scale != 0) in.unsupported(fmt::format("{} is {}", in.key("expert_weights_scale"), scale));
  if (in.count_or("expert_group_count", 1, 0, kExpertsMax) > 1) {
    in.unsupported(fmt::format("{} is above 1", in.key("expert_group_count")));
  }
  if (in.count_or("leading_dense_block_count", 0, 0, kLayersMax) > 0) {
    in.unsupported(fmt::format("{} is above 0", in.key("leading_dense_block_count")));
  }
  if (in.metadata().u64_or(in.key("attention.sliding_window"), 0) > 0) {
    in.unsupported(fmt::format("{} is above 0", in.key("attention.sliding_window")));
  }
}

// Widths and counts every architecture has.
void read_trunk(const KeyReader& in, ModelConfig& config) {
  config.name = in.metadata().string_or("general.name", "");
  config.vocab = read_vocab(in);
  config.hidden = in.count("embedding_length", 1, kWidthMax);
  const uint32_t blocks = in.count("block_count", 1, kLayersMax);
  config.mtp_layers = in.count_or("nextn_predict_layers", 0, 0, kLayersMax);
  if (config.mtp_layers >= blocks) {
    in.corrupt(fmt::format("{} of {} blocks are draft blocks ({})", config.mtp_layers, blocks,
                           in.key("nextn_predict_layers")));
  }
  config.layers = blocks - config.mtp_layers;
  config.context = in.count("context_length", 1, std::numeric_limits<int32_t>::max());
  config.norm_eps = static_cast<float>(in.positive("attention.layer_norm_rms_epsilon", 0.1));
  if (!(config.norm_eps > 0)) in.corrupt(in.key("attention.layer_norm_rms_epsilon") + " is 0 as a 32-bit float");
  refuse_variants(in);
}

void read_attention(const KeyReader& in, ModelConfig& config) {
  std::vector<bool> skipped = config.recurrent;
  skipped.resize(config.blocks());
  config.heads = in.uniform_count("attention.head_count", 1, kHeadsMax, skipped);
  config.kv_heads = in.has("attention.head_count_kv")
                        ? in.uniform_count("attention.head_count_kv", 1, kHeadsMax, skipped)
                        : config.heads;
  if (config.heads % config.kv_heads != 0) {
    in.corrupt(fmt::format("{} query heads do not divide over {} key-value heads", config.heads, config.kv_heads));
  }
  if (!in.has("attention.key_length") && config.hidden % config.heads != 0) {
    in.corrupt(fmt::format("{} is missing, and {} does not divide by {} heads", in.key("attention.key_length"),
                           config.hidden, config.heads));
  }
  config.head_dim = in.count_or("attention.key_length", config.hidden / config.heads, 1, kWidthMax);
  const uint32_t value_dim = in.count_or("attention.value_length", config.head_dim, 1, kWidthMax);
  if (value_dim != config.head_dim) {
    in.unsupported(
        fmt::format("attention heads have keys of {} and values of {} elements", config.head_dim, value_dim));
  }
  config.rotary_dim = in.count_or("rope.dimension_count", config.head_dim, 2, kWidthMax);
  if (config.rotary_dim % 2 != 0 || config.rotary_dim > config.head_dim) {
    in.corrupt(fmt::format("{} rotated dimensions do not fit heads of {}; an even number is needed", config.rotary_dim,
                           config.head_dim));
  }
  config.rope_base = static_cast<float>(in.positive("rope.freq_base", 1e30));

  if (in.has("rope.dimension_sections")) {
    const std::vector<uint64_t> sections = in.metadata().u64_array(in.key("rope.dimension_sections"));
    uint64_t sum = 0;
    for (const uint64_t section : sections) sum += std::min<uint64_t>(section, kWidthMax);
    if (sections.size() < 3 || sections.size() > 4 || sum > config.rotary_dim / 2) {
      in.corrupt(fmt::format("{} has {} sections with the sum {}; 3 or 4 with at most {} are possible",
                             in.key("rope.dimension_sections"), sections.size(), sum, config.rotary_dim / 2));
    }
  }
}

void read_experts(const KeyReader& in, ModelConfig& config) {
  config.experts = in.count("expert_count", 1, kExpertsMax);
  config.experts_used = in.count("expert_used_count", 1, kExpertsMax);
  if (config.experts_used > config.experts) {
    in.corrupt(fmt::format("{} experts a token of only {}", config.experts_used, config.experts));
  }
  config.expert_ff =
      in.uniform_count("expert_feed_forward_length", 1, kWidthMax, std::vector<bool>(config.blocks(), false));
}

// Which blocks are gated delta nets: an interval of full attention, or a flag for each block.
void read_recurrent(const KeyReader& in, ModelConfig& config) {
  const uint32_t blocks = config.blocks();
  if (in.has("attention.recurrent_layers")) {
    for (const uint32_t flag : in.block_counts("attention.recurrent_layers", blocks, 1)) {
      config.recurrent.push_back(flag == 1);
    }
  }
  if (in.has("full_attention_interval")) {
    const uint32_t interval = in.count("full_attention_interval", 1, kLayersMax);
    std::vector<bool> recurrent(blocks);
    for (uint32_t i = 0; i < config.layers; ++i) recurrent[i] = (i + 1) % interval != 0;
    if (!config.recurrent.empty() && config.recurrent != recurrent) {
      in.corrupt(fmt::format("{} and {} contradict each other", in.key("attention.recurrent_layers"),
                             in.key("full_attention_interval")));
    }
    config.recurrent = std::move(recurrent);
  }
  if (config.recurrent.empty()) {
    in.corrupt(fmt::format("{} and {} are both missing", in.key("full_attention_interval"),
                           in.key("attention.recurrent_layers")));
  }
  for (uint32_t i = config.layers; i < blocks; ++i) {
    if (config.recurrent[i]) in.unsupported(fmt::format("draft block {} is recurrent", i));
  }
}

void read_gdn(const KeyReader& in, ModelConfig& config) {
  ModelConfig::Gdn& gdn = config.gdn;
  gdn.conv = in.count("ssm.conv_kernel", 2, kKernelMax);
  gdn.head_dim = in.count("ssm.state_size", 1, 4096);
  gdn.k_heads = in.count("ssm.group_count", 1, kHeadsMax);
  gdn.v_heads = in.count("ssm.time_step_rank", 1, kHeadsMax);
  if (gdn.v_heads % gdn.k_heads != 0) {
    in.corrupt(
        fmt::format("{} value heads of the delta net do not divide over {} key heads", gdn.v_heads, gdn.k_heads));
  }
  const uint32_t inner = in.count("ssm.inner_size", 1, std::numeric_limits<int32_t>::max());
  if (uint64_t{gdn.v_heads} * gdn.head_dim != inner) {
    in.corrupt(fmt::format("{} is {}, not {} heads of {}", in.key("ssm.inner_size"), inner, gdn.v_heads, gdn.head_dim));
  }
}

void read_indexer(const KeyReader& in, ModelConfig& config) {
  const uint32_t blocks = config.blocks();
  if (!in.has("attention.compress_ratios")) {
    if (in.has("attention.indexer.head_count")) {
      in.corrupt(fmt::format("{} is missing although there is an indexer", in.key("attention.compress_ratios")));
    }
    config.compress_ratio.assign(blocks, 0);
    return;
  }
  config.compress_ratio = in.block_counts("attention.compress_ratios", blocks, 1024);
  for (uint32_t i = 0; i < blocks; ++i) {
    if (config.recurrent[i] && config.compress_ratio[i] != 0) {
      in.corrupt(fmt::format("block {} is recurrent but has a compress ratio of {}", i, config.compress_ratio[i]));
    }
  }
  const uint32_t largest = *std::max_element(config.compress_ratio.begin(), config.compress_ratio.end());
  if (largest == 0) return;  // dense everywhere, the indexer is not used

  ModelConfig::Indexer& indexer = config.indexer;
  indexer.heads = in.count("attention.indexer.head_count", 1, kHeadsMax);
  indexer.head_dim = in.count("attention.indexer.key_length", 1, 4096);
  indexer.budget = in.count("attention.indexer.top_k", 1, std::numeric_limits<int32_t>::max());
  if (indexer.head_dim < config.rotary_dim) {
    in.corrupt(fmt::format("indexer heads of {} elements are narrower than the {} rotated ones", indexer.head_dim,
                           config.rotary_dim));
  }
  for (const uint32_t ratio : config.compress_ratio) {
    if (ratio != 0 && indexer.budget % ratio != 0) {
      in.corrupt(fmt::format("the indexer's budget of {} tokens is not a number of whole blocks of {}", indexer.budget,
                             ratio));
    }
  }
}

void read_ple(const KeyReader& in, ModelConfig& config) {
  ModelConfig::Ple& ple = config.ple;
  if (!in.has("ple.layers")) return;
  const std::vector<uint64_t> layers = in.metadata().u64_array(in.key("ple.layers"));
  if (layers.empty()) return;
  if (layers.size() != 1)
    in.unsupported(fmt::format("{} blocks have an n-gram embedding instead of one", layers.size()));
  if (layers[0] >= config.layers) {
    in.corrupt(fmt::format("{} names block {} of {}", in.key("ple.layers"), layers[0], config.layers));
  }
  ple.layer = static_cast<int32_t>(layers[0]);
  if (!config.recurrent[layers[0]]) in.unsupported("the n-gram embedding is at an attention block");

  ple.ngram = in.count("ple.ngram_size", 2, 8);
  ple.heads_per_ngram = in.count("ple.heads_per_ngram", 1, 1024);
  ple.conv = in.count("ple.conv_kernel", 1, kKernelMax);
  ple.head_dim = in.count("embedding_length_per_layer_input", 1, kWidthMax);
  ple.eos = in.count("ple.eos_token_id", 0, config.vocab - 1);
  ple.multipliers = in.metadata().u64_array(in.key("ple.layer_multipliers"));
  ple.offsets = in.metadata().u64_array(in.key("ple.head_offsets"));
  ple.sizes = in.metadata().u64_array(in.key("ple.head_vocab_sizes"));

  const uint64_t heads = uint64_t{ple.ngram - 1} * ple.heads_per_ngram;
  if (ple.multipliers.size() != ple.ngram || ple.offsets.size() != heads || ple.sizes.size() != heads) {
    in.corrupt(fmt::format("the n-gram embedding has {} multipliers, {} offsets and {} sizes; needed are {}, {} and {}",
                           ple.multipliers.size(), ple.offsets.size(), ple.sizes.size(), ple.ngram, heads, heads));
  }
  if (heads * ple.head_dim != config.hidden) {
    in.corrupt(fmt::format("{} n-gram rows of {} elements do not make an embedding of {}", heads, ple.head_dim,
                           config.hidden));
  }
  constexpr uint64_t kRowsMax = std::numeric_limits<int32_t>::max();
  for (size_t h = 0; h < heads; ++h) {
    const auto end = checked_add(ple.offsets[h], ple.sizes[h]);
    if (ple.sizes[h] == 0 || !end || *end > kRowsMax) {
      in.corrupt(fmt::format("head {} of the n-gram embedding has {} rows from row {}; that is outside any table", h,
                             ple.sizes[h], ple.offsets[h]));
    }
    ple.table_rows = std::max(ple.table_rows, *end);
  }
}

ModelConfig read_qwen3moe(const KeyReader& in) {
  ModelConfig config;
  config.architecture = Architecture::kQwen3Moe;
  read_trunk(in, config);
  if (config.mtp_layers != 0) in.unsupported("the model has draft blocks");
  if (in.count_or("expert_shared_count", 0, 0, kExpertsMax) != 0) in.unsupported("the model has shared experts");
  config.recurrent.assign(config.layers, false);
  config.compress_ratio.assign(config.layers, 0);
  read_attention(in, config);
  read_experts(in, config);
  return config;
}

ModelConfig read_qwen4exp(const KeyReader& in) {
  ModelConfig config;
  config.architecture = Architecture::kQwen4Exp;
  read_trunk(in, config);
  read_recurrent(in, config);
  read_attention(in, config);
  read_experts(in, config);
  config.shared_ff = in.count("expert_shared_feed_forward_length", 1, kWidthMax);
  read_gdn(in, config);
  read_indexer(in, config);
  config.hc.streams = in.count("hyper_connection.count", 2, 64);
  config.hc.low_rank = in.count("hyper_connection.low_rank", 1, kWidthMax);
  read_ple(in, config);
  return config;
}

}  // namespace

const char* architecture_name(Architecture architecture) {
  switch (architecture) {
    case Architecture::kQwen3Moe: return "qwen3moe";
    case Architecture::kQwen4Exp: return "qwen4exp";
    case Architecture::kQwen3Next: return "qwen3next";
    case Architecture::kQwen35Moe: return "qwen35moe";
    case Architecture::kDeepseek2: return "deepseek2";
    case Architecture::kGptOss: return "gpt-oss";
    case Architecture::kGlm4Moe: return "glm4moe";
    case Architecture::kOther: return "other";
  }
  return "unknown";
}

ModelConfig read_model_config(const Metadata& metadata) {
  if (metadata.string_or("general.type", "model") != "model") {
    fail(ErrorKind::kUnsupported, "{}: this file is of type '{}', not a language model", metadata.source(),
         metadata.find("general.type")->text(60));
  }
  const std::string name = metadata.string("general.architecture");
  for (const Architecture known : {Architecture::kQwen3Moe, Architecture::kQwen4Exp}) {
    if (name != architecture_name(known)) continue;
    const KeyReader in(metadata, architecture_name(known));
    return known == Architecture::kQwen3Moe ? read_qwen3moe(in) : read_qwen4exp(in);
  }
  fail(ErrorKind::kUnsupported, "{}: the architecture '{}' is not supported; supported are qwen3moe and qwen4exp",
       metadata.source(), metadata.find("general.architecture")->text(60));
}

}  // namespace tierpack

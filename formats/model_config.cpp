#include "formats/model_config.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/printable.h"
#include "formats/model_keys.h"

namespace tierpack {
namespace {

// Architectures that have a forward pass in runtime/model.
constexpr Architecture kRunnable[] = {Architecture::kQwen3Moe, Architecture::kQwen4Exp};

bool has_forward_pass(Architecture architecture) {
  return std::find(std::begin(kRunnable), std::end(kRunnable), architecture) != std::end(kRunnable);
}

uint32_t listed_tokens(const ModelKeys& in) {
  const MetaValue* tokens = in.metadata().find("tokenizer.ggml.tokens");
  const uint64_t listed = tokens ? tokens->array_size() : 0;
  if (listed > kVocabMax) in.corrupt(fmt::format("tokenizer.ggml.tokens has {} tokens, limit {}", listed, kVocabMax));
  return static_cast<uint32_t>(listed);
}

// Files that only hold a draft block may come without a tokenizer, so that a model nobody runs may lack it.
uint32_t read_vocab(const ModelKeys& in, bool required) {
  const uint32_t vocab = listed_tokens(in);
  if (!required) return vocab != 0 ? vocab : in.any_count("vocab_size", kVocabMax);
  if (vocab == 0) return in.count("vocab_size", 1, kVocabMax);
  if (in.has("vocab_size") && in.count("vocab_size", 1, kVocabMax) != vocab) {
    in.corrupt(fmt::format("{} is {} but tokenizer.ggml.tokens has {} tokens", in.key("vocab_size"),
                           in.count("vocab_size", 1, kVocabMax), vocab));
  }
  return vocab;
}

// Notes what would change the arithmetic without a place in ModelConfig.
void note_variants(const ModelKeys& in) {
  const std::string scaling = in.metadata().string_or(in.key("rope.scaling.type"), "none");
  const double factor = in.metadata().f64_or(in.key("rope.scaling.factor"), 1);
  if (scaling != "none" && !(scaling == "linear" && factor == 1)) {
    in.cannot_compute(fmt::format("rope is scaled ('{}', factor {})",
                               in.metadata().find(in.key("rope.scaling.type"))->text(40), factor));
  }
  if (scaling == "none" && !in.has("rope.scaling.type") && factor != 1) {
    in.cannot_compute(fmt::format("rope is scaled by {}", factor));
  }
  if (in.metadata().f64_or(in.key("rope.scaling.attn_factor"), 1) != 1) {
    in.cannot_compute(fmt::format("{} is not 1", in.key("rope.scaling.attn_factor")));
  }
  if (in.count_or("expert_gating_func", 1, 0, 255) > 1) {  // 0 and 1: softmax
    in.cannot_compute(fmt::format("{} is not softmax", in.key("expert_gating_func")));
  }
  if (!in.metadata().boolean_or(in.key("expert_weights_norm"), true)) {
    in.cannot_compute(fmt::format("{} is false", in.key("expert_weights_norm")));
  }
  const double scale = in.metadata().f64_or(in.key("expert_weights_scale"), 1);
  if (scale != 1 && scale != 0) in.cannot_compute(fmt::format("{} is {}", in.key("expert_weights_scale"), scale));
  if (in.count_or("expert_group_count", 1, 0, kExpertsMax) > 1) {
    in.cannot_compute(fmt::format("{} is above 1", in.key("expert_group_count")));
  }
  if (in.count_or("expert_shared_count", 0, 0, kExpertsMax) != 0) {
    in.cannot_compute("the model has ungated shared experts");
  }
  if (in.metadata().u64_or(in.key("attention.sliding_window"), 0) > 0) {
    in.cannot_compute(fmt::format("{} is above 0", in.key("attention.sliding_window")));
  }
}

void read_blocks(const ModelKeys& in, ModelConfig& config) {
  const uint32_t blocks = in.count("block_count", 1, kLayersMax);
  config.mtp_layers = in.count_or("nextn_predict_layers", 0, 0, kLayersMax);
  if (config.mtp_layers >= blocks) {
    in.corrupt(fmt::format("{} of {} blocks are draft blocks ({})", config.mtp_layers, blocks,
                           in.key("nextn_predict_layers")));
  }
  config.layers = blocks - config.mtp_layers;
  config.dense_layers = in.count_or("leading_dense_block_count", 0, 0, kLayersMax);
  if (config.dense_layers > config.layers) {
    in.corrupt(fmt::format("{} of {} blocks are dense ({})", config.dense_layers, config.layers,
                           in.key("leading_dense_block_count")));
  }
  if (config.dense_layers > 0) in.cannot_compute(fmt::format("{} is above 0", in.key("leading_dense_block_count")));
}

// Widths and counts that every known architecture has.
void read_trunk(const ModelKeys& in, ModelConfig& config) {
  config.name = in.metadata().string_or("general.name", "");
  config.vocab = read_vocab(in, has_forward_pass(config.architecture));
  config.hidden = in.count("embedding_length", 1, kWidthMax);
  read_blocks(in, config);
  config.recurrent.assign(config.blocks(), false);
  config.compress_ratio.assign(config.blocks(), 0);
  config.context = in.count("context_length", 1, std::numeric_limits<int32_t>::max());
  config.norm_eps = static_cast<float>(in.positive("attention.layer_norm_rms_epsilon", 0.1));
  if (!(config.norm_eps > 0)) in.corrupt(in.key("attention.layer_norm_rms_epsilon") + " is 0 as a 32-bit float");
  if (has_forward_pass(config.architecture)) note_variants(in);
}

void read_sections(const ModelKeys& in, const ModelConfig& config) {
  if (!in.has("rope.dimension_sections")) return;
  const std::vector<uint64_t> sections = in.metadata().u64_array(in.key("rope.dimension_sections"));
  uint64_t sum = 0;
  for (const uint64_t section : sections) sum += std::min<uint64_t>(section, kWidthMax);
  if (sections.size() < 3 || sections.size() > 4 || sum > config.rotary_dim / 2) {
    in.corrupt(fmt::format("{} has {} sections with the sum {}; 3 or 4 with at most {} are possible",
                           in.key("rope.dimension_sections"), sections.size(), sum, config.rotary_dim / 2));
  }
}

void read_attention(const ModelKeys& in, ModelConfig& config) {
  config.heads = in.uniform_count("attention.head_count", 1, kHeadsMax, config.recurrent);
  config.kv_heads = in.has("attention.head_count_kv")
                        ? in.uniform_count("attention.head_count_kv", 1, kHeadsMax, config.recurrent)
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
    in.cannot_compute(
        fmt::format("attention heads have keys of {} and values of {} elements", config.head_dim, value_dim));
  }
  config.rotary_dim = in.count_or("rope.dimension_count", config.head_dim, 2, kWidthMax);
  if (config.rotary_dim % 2 != 0 || config.rotary_dim > config.head_dim) {
    in.corrupt(fmt::format("{} rotated dimensions do not fit heads of {}; an even number is needed", config.rotary_dim,
                           config.head_dim));
  }
  config.rope_base = static_cast<float>(in.positive("rope.freq_base", 1e30));
  read_sections(in, config);
}

void read_experts(const ModelKeys& in, ModelConfig& config) {
  config.experts = in.count("expert_count", 1, kExpertsMax);
  config.experts_used = in.count("expert_used_count", 1, kExpertsMax);
  if (config.experts_used > config.experts) {
    in.corrupt(fmt::format("{} experts a token of only {}", config.experts_used, config.experts));
  }
  config.expert_ff =
      in.uniform_count("expert_feed_forward_length", 1, kWidthMax, std::vector<bool>(config.blocks(), false));
  for (const uint64_t width : in.metadata().u64_array(in.key("expert_feed_forward_length"))) {
    config.expert_ff_differs = config.expert_ff_differs || width != config.expert_ff;
  }
}

// Which blocks are gated delta nets: an interval of full attention, or a flag for each block.
// `default_interval` stands for keys that are both missing; 0 = they must not be.
void read_recurrent(const ModelKeys& in, ModelConfig& config, uint32_t default_interval) {
  const uint32_t blocks = config.blocks();
  config.recurrent.clear();
  if (in.has("attention.recurrent_layers")) {
    for (const uint32_t flag : in.block_counts("attention.recurrent_layers", blocks, 1)) {
      config.recurrent.push_back(flag == 1);
    }
  }
  if (in.has("full_attention_interval") || (config.recurrent.empty() && default_interval != 0)) {
    const uint32_t interval = in.count_or("full_attention_interval", default_interval, 1, kLayersMax);
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
    if (config.recurrent[i]) in.cannot_compute(fmt::format("draft block {} is recurrent", i));
  }
}

void read_gdn(const ModelKeys& in, ModelConfig& config) {
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

void read_indexer(const ModelKeys& in, ModelConfig& config) {
  const uint32_t blocks = config.blocks();
  if (!in.has("attention.compress_ratios")) {
    if (in.has("attention.indexer.head_count")) {
      in.corrupt(fmt::format("{} is missing although there is an indexer", in.key("attention.compress_ratios")));
    }
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

void read_ple(const ModelKeys& in, ModelConfig& config) {
  ModelConfig::Ple& ple = config.ple;
  if (!in.has("ple.layers")) return;
  const std::vector<uint64_t> layers = in.metadata().u64_array(in.key("ple.layers"));
  if (layers.empty()) return;
  if (layers.size() != 1) {
    in.cannot_compute(fmt::format("{} blocks have an n-gram embedding instead of one", layers.size()));
    return;
  }
  if (layers[0] >= config.layers) {
    in.corrupt(fmt::format("{} names block {} of {}", in.key("ple.layers"), layers[0], config.layers));
  }
  ple.layer = static_cast<int32_t>(layers[0]);
  if (!config.recurrent[layers[0]]) in.cannot_compute("the n-gram embedding is at an attention block");

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

void read_qwen3moe(const ModelKeys& in, ModelConfig& config) {
  if (config.mtp_layers != 0) in.cannot_compute("the model has draft blocks");
  read_attention(in, config);
  read_experts(in, config);
}

void read_qwen4exp(const ModelKeys& in, ModelConfig& config) {
  read_recurrent(in, config, 0);
  read_attention(in, config);
  read_experts(in, config);
  config.shared_ff = in.count("expert_shared_feed_forward_length", 1, kWidthMax);
  read_gdn(in, config);
  read_indexer(in, config);
  config.hc.streams = in.count("hyper_connection.count", 2, 64);
  config.hc.low_rank = in.count("hyper_connection.low_rank", 1, kWidthMax);
  read_ple(in, config);
}

// qwen3next and qwen35moe; files of the former did not always say which blocks have full attention.
void read_qwen3next(const ModelKeys& in, ModelConfig& config) {
  read_recurrent(in, config, 4);
  read_attention(in, config);
  read_experts(in, config);
  config.shared_ff = in.count_or("expert_shared_feed_forward_length", 0, 0, kWidthMax);
  read_gdn(in, config);
}

void read_shared_experts(const ModelKeys& in, ModelConfig& config) {
  const uint64_t width = uint64_t{in.count_or("expert_shared_count", 0, 0, kExpertsMax)} * config.expert_ff;
  if (width > kWidthMax) in.corrupt(fmt::format("the shared experts are {} wide, limit {}", width, kWidthMax));
  config.shared_ff = static_cast<uint32_t>(width);
}

// Files with absorbed projections say how wide a head is before them, others only how wide it is.
void read_deepseek2(const ModelKeys& in, ModelConfig& config) {
  config.heads = in.uniform_count("attention.head_count", 1, kHeadsMax, config.recurrent);
  config.kv_heads = in.count_or("attention.head_count_kv", config.heads, 1, kHeadsMax);
  const char* const width = in.has("attention.key_length_mla") ? "attention.key_length_mla" : "attention.key_length";
  config.head_dim = in.count(width, 1, kWidthMax);
  config.rotary_dim = in.count_or("rope.dimension_count", config.head_dim, 2, kWidthMax);
  if (config.rotary_dim % 2 != 0 || config.rotary_dim > config.head_dim) {
    in.corrupt(fmt::format("{} rotated dimensions do not fit heads of {}", config.rotary_dim, config.head_dim));
  }
  config.rope_base = static_cast<float>(in.positive("rope.freq_base", 1e30));
  if (in.count_or("expert_count", 0, 0, kExpertsMax) == 0) return;
  read_experts(in, config);
  read_shared_experts(in, config);
}

void read_glm4moe(const ModelKeys& in, ModelConfig& config) {
  read_attention(in, config);
  read_experts(in, config);
  read_shared_experts(in, config);
}

void read_gpt_oss(const ModelKeys& in, ModelConfig& config) {
  read_attention(in, config);
  read_experts(in, config);
}

// What an unknown architecture says in the usual words. Only what readers of packs loop over must be in range.
void read_other(const ModelKeys& in, ModelConfig& config) {
  config.name = in.metadata().string_or("general.name", "");
  config.vocab = read_vocab(in, false);
  const uint32_t blocks = in.has("block_count") ? in.count("block_count", 0, kLayersMax) : 0;
  config.mtp_layers = in.any_count("nextn_predict_layers", kLayersMax);
  if (config.mtp_layers >= blocks) config.mtp_layers = 0;
  config.layers = blocks - config.mtp_layers;
  config.dense_layers = std::min(in.any_count("leading_dense_block_count", kLayersMax), config.layers);
  config.recurrent.assign(blocks, false);
  config.compress_ratio.assign(blocks, 0);
  config.hidden = in.any_count("embedding_length", kWidthMax);
  config.context = in.any_count("context_length", std::numeric_limits<int32_t>::max());
  config.heads = in.any_count("attention.head_count", kHeadsMax);
  config.kv_heads = in.any_count("attention.head_count_kv", kHeadsMax);
  config.head_dim = in.any_count("attention.key_length", kWidthMax);
  config.rotary_dim = in.any_count("rope.dimension_count", kWidthMax);
  config.experts = in.any_count("expert_count", kExpertsMax);
  config.experts_used = std::min(in.any_count("expert_used_count", kExpertsMax), config.experts);
  config.expert_ff = in.any_count("expert_feed_forward_length", kWidthMax);
  config.shared_ff = in.any_count("expert_shared_feed_forward_length", kWidthMax);
}

Architecture architecture_of(const std::string& name) {
  for (const Architecture known :
       {Architecture::kQwen3Moe, Architecture::kQwen3Next, Architecture::kQwen35Moe, Architecture::kQwen4Exp,
        Architecture::kDeepseek2, Architecture::kGptOss, Architecture::kGlm4Moe}) {
    if (name == architecture_name(known)) return known;
  }
  return Architecture::kOther;
}

}  // namespace

const char* architecture_name(Architecture architecture) {
  switch (architecture) {
    case Architecture::kQwen3Moe: return "qwen3moe";
    case Architecture::kQwen3Next: return "qwen3next";
    case Architecture::kQwen35Moe: return "qwen35moe";
    case Architecture::kQwen4Exp: return "qwen4exp";
    case Architecture::kDeepseek2: return "deepseek2";
    case Architecture::kGptOss: return "gpt-oss";
    case Architecture::kGlm4Moe: return "glm4moe";
    case Architecture::kOther: break;
  }
  return "other";
}

ModelConfig read_model_config(const Metadata& metadata) {
  ModelConfig config;
  config.architecture_text = metadata.string("general.architecture");
  // Projectors and adapters carry a model's architecture, but not its hyper-parameters.
  const std::string type = metadata.string_or("general.type", "model");
  config.architecture = type == "model" ? architecture_of(config.architecture_text) : Architecture::kOther;
  if (type != "model") {
    config.obstacle = fmt::format("the file is of type '{}', not a language model", type);
  }
  const ModelKeys in(metadata, config.architecture_text, config.obstacle);
  if (config.architecture == Architecture::kOther) {
    read_other(in, config);
    return config;
  }
  read_trunk(in, config);
  switch (config.architecture) {
    case Architecture::kQwen3Moe: read_qwen3moe(in, config); break;
    case Architecture::kQwen3Next:
    case Architecture::kQwen35Moe: read_qwen3next(in, config); break;
    case Architecture::kQwen4Exp: read_qwen4exp(in, config); break;
    case Architecture::kDeepseek2: read_deepseek2(in, config); break;
    case Architecture::kGptOss: read_gpt_oss(in, config); break;
    case Architecture::kGlm4Moe: read_glm4moe(in, config); break;
    case Architecture::kOther: break;
  }
  return config;
}

void require_runnable(const ModelConfig& config, const std::string& source) {
  const bool known = has_forward_pass(config.architecture);
  if (known && config.obstacle.empty()) return;
  std::string runnable;
  for (const Architecture architecture : kRunnable) {
    runnable += fmt::format("{}{}", runnable.empty() ? "" : " and ", architecture_name(architecture));
  }
  const bool is_model = config.architecture != Architecture::kOther || config.obstacle.empty();
  if (!is_model) {
    fail(ErrorKind::kUnsupported, "{}: {}: it can be packed, verified and unpacked, but not run", source,
         printable(config.obstacle));
  }
  if (!known) {
    fail(ErrorKind::kUnsupported,
         "{}: the architecture '{}' has no forward pass in this program: it can be packed, verified and unpacked, but "
         "not run; those that run are {}",
         source, printable(config.architecture_text, 60), runnable);
  }
  fail(ErrorKind::kUnsupported,
       "{}: {}, which this program cannot compute for {}: the model can be packed, verified and unpacked, but not run",
       source, printable(config.obstacle), architecture_name(config.architecture));
}

}  // namespace tierpack

// Hyper-parameters by architecture: config.json's names in, GGUF's out.
#include <algorithm>
#include <array>
#include <limits>

#include "base/printable.h"
#include "formats/hf_parts.h"
#include "formats/model_keys.h"

namespace tierpack {

namespace {

constexpr uint64_t kPositionsMax = std::numeric_limits<int32_t>::max();

struct ModelType {
  std::string_view hf;
  std::string_view gguf;
};

constexpr ModelType kModelTypes[] = {
    {"qwen3_moe", "qwen3moe"},      {"qwen3_next", "qwen3next"},
    {"qwen3_5_moe", "qwen35moe"},   {"qwen3_5_moe_text", "qwen35moe"},
    {"qwen4_exp", "qwen4exp"},      {"qwen4_exp_text", "qwen4exp"},
    {"deepseek_v2", "deepseek2"},   {"deepseek_v3", "deepseek2"},
    {"gpt_oss", "gpt-oss"},         {"glm4_moe", "glm4moe"},
};

std::string architecture_of(const HfObject& object, const std::string& type) {
  for (const ModelType& known : kModelTypes) {
    if (type == known.hf) return std::string(known.gguf);
  }
  std::string names;
  for (const ModelType& known : kModelTypes) names += fmt::format("{}{}", names.empty() ? "" : ", ", known.hf);
  object.unsupported("the model_type '{}' is not known; known are {}", printable(type, 60), names);
}

class HyperParameters {
 public:
  HyperParameters(const HfConfig& config, const HfIntegers& integers, bool has_mtp, Metadata& out)
      : config_(config),
        in_(config.text),
        integers_(integers),
        has_mtp_(has_mtp),
        out_(out, config.architecture + ".") {}

  void write() {
    blocks();
    out_.u32("context_length", in_.count("max_position_embeddings", 1, kPositionsMax));
    hidden_ = in_.count("hidden_size", 1, kWidthMax);
    out_.u32("embedding_length", hidden_);
    out_.f32("attention.layer_norm_rms_epsilon", positive("rms_norm_eps"));
    heads_ = in_.count("num_attention_heads", 1, kHeadsMax);
    out_.u32("attention.head_count", heads_);
    const std::string& name = config_.architecture;
    // Metadata has no key for it: every architecture here has one activation, and another would give other answers.
    if (const auto act = in_.find_string("hidden_act"); act && *act != "silu" && *act != "swish") {
      in_.unsupported("'hidden_act' is {}; {} is known with silu only", printable(*act), name);
    }
    if (name == "qwen3moe" && in_.find_flag("use_sliding_window").value_or(false)) {
      in_.unsupported("'use_sliding_window' is true; {} is known without a sliding window only", name);
    }
    if (name == "qwen3moe") qwen3moe();
    if (name == "qwen3next" || name == "qwen35moe") gated_delta_net();
    if (name == "qwen4exp") qwen4exp();
    if (name == "deepseek2") deepseek2();
    if (name == "gpt-oss") gpt_oss();
    if (name == "glm4moe") glm4moe();
  }

 private:
  double positive(const char* key) const {
    const double value = in_.number(key);
    if (!(value > 0)) in_.corrupt("'{}' is {}; it must be above 0", key, value);
    return value;
  }

  // Trunk blocks and, when the checkpoint has them, draft blocks behind them.
  void blocks() {
    layers_ = in_.count("num_hidden_layers", 1, kLayersMax);
    if (has_mtp_) {
      if (config_.architecture == "qwen3moe" || config_.architecture == "gpt-oss") {
        in_.unsupported("the checkpoint has draft blocks, which the architecture {} does not", config_.architecture);
      }
      const auto said = in_.find_count("mtp_num_hidden_layers", 0, kLayersMax);
      mtp_ = said ? *said : in_.find_count("num_nextn_predict_layers", 0, kLayersMax).value_or(1);
      if (mtp_ == 0) in_.corrupt("says that there are no draft blocks, but the checkpoint has tensors of one");
    }
    if (layers_ + mtp_ > kLayersMax) in_.corrupt("{} blocks, limit {}", layers_ + mtp_, kLayersMax);
    out_.u32("block_count", layers_ + mtp_);
    if (mtp_ > 0) out_.u32("nextn_predict_layers", mtp_);
  }

  // Heads with keys and values of one width, and the rotation of their first dimensions.
  void attention(std::optional<double> rotated_share) {
    const uint64_t kv_heads = in_.find_count("num_key_value_heads", 1, kHeadsMax).value_or(heads_);
    out_.u32("attention.head_count_kv", kv_heads);
    const auto said = in_.find_count("head_dim", 1, kWidthMax);
    if (!said && hidden_ % heads_ != 0) {
      in_.corrupt("'head_dim' is missing, and {} does not divide by {} heads", hidden_, heads_);
    }
    const uint64_t head_dim = said.value_or(hidden_ / heads_);
    out_.u32("attention.key_length", head_dim);
    out_.u32("attention.value_length", head_dim);
    if (rotated_share) {
      const double share = find_rope("partial_rotary_factor").value_or(*rotated_share);
      if (!(share > 0 && share <= 1)) {
        in_.corrupt("'partial_rotary_factor' is {}; it must be above 0 and at most 1", share);
      }
      out_.u32("rope.dimension_count", static_cast<uint64_t>(static_cast<double>(head_dim) * share));
    }
    rope();
  }

  // A number that newer files keep in rope_parameters and older ones beside it.
  std::optional<double> find_rope(const char* key) const {
    if (config_.rope) {
      if (const auto value = config_.rope->find_number(key)) return value;
    }
    return in_.find_number(key);
  }

  void rope() {
    const auto base = find_rope("rope_theta");
    if (!base) in_.corrupt("'rope_theta' is missing");
    if (!(*base > 0)) in_.corrupt("'rope_theta' is {}; it must be above 0", *base);
    out_.f32("rope.freq_base", *base);
    if (!config_.rope) return;
    const HfObject& rope = *config_.rope;
    auto type = rope.find_string("rope_type");
    if (!type) type = rope.find_string("type");
    if (!type || *type == "default" || *type == "mrope") return;
    if (*type != "yarn" && *type != "linear" && *type != "longrope") {
      rope.unsupported("rope of type '{}' is not known; known are yarn, linear and longrope", printable(*type, 40));
    }
    out_.string("rope.scaling.type", *type);
    out_.f32("rope.scaling.factor", rope.number("factor"));
    out_.u32("rope.scaling.original_context_length",
             rope.find_count("original_max_position_embeddings", 1, kPositionsMax));
    out_.f32("rope.scaling.yarn_beta_fast", rope.find_number("beta_fast"));
    out_.f32("rope.scaling.yarn_beta_slow", rope.find_number("beta_slow"));
    if (const auto all = rope.find_number("mscale_all_dim"); all && config_.architecture == "deepseek2") {
      out_.f32("rope.scaling.yarn_log_multiplier", 0.1 * *all);
    }
  }

  void sections() {
    if (!config_.rope || !config_.rope->has("mrope_section")) return;
    std::vector<uint64_t> sections = config_.rope->counts("mrope_section", kWidthMax, 4);
    if (sections.size() < 3) config_.rope->corrupt("'mrope_section' has {} sections, expected 3", sections.size());
    sections.resize(4);
    out_.array("rope.dimension_sections", ValueType::kI32, std::vector<int64_t>(sections.begin(), sections.end()));
  }

  void experts(const char* count_key, const char* width_key) {
    const uint64_t experts = in_.count(count_key, 1, kExpertsMax);
    out_.u32("expert_count", experts);
    out_.u32("expert_used_count", in_.count("num_experts_per_tok", 1, experts));
    out_.u32("expert_feed_forward_length", in_.count(width_key, 1, kWidthMax));
  }

  // A router that always normalises is not said to.
  void require_normalised() {
    if (!in_.find_flag("norm_topk_prob").value_or(true)) out_.flag("expert_weights_norm", false);
  }

  void qwen3moe() {
    attention(std::nullopt);
    out_.u32("feed_forward_length", in_.find_count("intermediate_size", 1, kWidthMax));
    experts("num_experts", "moe_intermediate_size");
    require_normalised();
    if (!in_.has("mlp_only_layers")) return;
    if (!in_.counts("mlp_only_layers", kLayersMax, kLayersMax).empty()) {
      in_.unsupported("'mlp_only_layers' is not empty");
    }
  }

  // Blocks with attention are every n-th, or listed.
  void layer_kinds() {
    auto interval = in_.find_count("full_attention_interval", 1, kLayersMax);
    const Json* types = in_.find("layer_types");
    recurrent_.assign(layers_ + mtp_, false);
    if (types == nullptr) {
      interval = interval.value_or(4);
      for (uint64_t i = 0; i < layers_; ++i) recurrent_[i] = (i + 1) % *interval != 0;
      out_.u32("full_attention_interval", *interval);
      return;
    }
    if (!types->is_array() || types->size() != layers_) in_.corrupt("'layer_types' is not a list of {} names", layers_);
    for (uint64_t i = 0; i < layers_; ++i) {
      const Json& type = (*types)[i];
      const std::string name = type.is_string() ? type.get<std::string>() : "";
      if (!name.ends_with("attention")) {
        in_.unsupported("layer {} is of a kind that is not known: '{}'", i, printable(name, 40));
      }
      recurrent_[i] = name == "linear_attention";
    }
    const auto first_full = std::find(recurrent_.begin(), recurrent_.begin() + static_cast<ptrdiff_t>(layers_), false);
    const uint64_t every = static_cast<uint64_t>(first_full - recurrent_.begin()) + 1;
    bool regular = every <= layers_;
    for (uint64_t i = 0; i < layers_; ++i) regular = regular && recurrent_[i] == ((i + 1) % every != 0);
    if (interval && (!regular || *interval != every)) {
      in_.corrupt("'layer_types' and 'full_attention_interval' contradict each other");
    }
    if (regular) {
      out_.u32("full_attention_interval", every);
    } else {
      out_.array("attention.recurrent_layers", ValueType::kBool, recurrent_);
    }
  }

  void delta_net_blocks() {
    const uint64_t width = in_.count("linear_value_head_dim", 1, kWidthMax);
    if (in_.count("linear_key_head_dim", 1, kWidthMax) != width) {
      in_.unsupported("heads of the delta net have keys and values of different widths");
    }
    const uint64_t v_heads = in_.count("linear_num_value_heads", 1, kHeadsMax);
    out_.u32("ssm.conv_kernel", in_.count("linear_conv_kernel_dim", 1, kKernelMax));
    out_.u32("ssm.state_size", width);
    out_.u32("ssm.group_count", in_.count("linear_num_key_heads", 1, kHeadsMax));
    out_.u32("ssm.time_step_rank", v_heads);
    if (v_heads * width > kPositionsMax) in_.corrupt("{} value heads of {} in the delta net", v_heads, width);
    out_.u32("ssm.inner_size", v_heads * width);
    layer_kinds();
  }

  void gated_delta_net() {
    attention(0.25);
    sections();
    experts("num_experts", "moe_intermediate_size");
    require_normalised();
    out_.u32("expert_shared_feed_forward_length", in_.count("shared_expert_intermediate_size", 1, kWidthMax));
    delta_net_blocks();
  }

  void qwen4exp() {
    gated_delta_net();
    if (const auto gate = in_.find_string("output_gate_type"); gate && *gate != "sigmoid") {
      in_.unsupported("'output_gate_type' is '{}', not sigmoid", printable(*gate, 40));
    }
    out_.u32("hyper_connection.count", in_.count("hc_count", 2, 64));
    out_.u32("hyper_connection.low_rank", in_.count("hc_lowrank", 1, kWidthMax));
    if (const auto ratio = in_.find_count("indexer_compress_ratio", 0, 1024)) {
      if (in_.find_count("indexer_kv_heads", 1, kHeadsMax).value_or(1) != 1) {
        in_.unsupported("the indexer has more than one key head");
      }
      out_.u32("attention.indexer.head_count", in_.count("indexer_n_heads", 1, kHeadsMax));
      out_.u32("attention.indexer.key_length", in_.count("indexer_head_dim", 1, kWidthMax));
      out_.u32("attention.indexer.top_k", in_.count("indexer_budget", 1, kPositionsMax));
      std::vector<uint64_t> ratios(layers_ + mtp_, 0);
      for (uint64_t i = 0; i < layers_; ++i) ratios[i] = recurrent_[i] ? 0 : *ratio;
      out_.array("attention.compress_ratios", ValueType::kU32, std::move(ratios));
    }
    write_hf_ngram_embedding(config_, integers_, layers_, out_);
  }

  void router(bool sigmoid_by_default) {
    const auto name = in_.find_string("scoring_func");
    if (name && *name != "sigmoid" && *name != "softmax") {
      in_.unsupported("'scoring_func' is '{}', neither softmax nor sigmoid", printable(*name, 40));
    }
    out_.u32("expert_gating_func", (name ? *name == "sigmoid" : sigmoid_by_default) ? uint64_t{2} : uint64_t{1});
    out_.f32("expert_weights_scale", in_.find_number("routed_scaling_factor"));
    out_.flag("expert_weights_norm", in_.find_flag("norm_topk_prob").value_or(false));
    out_.u32("expert_group_count", in_.find_count("n_group", 1, kExpertsMax));
    out_.u32("expert_group_used_count", in_.find_count("topk_group", 1, kExpertsMax));
    out_.u32("expert_shared_count", in_.find_count("n_shared_experts", 0, kExpertsMax));
    out_.u32("leading_dense_block_count", in_.find_count("first_k_dense_replace", 0, layers_).value_or(0));
    if (in_.find_count("moe_layer_freq", 1, kLayersMax).value_or(1) != 1) in_.unsupported("'moe_layer_freq' is not 1");
  }

  // Attention as the absorbed form has it: one key-value head, the compressed vector and the rotated part.
  void deepseek2() {
    const uint64_t rank = in_.count("kv_lora_rank", 1, kWidthMax);
    const uint64_t rotated = in_.count("qk_rope_head_dim", 2, kWidthMax);
    out_.u32("vocab_size", config_.vocab);
    out_.u32("attention.head_count_kv", uint64_t{1});
    out_.u32("attention.q_lora_rank", in_.find_count("q_lora_rank", 1, kWidthMax));
    out_.u32("attention.kv_lora_rank", rank);
    out_.u32("attention.key_length", rank + rotated);
    out_.u32("attention.value_length", rank);
    out_.u32("attention.key_length_mla", in_.count("qk_nope_head_dim", 1, kWidthMax / 2) + rotated);
    out_.u32("attention.value_length_mla", in_.count("v_head_dim", 1, kWidthMax));
    out_.u32("rope.dimension_count", rotated);
    rope();
    out_.u32("feed_forward_length", in_.count("intermediate_size", 1, kWidthMax));
    experts("n_routed_experts", "moe_intermediate_size");
    router(in_.find_string("model_type") == "deepseek_v3");
  }

  void gpt_oss() {
    attention(std::nullopt);
    out_.u32("attention.sliding_window", in_.find_count("sliding_window", 0, kPositionsMax));
    out_.u32("feed_forward_length", in_.count("intermediate_size", 1, kWidthMax));
    experts("num_local_experts", "intermediate_size");
  }

  void glm4moe() {
    attention(0.5);
    out_.u32("feed_forward_length", in_.count("intermediate_size", 1, kWidthMax));
    experts("n_routed_experts", "moe_intermediate_size");
    router(true);
  }

  const HfConfig& config_;
  const HfObject& in_;
  const HfIntegers& integers_;
  const bool has_mtp_;
  MetadataWriter out_;
  uint64_t layers_ = 0;
  uint64_t mtp_ = 0;
  uint64_t hidden_ = 0;
  uint64_t heads_ = 0;
  std::vector<bool> recurrent_;  // [layers_ + mtp_], of models with delta nets
};

}  // namespace

HfConfig open_hf_config(const Json& json, const std::string& source) {
  const HfObject root(json, source);
  const HfObject text = root.find_object("text_config").value_or(root);
  const auto inner = text.find_string("model_type");
  HfConfig config{root, text, architecture_of(root, inner ? *inner : root.string("model_type")), 0, std::nullopt};
  config.vocab = text.count("vocab_size", 1, kHfTokensMax);
  const char* const rope = text.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (auto object = text.find_object(rope)) config.rope.emplace(*object);
  return config;
}

void write_hf_hyper_parameters(const HfConfig& config, const HfIntegers& integers, bool has_mtp, Metadata& out) {
  HyperParameters(config, integers, has_mtp, out).write();
}

}  // namespace tierpack

#include "verify/inspect.h"

#include <cmath>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "verify/pack_picture.h"

namespace tierpack::verify {

namespace {

struct Options {
  std::string path;
  bool tensors = false;
  bool metadata = false;
  bool json = false;
  std::string svg;
};

// 23783424 -> "23.8 M".
std::string short_count(uint64_t n) {
  const char* const units[] = {"", " K", " M", " G", " T"};
  auto value = static_cast<double>(n);
  int unit = 0;
  for (; value >= 1000 && unit < 4; ++unit) value /= 1000;
  return unit == 0 ? format_count(n) : fmt::format("{:.3g}{}", value, units[unit]);
}

std::string type_of(const ExpertPart& part) { return dtype_name(part.dtype); }

bool same_experts(const ExpertLayer& a, const ExpertLayer& b) {
  return a.experts == b.experts && a.record_bytes == b.record_bytes && a.gate.dtype == b.gate.dtype &&
         a.up.dtype == b.up.dtype && a.down.dtype == b.down.dtype;
}

uint64_t vocabulary(const Inspection& model) {
  const MetaValue* tokens = model.metadata.find("tokenizer.ggml.tokens");
  return tokens != nullptr && tokens->is_array() ? tokens->array_size() : 0;
}

std::string head_line(const Inspection& model) {
  if (model.is_pack) {
    return fmt::format("pack written by tierpack {}, {} of {} source shard{}", model.tool_version, format_size(model.bytes()),
                       model.sources.size(), model.sources.size() == 1 ? "" : "s");
  }
  return fmt::format("GGUF v{}, {} in {} file{}", model.gguf_version, format_size(model.bytes()), model.files.size(),
                     model.files.size() == 1 ? "" : "s");
}

// A file's own text, with control characters escaped: it goes to a terminal.
std::string text_of(const Inspection& model, const char* key, const char* otherwise) {
  constexpr size_t kLongest = 200;
  const MetaValue* value = model.metadata.find(key);
  return value != nullptr ? value->text(kLongest) : otherwise;
}

// Why the model cannot be run; empty when it can.
std::string running_problem(const ModelConfig& config) {
  try {
    require_runnable(config, "cannot be run");
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

// Of an unknown architecture only what its metadata says.
void print_config(const ModelConfig& c, uint64_t expert_bytes_per_token) {
  if (c.layers > 0) {
    fmt::print("  shape      {} layers{}, hidden {}, vocabulary {}, context {}\n", c.layers,
               c.mtp_layers > 0 ? fmt::format(" and {} for drafting", c.mtp_layers) : "", format_count(c.hidden),
               format_count(c.vocab), format_count(c.context));
  }
  if (c.heads > 0 && c.head_dim > 0) {
    fmt::print("  attention  {} heads, {} of keys and values, {} wide, {} rotary, base {:g}\n", c.heads, c.kv_heads,
               c.head_dim, c.rotary_dim, c.rope_base);
  }
  if (c.experts > 0) {
    fmt::print("  experts    {} a layer, {} used, {} wide{}{}; {} a token\n", c.experts, c.experts_used, c.expert_ff,
               c.shared_ff > 0 ? fmt::format(", shared expert {} wide", c.shared_ff) : "",
               c.dense_layers > 0 ? fmt::format(", none in the first {} layers", c.dense_layers) : "",
               format_size(expert_bytes_per_token));
  }
}

void print_model(const Inspection& model) {
  const uint64_t parameters = model.dense.elements + model.experts.elements + model.rows.elements;
  fmt::print("{}: {}\n", model.path, head_line(model));
  fmt::print("  model      {} ({}), {} parameters\n", text_of(model, "general.name", "unnamed"),
             text_of(model, "general.architecture", "unknown architecture"), short_count(parameters));
  if (!model.config) {
    fmt::print("  note       {}\n", model.config_problem);
  } else {
    print_config(*model.config, model.expert_bytes_per_token());
    const std::string problem = running_problem(*model.config);
    if (!problem.empty()) fmt::print("  note       {}\n", problem);
  }
  const std::string chat = model.metadata.string_or("tokenizer.chat_template", "");
  fmt::print("  tokenizer  {}{}, {} tokens, {}\n", text_of(model, "tokenizer.ggml.model", "none"),
             model.metadata.has("tokenizer.ggml.pre") ? " / " + text_of(model, "tokenizer.ggml.pre", "") : "",
             format_count(vocabulary(model)),
             chat.empty() ? "no chat template" : fmt::format("chat template of {} bytes", format_count(chat.size())));
}

void print_sizes(const Inspection& model) {
  const auto total = static_cast<double>(model.dense.bytes + model.experts.bytes + model.rows.bytes);
  fmt::print("\n  {:<8} {:>8} {:>11} {:>10} {:>7} {:>6}\n", "class", "tensors", "parameters", "bytes", "share", "bits");
  const auto row = [&](const char* name, const SizeClass& item) {
    if (item.tensors == 0) return;
    fmt::print("  {:<8} {:>8} {:>11} {:>10} {:>5.1f} % {:>6.2f}\n", name, item.tensors, short_count(item.elements),
               format_size(item.bytes), 100.0 * static_cast<double>(item.bytes) / total, item.bits_per_weight());
  };
  row("dense", model.dense);
  row("experts", model.experts);
  row("rows", model.rows);
  fmt::print("\n");
  for (const auto& [type, item] : model.by_type) row(dtype_name(type), item);
}

void print_layers(const Inspection& model) {
  if (model.layers.empty()) return;
  fmt::print("\n  {:<8} {:>8} {:>10}  {:<7} {:<7} {:<7}\n", "layers", "experts", "an expert", "gate", "up", "down");
  for (size_t i = 0; i < model.layers.size();) {
    size_t end = i + 1;
    while (end < model.layers.size() && model.layers[end].layer == model.layers[end - 1].layer + 1 &&
           same_experts(model.layers[end], model.layers[i])) {
      ++end;
    }
    const ExpertLayer& first = model.layers[i];
    const std::string name =
        end == i + 1 ? fmt::format("{}", first.layer) : fmt::format("{}-{}", first.layer, model.layers[end - 1].layer);
    fmt::print("  {:<8} {:>8} {:>10}  {:<7} {:<7} {:<7}\n", name, first.experts, format_size(first.record_bytes),
               type_of(first.gate), type_of(first.up), type_of(first.down));
    i = end;
  }
}

void print_pack(const Inspection& model) {
  if (!model.is_pack) return;
  fmt::print("\n");
  for (const SourceShard& shard : model.sources) {
    fmt::print("  source     {}  {:>8}  {}\n", shard.sha256.hex(), format_size(shard.bytes), shard.path);
  }
  fmt::print("  routing    {}\n", model.routing_id.hex());
  if (!model.profile) {
    fmt::print("  order      natural: no profile\n");
    return;
  }
  fmt::print("  order      hottest first by profile {}, {} tokens of {} {}\n", model.profile->id().hex().substr(0, 12),
             format_count(model.profile->tokens()), model.profile->corpora.size(),
             model.profile->corpora.size() == 1 ? "corpus" : "corpora");
  std::string points;
  for (const CoveragePoint& point : model.coverage) {
    points += fmt::format("{}{:g} % of bytes {:.1f} %", points.empty() ? "" : ", ", point.bytes_share * 100, point.uses_share * 100);
  }
  fmt::print("  coverage   of all uses: {}\n", points);
}

void print_tensors(const Inspection& model) {
  fmt::print("\n  {:<44} {:<8} {:<24} {:>12}  file\n", "tensor", "type", "shape", "bytes");
  for (const TensorInfo& tensor : model.tensors) {
    fmt::print("  {:<44} {:<8} {:<24} {:>12}  {}\n", tensor.name, dtype_name(tensor.dtype), tensor.shape.text(),
               format_count(tensor.bytes), tensor.shard + 1);
  }
}

void print_metadata(const Inspection& model) {
  fmt::print("\n");
  for (const auto& [key, value] : model.metadata.entries()) fmt::print("  {} = {}\n", key, value.text(100));
}

Json class_json(const SizeClass& item) {
  return {{"tensors", item.tensors}, {"parameters", item.elements}, {"bytes", item.bytes}};
}

Json shape_json(const Shape& shape) {
  Json out = Json::array();
  for (uint32_t i = 0; i < shape.dims; ++i) out.push_back(shape.ne[i]);
  return out;
}

Json config_json(const ModelConfig& c) {
  return {{"layers", c.layers},           {"mtp_layers", c.mtp_layers}, {"dense_layers", c.dense_layers},
          {"hidden", c.hidden},
          {"vocab", c.vocab},             {"context", c.context},       {"heads", c.heads},
          {"kv_heads", c.kv_heads},       {"head_dim", c.head_dim},     {"rotary_dim", c.rotary_dim},
          {"rope_base", c.rope_base},     {"experts", c.experts},       {"experts_used", c.experts_used},
          {"expert_ff", c.expert_ff},     {"shared_ff", c.shared_ff}};
}

void print_json(const Inspection& model, const Options& options) {
  Json out{{"path", model.path}, {"what", model.is_pack ? "pack" : "gguf"}, {"bytes", model.bytes()}};
  if (!model.is_pack) out["gguf_version"] = model.gguf_version;
  out["architecture"] = model.metadata.string_or("general.architecture", "");
  out["name"] = model.metadata.string_or("general.name", "");
  out["config"] = model.config ? config_json(*model.config) : Json(nullptr);
  if (!model.config) out["config_problem"] = model.config_problem;
  const std::string problem = model.config ? running_problem(*model.config) : model.config_problem;
  out["runnable"] = problem.empty();
  if (!problem.empty()) out["running_problem"] = problem;
  out["tokenizer"] = {{"model", model.metadata.string_or("tokenizer.ggml.model", "")},
                      {"pre", model.metadata.string_or("tokenizer.ggml.pre", "")},
                      {"tokens", vocabulary(model)},
                      {"chat_template_bytes", model.metadata.string_or("tokenizer.chat_template", "").size()}};
  out["classes"] = {{"dense", class_json(model.dense)}, {"experts", class_json(model.experts)}, {"rows", class_json(model.rows)}};
  out["types"] = Json::object();
  for (const auto& [type, item] : model.by_type) out["types"][dtype_name(type)] = class_json(item);
  out["expert_bytes_per_token"] = model.expert_bytes_per_token();
  out["expert_layers"] = Json::array();
  for (const ExpertLayer& layer : model.layers) {
    out["expert_layers"].push_back({{"layer", layer.layer}, {"experts", layer.experts}, {"record_bytes", layer.record_bytes},
                                    {"gate", type_of(layer.gate)}, {"up", type_of(layer.up)}, {"down", type_of(layer.down)}});
  }
  out["files"] = Json::array();
  for (const InspectedFile& file : model.files) out["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
  if (model.is_pack) {
    out["tool_version"] = model.tool_version;
    out["routing_id"] = model.routing_id.hex();
    out["sources"] = Json::array();
    for (const SourceShard& shard : model.sources) {
      out["sources"].push_back({{"path", shard.path}, {"bytes", shard.bytes}, {"sha256", shard.sha256.hex()}});
    }
    out["profile_id"] = model.profile ? Json(model.profile->id().hex()) : Json(nullptr);
    if (model.profile) {
      out["profile_tokens"] = model.profile->tokens();
      out["coverage"] = Json::array();
      for (const CoveragePoint& point : model.coverage) {
        out["coverage"].push_back({{"bytes_share", point.bytes_share}, {"uses_share", point.uses_share}});
      }
    }
  }
  if (options.tensors) {
    out["tensors"] = Json::array();
    for (const TensorInfo& tensor : model.tensors) {
      out["tensors"].push_back({{"name", tensor.name}, {"type", dtype_name(tensor.dtype)}, {"shape", shape_json(tensor.shape)},
                                {"bytes", tensor.bytes}, {"file", tensor.shard}, {"offset", tensor.offset}});
    }
  }
  if (options.metadata) {
    out["metadata"] = Json::object();
    for (const auto& [key, value] : model.metadata.entries()) out["metadata"][key] = value.text(1000);
  }
  std::fputs(dump_json(out).c_str(), stdout);
}

}  // namespace

CommandRun setup_inspect_with(CLI::App& app, RemoteOpener remote) {
  const auto options = std::make_shared<Options>();
  app.add_option("PATH", options->path, "GGUF file, first shard, directory, pack, or a remote reference")->required();
  app.add_flag("--tensors", options->tensors, "List every tensor");
  app.add_flag("--metadata", options->metadata, "List every metadata key");
  app.add_flag("--json", options->json, "Print one JSON object");
  app.add_option("--svg", options->svg, "Write a picture: sizes, and how often each expert is used");
  app.footer(
      "Reads headers only.\n"
      "Examples:\n"
      "  tierpack inspect models/pebble --tensors\n"
      "  tierpack inspect pebble.tierpack --svg pebble.svg");
  return [options, remote = std::move(remote)] {
    const Inspection model = inspect_path(options->path, remote);
    if (!options->svg.empty()) write_file_atomically(options->svg, as_bytes(pack_picture(model)));
    if (options->json) {
      print_json(model, *options);
      return 0;
    }
    print_model(model);
    print_sizes(model);
    print_layers(model);
    print_pack(model);
    if (options->tensors) print_tensors(model);
    if (options->metadata) print_metadata(model);
    return 0;
  };
}

CommandRun setup_inspect(CLI::App& app) { return setup_inspect_with(app, {}); }

}  // namespace tierpack::verify

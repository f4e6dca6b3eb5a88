// The part of a checkpoint's configuration that says how it was quantised.
#include "base/json.h"
#include "formats/quant_scheme.h"

namespace tierpack {

namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{64} << 20;

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found != object.end() && !found->is_null() ? &*found : nullptr;
}

void read_string(const Json& object, const char* key, std::string& out) {
  if (const Json* value = member(object, key); value != nullptr && value->is_string()) out = value->get<std::string>();
}

void read_block(const Json* value, QuantConfig& config, const std::string& source) {
  if (value == nullptr) return;
  const auto valid = [](const Json& n) { return n.is_number_unsigned() && n.get<uint64_t>() > 0; };
  if (!value->is_array() || value->size() != 2 || !valid((*value)[0]) || !valid((*value)[1])) {
    fail(ErrorKind::kCorrupt, "{}: the size of FP8 blocks: expected two positive integers, found {}", source,
         value->dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80));
  }
  config.block_rows = (*value)[0].get<uint64_t>();
  config.block_columns = (*value)[1].get<uint64_t>();
}

void read_model_config(const Json& root, QuantConfig& config, const std::string& source) {
  const Json* quant = member(root, "quantization_config");
  if (const Json* text = member(root, "text_config"); quant == nullptr && text != nullptr) {
    quant = member(*text, "quantization_config");
  }
  if (quant == nullptr) return;
  read_string(*quant, "quant_method", config.method);
  read_string(*quant, "format", config.algorithm);
  read_string(*quant, "quant_algo", config.algorithm);
  read_block(member(*quant, "weight_block_size"), config, source);
  const Json* groups = member(*quant, "config_groups");
  if (groups == nullptr || !groups->is_object()) return;
  for (const auto& [name, group] : groups->items()) {
    if (const Json* weights = member(group, "weights")) read_block(member(*weights, "block_structure"), config, source);
  }
}

}  // namespace

QuantConfig parse_quant_config(std::string_view config_json, std::string_view hf_quant_config_json,
                               const std::string& source) {
  QuantConfig config;
  if (!hf_quant_config_json.empty()) {
    const std::string where = source + "/hf_quant_config.json";
    const Json root = parse_json(hf_quant_config_json, where);
    if (const Json* producer = member(root, "producer")) read_string(*producer, "name", config.method);
    if (const Json* quant = member(root, "quantization")) read_string(*quant, "quant_algo", config.algorithm);
  }
  if (!config_json.empty()) {
    const std::string where = source + "/config.json";
    read_model_config(parse_json(config_json, where), config, where);
  }
  return config;
}

QuantConfig read_quant_config(const std::filesystem::path& directory) {
  const auto text_of = [&](const char* name) {
    std::error_code ignored;
    const std::filesystem::path path = directory / name;
    return std::filesystem::exists(path, ignored) ? read_text_file(path, kMaxConfigBytes) : std::string();
  };
  return parse_quant_config(text_of("config.json"), text_of("hf_quant_config.json"), directory.string());
}

}  // namespace tierpack

#include "formats/hf_metadata.h"

#include <limits>

#include "base/error.h"
#include "formats/hf_parts.h"
#include "formats/model_config.h"

namespace tierpack {

namespace {

constexpr size_t kNameBytesMax = 200;

// "Qwen/Qwen3-30B-A3B" and paths of whoever saved the model: the last part.
std::string last_part(std::string name) {
  while (!name.empty() && name.back() == '/') name.pop_back();
  return name.substr(name.rfind('/') + 1).substr(0, kNameBytesMax);
}

void write_general(const HfCheckpointTexts& texts, const HfConfig& config, Metadata& out) {
  MetadataWriter general(out, "general.");
  general.string("architecture", config.architecture);
  general.string("type", "model");
  std::string name = texts.name;
  if (name.empty()) name = last_part(config.root.find_string("_name_or_path").value_or(""));
  if (!name.empty()) general.string("name", name);
  general.u32("quantization_version", uint64_t{2});
}

// How the model's authors sample from it.
void write_sampling(const HfCheckpointTexts& texts, Metadata& out) {
  if (texts.generation_config.empty()) return;
  const std::string source = texts.source + "/generation_config.json";
  const Json json = parse_hf_json(texts.generation_config, source);
  const HfObject in(json, source);
  if (!in.find_flag("do_sample").value_or(true)) return;
  const auto write = [&](const char* key, const char* gguf, double high) {
    const auto value = in.find_number(key);
    if (!value) return;
    if (!(*value >= 0 && *value <= high)) in.corrupt("'{}' is {}; it must be from 0 to {}", key, *value, high);
    MetadataWriter(out, "general.sampling.").f32(gguf, *value);
  };
  write("temperature", "temp", 100);
  write("top_p", "top_p", 1);
  write("min_p", "min_p", 1);
  write("repetition_penalty", "penalty_repeat", 100);
  if (const auto top_k = in.find_count("top_k", 0, std::numeric_limits<int32_t>::max())) {
    out.add("general.sampling.top_k", MetaValue::scalar(ValueType::kI32, static_cast<int64_t>(*top_k)));
  }
}

}  // namespace

Metadata metadata_from_hf(const HfCheckpointTexts& texts, const HfIntegers& integers, bool has_mtp) {
  const std::string source = texts.source + "/config.json";
  if (texts.config.empty()) fail(ErrorKind::kCorrupt, "{}: is missing or empty", source);
  const Json json = parse_hf_json(texts.config, source);
  const HfConfig config = open_hf_config(json, source);
  Metadata out(texts.source);
  write_general(texts, config, out);
  write_sampling(texts, out);
  write_hf_hyper_parameters(config, integers, has_mtp, out);
  write_hf_tokenizer(texts, config, out);
  read_model_config(out);
  return out;
}

}  // namespace tierpack

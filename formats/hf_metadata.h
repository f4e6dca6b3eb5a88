// The metadata of a Hugging Face checkpoint in GGUF's vocabulary, as a converter would write it, so that the rest of
// the program does not know where a model came from. Facts: docs/hf_metadata.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/metadata.h"

namespace tierpack {

// Contents of a checkpoint's files; empty when there is no such file.
struct HfCheckpointTexts {
  std::string config;             // config.json
  std::string generation_config;  // generation_config.json
  std::string tokenizer;          // tokenizer.json
  std::string tokenizer_config;   // tokenizer_config.json
  std::string chat_template_jinja;
  std::string merges;  // merges.txt, used without tokenizer.json
  std::string vocab;   // vocab.json, used without tokenizer.json
  std::string name;    // general.name; config.json's own name when empty
  std::string source;  // for messages
};

// Reads a small integer tensor of the checkpoint by its full name; nullopt when there is none of that name.
using HfIntegers = std::function<std::optional<std::vector<int64_t>>(std::string_view tensor)>;

// `has_mtp`: the checkpoint holds tensors of draft blocks; block_count then includes them. What read_model_config says
// of the result holds. Throws kUnsupported for a model_type or a tokenizer that this program does not know (naming it),
// kCorrupt for texts that are not what they must be or contradict each other.
Metadata metadata_from_hf(const HfCheckpointTexts& texts, const HfIntegers& integers, bool has_mtp);

}  // namespace tierpack

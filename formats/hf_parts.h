// The parts that metadata_from_hf puts together. Used by hf_*.cpp alone.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/hf_metadata.h"
#include "formats/hf_values.h"

namespace tierpack {

// config.json: the language model's own object, and the whole, which are one for models without other towers.
struct HfConfig {
  HfObject root;
  HfObject text;
  std::string architecture;  // of GGUF
  uint64_t vocab = 0;
  std::optional<HfObject> rope;  // rope_parameters or rope_scaling
};

// Throws kUnsupported for a model_type without an architecture here.
HfConfig open_hf_config(const Json& json, const std::string& source);

// All keys below the architecture's name.
void write_hf_hyper_parameters(const HfConfig& config, const HfIntegers& integers, bool has_mtp, Metadata& out);

// ple.* of qwen4exp: nothing when no layer has an n-gram embedding.
void write_hf_ngram_embedding(const HfConfig& config, const HfIntegers& integers, uint64_t layers, MetadataWriter& out);

// tokenizer.*: the vocabulary is padded to config.vocab. Throws kUnsupported for anything but byte-level BPE with a
// pre-tokenizer that has a name.
void write_hf_tokenizer(const HfCheckpointTexts& texts, const HfConfig& config, Metadata& out);

// How a tokenizer cuts text before merging.
struct HfSplitting {
  std::vector<std::string> expressions;  // in order
  bool byte_level = false;
  bool ignore_merges = false;
};

// The "pre_tokenizer" of a tokenizer.json. Throws kUnsupported for parts of an unknown kind.
HfSplitting read_hf_splitting(const HfObject& pre_tokenizer);

// The name that GGUF has for it. Throws kUnsupported quoting the expressions when it has none.
std::string pre_tokenizer_name(const HfSplitting& splitting, const std::string& architecture,
                               const std::string& source);

}  // namespace tierpack

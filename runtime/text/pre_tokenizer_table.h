// The pre-tokenizers by name: regular expressions as models' own tokenizers define them. Used by pre_tokenizer.cpp
// alone.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace tierpack::text {

struct PreTokenizerRules {
  std::vector<std::string_view> names;  // values of tokenizer.ggml.pre
  std::vector<std::string_view> expressions;
  bool ignore_merges = false;
  bool add_bos = false;
};

// All of them; built once.
std::span<const PreTokenizerRules> pre_tokenizer_rules();

}  // namespace tierpack::text

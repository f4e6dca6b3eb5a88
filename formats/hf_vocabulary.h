// The tokens of a Hugging Face tokenizer, as they are gathered from its files. Used by hf_tokenizer.cpp alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/metadata.h"

namespace tierpack {

class HfVocabulary {
 public:
  // `size`: tokens of the model; ids from there on are refused.
  HfVocabulary(uint64_t size, std::string source) : size_(size), source_(std::move(source)) {}

  // All throw kCorrupt for two texts of one id, or an id outside the model.
  void add(std::string_view text, uint64_t id);
  // An added token: it may repeat what is there with the same text, then as an added one.
  void add_added(std::string_view text, uint64_t id, bool special);
  bool has(uint64_t id) const { return id < kinds_.size() && kinds_[id] != kHole; }

  // Everything was added: throws kCorrupt for one text of two ids, or when there are no tokens. find() works from now
  // on.
  void close();
  std::optional<uint64_t> find(std::string_view text) const;

  // Throws kCorrupt unless both parts and what they make are tokens.
  void add_merge(std::string_view left, std::string_view right);

  // tokenizer.ggml.tokens, token_type and merges; ids without a token become unused "[PADn]".
  void write(Metadata& out);

 private:
  static constexpr uint8_t kHole = 0;
  void put(std::string_view text, uint64_t id, uint8_t kind);

  uint64_t size_;
  std::string source_;
  std::vector<std::string> texts_;
  std::vector<uint8_t> kinds_;  // values of tokenizer.ggml.token_type, or kHole
  std::vector<uint32_t> by_text_;
  std::vector<std::string> merges_;
};

}  // namespace tierpack

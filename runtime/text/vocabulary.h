// The token table of a tokenizer: texts, kinds, the bytes each token puts into output text, and which tokens end a
// generation. Read from tokenizer.ggml.* once; immutable afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/metadata.h"

namespace tierpack::text {

// Values of tokenizer.ggml.token_type.
enum class TokenKind : uint8_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

class Vocabulary {
 public:
  // Throws kCorrupt for tables that contradict each other. Special ids beyond the vocabulary count as absent.
  explicit Vocabulary(const Metadata& metadata);
  Vocabulary(const Vocabulary&) = delete;  // ids_ refers to texts_
  Vocabulary& operator=(const Vocabulary&) = delete;

  uint32_t size() const { return static_cast<uint32_t>(texts_.size()); }
  const std::string& text(uint32_t id) const { return texts_[id]; }
  TokenKind kind(uint32_t id) const { return kinds_[id]; }
  // The last id with this text.
  std::optional<uint32_t> find(std::string_view text) const;

  // Not part of output text: control, unknown and unused tokens.
  bool is_hidden(uint32_t id) const;
  // What the token stands for: decoded from the byte alphabet, or literally for added tokens. Hidden ones included.
  std::string_view bytes(uint32_t id) const;

  const std::vector<uint32_t>& end_tokens() const { return end_tokens_; }  // ascending
  std::optional<uint32_t> bos() const { return bos_; }
  std::optional<uint32_t> eos() const { return eos_; }
  std::optional<uint32_t> unknown() const { return unknown_; }

 private:
  void read_kinds(const Metadata& metadata);
  void decode_texts();
  std::optional<uint32_t> special_id(const Metadata& metadata, std::string_view name) const;
  void find_end_tokens(const Metadata& metadata);

  std::vector<std::string> texts_;
  std::vector<TokenKind> kinds_;
  std::unordered_map<std::string_view, uint32_t> ids_;
  std::string bytes_;               // of all tokens, joined
  std::vector<uint64_t> bytes_at_;  // size() + 1 borders in bytes_
  std::vector<uint32_t> end_tokens_;
  std::optional<uint32_t> bos_, eos_, unknown_;
};

}  // namespace tierpack::text

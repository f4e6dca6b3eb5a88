// Text to token ids and back, from GGUF metadata (tokenizer.ggml.*). Byte-level BPE ("gpt2" models); immutable after
// construction and safe to share between threads. What is defined here and where it parts from other implementations:
// docs/text.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/metadata.h"

namespace tierpack::text {

class Tokenizer {
 public:
  // Throws kUnsupported for a tokenizer model or pre-tokenizer we do not have (naming it), kCorrupt for tables that
  // contradict each other.
  static Tokenizer from_metadata(const Metadata& metadata);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Whether the text of control tokens ("<|im_end|>") in `text` becomes those tokens. User-defined tokens such as
  // <think> always do. Invalid UTF-8 is read as U+FFFD.
  enum class Special { kParse, kAsText };
  // Adds nothing in front or behind. Throws kCapacity for a text that exceeds the limits of the pre-tokenizer.
  std::vector<uint32_t> encode(std::string_view text, Special special) const;
  // encode(), with bos in front if adds_bos() and the text does not begin with it (chat templates often write it).
  std::vector<uint32_t> encode_prompt(std::string_view text, Special special) const;

  // Bytes of a token as they appear in output text; control tokens are empty. Throws kUsage for an id >= size(), as do
  // the other functions that take ids.
  std::string_view token_bytes(uint32_t id) const;
  bool is_control(uint32_t id) const;  // control, unknown and unused tokens: no part of output text
  // With control tokens as their text, or without them.
  std::string decode(std::span<const uint32_t> ids, bool with_control = false) const;

  uint32_t size() const;                         // vocabulary
  bool is_end_of_generation(uint32_t id) const;  // eos, eot and the well-known end tokens
  std::vector<uint32_t> end_tokens() const;      // ascending
  int64_t bos() const;                           // -1 = none
  int64_t eos() const;
  bool adds_bos() const;
  // Id of a token by its text as the vocabulary has it ("<|im_end|>", "Ġthe"), -1 = none.
  int64_t find(std::string_view token_text) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Collects token bytes and gives out only whole UTF-8 characters.
class Utf8Stream {
 public:
  // Appends bytes and returns the longest prefix that ends on a character boundary; invalid sequences become U+FFFD.
  std::string push(std::string_view bytes);
  std::string finish();  // what is left, as U+FFFD if incomplete

 private:
  std::string pending_;
};

}  // namespace tierpack::text

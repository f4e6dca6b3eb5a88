// From a conversation to prompt ids: the model's chat template, then its tokenizer.
//
// Only the template writes control tokens. Text inside messages and tools that spells one ("<|im_end|>") stays text, so
// that nobody who controls a part of a message can end a turn or open another.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/metadata.h"
#include "runtime/reasoning_splitter.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace tierpack {

struct ChatPrompt {
  std::vector<uint32_t> ids;
  ReasoningSplitter::Start reasoning = ReasoningSplitter::Start::kAnswer;
};

// Immutable after construction; safe to share between threads.
class ChatFormat {
 public:
  static bool available(const Metadata& metadata);  // whether the model brings a chat template
  // Keeps a reference to `tokenizer`. Throws kUsage when the model brings no template, and what ChatTemplate throws.
  ChatFormat(const Metadata& metadata, const text::Tokenizer& tokenizer);

  // `variables_json`: a JSON object with messages (content as strings) and any template arguments; bos_token and
  // eos_token are added, and add_generation_prompt = true unless given. System messages at the beginning become one.
  // Later ones, which many templates refuse or silently drop, are then given as the user's. Throws kUsage when the
  // template refuses the messages.
  ChatPrompt prompt(std::string_view variables_json) const;
  // The text that prompt() tokenizes, for people.
  std::string text(std::string_view variables_json) const;

 private:
  std::string guard(std::string text, std::string_view mark) const;
  // With `mark` still in it.
  std::string render(std::string_view variables_json, std::string& mark) const;
  size_t control_at(std::string_view text, size_t position, uint32_t& id) const;
  std::vector<uint32_t> encode_guarded(std::string_view text, std::string_view mark) const;

  struct Control {
    std::string text;
    uint32_t id;
  };
  const text::Tokenizer* tokenizer_;
  text::ChatTemplate template_;
  std::unordered_map<char, std::vector<Control>> controls_;  // by first byte, longest first
  std::string bos_;
  std::string eos_;
  bool thinks_ = false;  // <think> is a token of this model
};

}  // namespace tierpack

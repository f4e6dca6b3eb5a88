// Chat templates: the Jinja subset that model repositories use, in an interpreter of our own without access to anything
// but the values given, bounded in time, depth and output. Behaves as Jinja2 with trim_blocks and lstrip_blocks, as
// transformers sets it up.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tierpack::text {

class ChatTemplate {
 public:
  // Throws kUnsupported with line and what is not understood, kCorrupt for a syntax error.
  explicit ChatTemplate(std::string source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Renders with `variables`, a JSON object text: messages, tools, add_generation_prompt, bos_token, eos_token and any
  // template arguments (enable_thinking, ...). raise_exception in the template becomes kUsage with its message.
  std::string render(std::string_view variables_json) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tierpack::text

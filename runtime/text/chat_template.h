// Chat templates: the Jinja subset that model repositories use, in an interpreter of our own without access to anything
// but the values given, bounded in time, depth and output. Behaves as Jinja2 with trim_blocks and lstrip_blocks, as
// transformers sets it up: immutable sandbox, loop controls, its tojson, raise_exception, strftime_now and generation
// tags. What is left out: docs/text.md. Immutable after construction and safe to share between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tierpack::text {

class ChatTemplate {
 public:
  // Throws kUnsupported with line and what is not understood, kCorrupt for a syntax error.
  explicit ChatTemplate(std::string source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Renders with `variables`, a JSON object text: messages, tools (null for none), add_generation_prompt, bos_token,
  // eos_token and any template arguments (enable_thinking, ...). Arguments of tool calls should be objects, not JSON in
  // a string. kUsage: raise_exception in the template, with its message, and whatever else the template refuses, with
  // the line; kCorrupt: no JSON; kCapacity: the limits on time and memory.
  std::string render(std::string_view variables_json) const;
  // The same at another time (Unix seconds), for templates that ask for the date.
  std::string render(std::string_view variables_json, int64_t now) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tierpack::text

// Cuts a template into tokens as Jinja2 does with trim_blocks and lstrip_blocks: the newline after a block or comment
// tag goes, and so do the blanks before one that begins a line; "-" on either side of a tag strips all white space
// there, "+" keeps it. Line ends are \n from here on, and one at the very end of the template is dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tierpack::text::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t line = 1;
  std::string text;  // data, a name, an operator, or a string's value
  int64_t integer = 0;
  double real = 0;

  bool is_operator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
};

// The last token is kEnd. Throws kCorrupt for what Jinja2 refuses, naming the line.
std::vector<Token> tokenize(std::string_view source);

// "chat template, line 3: message", of kind kCorrupt for syntax errors.
[[noreturn]] void fail_syntax(uint32_t line, const std::string& message);
[[noreturn]] void fail_unsupported(uint32_t line, const std::string& message);

}  // namespace tierpack::text::jinja

#include "runtime/text/template_lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "runtime/text/unicode.h"
#include "runtime/text/utf8.h"

namespace tierpack::text::jinja {

void fail_syntax(uint32_t line, const std::string& message) {
  fail(ErrorKind::kCorrupt, "chat template, line {}: {}", line, message);
}

void fail_unsupported(uint32_t line, const std::string& message) {
  fail(ErrorKind::kUnsupported, "chat template, line {}: {}", line, message);
}

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string normalized_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t at = 0; at < source.size(); ++at) {
    if (source[at] == '\r') {
      out += '\n';
      if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
    } else {
      out += source[at];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized_lines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) next_part();
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  Token& add(TokenKind kind, std::string text = {}) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    return tokens_.emplace_back(std::move(token));
  }

  bool looking_at(std::string_view text, size_t at) const { return source_.compare(at, text.size(), text) == 0; }

  void advance_to(size_t at) {
    line_ += static_cast<uint32_t>(
        std::count(source_.begin() + static_cast<ptrdiff_t>(at_), source_.begin() + static_cast<ptrdiff_t>(at), '\n'));
    at_ = at;
  }

  // Where white space that begins at `at` ends, and where the white space that ends at `at` begins.
  size_t after_space(size_t at) const {
    while (at < source_.size()) {
      const CodePoint code = decode_utf8(source_, at);
      if (!is_python_space(code.value)) break;
      at += code.length;
    }
    return at;
  }
  static std::string_view without_trailing_space(std::string_view text) {
    while (!text.empty()) {
      size_t start = text.size() - 1;
      while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
      if (!is_python_space(decode_utf8(text, start).value)) break;
      text.remove_suffix(text.size() - start);
    }
    return text;
  }

  // Data up to a tag whose opening has this sign ('-', '+' or 0).
  void add_data(std::string_view text, char sign, bool before_variable) {
    if (sign == '-') {
      text = without_trailing_space(text);
    } else if (sign != '+' && !before_variable) {
      const size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
      const std::string_view last = text.substr(line);
      if ((line > 0 || at_line_start_) && !last.empty() && without_trailing_space(last).empty()) {
        text = text.substr(0, line);
      }
    }
    if (!text.empty()) add(TokenKind::kData, std::string(text));
  }

  static char sign_at(const std::string& source, size_t at) {
    return at < source.size() && (source[at] == '-' || source[at] == '+') ? source[at] : '\0';
  }

  // The end of a tag: `close`, with its sign, and what it takes along; npos if it is not here.
  size_t tag_end(size_t at, std::string_view close, bool plus_allowed, bool trims) const {
    const char sign = sign_at(source_, at);
    if (sign == '+' && !plus_allowed) return std::string::npos;
    const size_t begin = at + (sign != '\0');
    if (!looking_at(close, begin)) return std::string::npos;
    const size_t end = begin + close.size();
    if (sign == '-') return after_space(end);
    return sign == '\0' && trims && end < source_.size() && source_[end] == '\n' ? end + 1 : end;
  }

  void finish_tag(size_t end) {
    at_line_start_ = end > 0 && source_[end - 1] == '\n';
    advance_to(end);
  }

  void next_part() {
    size_t open = at_;
    while (true) {
      open = source_.find('{', open);
      if (open == std::string::npos || open + 1 >= source_.size()) {
        add(TokenKind::kData, source_.substr(at_));
        advance_to(source_.size());
        return;
      }
      if (std::string_view("%{#").find(source_[open + 1]) != std::string_view::npos) break;
      ++open;
    }
    const char type = source_[open + 1];
    const char sign = sign_at(source_, open + 2);
    const size_t inside = open + 2 + (sign != '\0');
    add_data(std::string_view(source_).substr(at_, open - at_), sign, type == '{');
    advance_to(open);
    if (type == '#') {
      comment(inside);
    } else if (type == '%' && !raw(inside)) {
      add(TokenKind::kBlockBegin);
      advance_to(inside);
      tag("%}", TokenKind::kBlockEnd);
    } else if (type == '{') {
      add(TokenKind::kVariableBegin);
      advance_to(inside);
      tag("}}", TokenKind::kVariableEnd);
    }
  }

  void comment(size_t at) {
    for (; at < source_.size(); ++at) {
      const size_t end = tag_end(at, "#}", true, true);
      if (end != std::string::npos) return finish_tag(end);
    }
    fail_syntax(line_, "missing end of comment tag");
  }

  // {% raw %} ... {% endraw %}; false if there is no such tag here.
  bool raw(size_t at) {
    at = after_space(at);
    if (!looking_at("raw", at)) return false;
    const size_t begin = tag_end(after_space(at + 3), "%}", false, false);
    if (begin == std::string::npos) return false;
    for (size_t open = source_.find("{%", begin); open != std::string::npos; open = source_.find("{%", open + 1)) {
      const char sign = sign_at(source_, open + 2);
      const size_t name = after_space(open + 2 + (sign != '\0'));
      if (!looking_at("endraw", name)) continue;
      const size_t end = tag_end(after_space(name + 6), "%}", true, true);
      if (end == std::string::npos) continue;
      at_line_start_ = source_[begin - 1] == '\n';
      add_data(std::string_view(source_).substr(begin, open - begin), sign, false);
      finish_tag(end);
      return true;
    }
    fail_syntax(line_, "missing end of raw directive");
  }

  void tag(std::string_view close, TokenKind end_kind) {
    std::string brackets;  // open ones; a tag does not end inside
    const bool block = end_kind == TokenKind::kBlockEnd;
    while (true) {
      if (brackets.empty()) {
        const size_t end = tag_end(at_, close, block, block);
        if (end != std::string::npos) {
          add(end_kind);
          return finish_tag(end);
        }
      }
      if (at_ >= source_.size()) fail_syntax(line_, "the template ends inside a tag");
      const size_t space_end = after_space(at_);
      if (space_end > at_) {
        advance_to(space_end);
      } else if (!number() && !name() && !string()) {
        punctuation(brackets);
      }
    }
  }

  // The end of digits separated by single underscores that begin at `at`; `at` itself if there are none.
  size_t digits_end(size_t at) const {
    if (at >= source_.size() || !is_digit(source_[at])) return at;
    while (at < source_.size() &&
           (is_digit(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() && is_digit(source_[at + 1])))) {
      ++at;
    }
    return at;
  }

  std::string without_underscores(size_t begin, size_t end) const {
    std::string out = source_.substr(begin, end - begin);
    out.erase(std::remove(out.begin(), out.end(), '_'), out.end());
    return out;
  }

  bool number() {
    const size_t whole = digits_end(at_);
    if (whole == at_) return false;
    size_t end = whole;
    bool is_float = false;
    if (at_ == 0 || source_[at_ - 1] != '.') {
      const size_t fraction = whole < source_.size() && source_[whole] == '.' ? digits_end(whole + 1) : whole;
      if (fraction > whole + 1) end = fraction, is_float = true;
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        const size_t exponent = end + 1 + (sign_at(source_, end + 1) != '\0');
        const size_t exponent_end = digits_end(exponent);
        if (exponent_end > exponent) end = exponent_end, is_float = true;
      }
    }
    if (is_float) {
      const std::string text = without_underscores(at_, end);
      Token& token = add(TokenKind::kFloat, text);
      const auto result = std::from_chars(text.data(), text.data() + text.size(), token.real);
      if (result.ec == std::errc::result_out_of_range)
        fail_unsupported(line_, "the number " + text + " is out of range");
      advance_to(end);
      return true;
    }
    integer(whole);
    return true;
  }

  void integer(size_t whole) {
    int base = 10;
    size_t begin = at_, end = whole;
    if (source_[at_] == '0') {
      const char mark = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
      const int marked = mark == 'b' ? 2 : mark == 'o' ? 8 : mark == 'x' ? 16 : 0;
      const auto is_digit_of = [&](size_t at) {
        if (at >= source_.size()) return false;
        const char c = source_[at], lower = static_cast<char>(c | 0x20);
        const int value = is_digit(c) ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
        return value < marked;
      };
      size_t at = at_ + 2;
      while (marked != 0 && (is_digit_of(at) || (at < source_.size() && source_[at] == '_' && is_digit_of(at + 1))))
        ++at;
      if (marked != 0 && at > at_ + 2) {
        base = marked, begin = at_ + 2, end = at;
      } else {  // zeros; other digits after them are a token of their own
        end = at_ + 1;
        while (end < whole && (source_[end] == '0' || (source_[end] == '_' && source_[end + 1] == '0'))) ++end;
      }
    }
    const std::string text = without_underscores(begin, end);
    Token& token = add(TokenKind::kInteger, text);
    const auto result = std::from_chars(text.data(), text.data() + text.size(), token.integer, base);
    if (result.ec != std::errc()) fail_unsupported(line_, "the number " + text + " is beyond 64 bits");
    advance_to(end);
  }

  bool name() {
    size_t end = at_;
    while (end < source_.size()) {
      const CodePoint code = decode_utf8(source_, end);
      const char c = source_[end];
      const bool ascii = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (end > at_ && is_digit(c));
      if (!ascii && (code.value < 0x80 || !is_in(CharacterClass::kAlphabetic, code.value))) break;
      end += code.length;
    }
    if (end == at_) return false;
    add(TokenKind::kName, source_.substr(at_, end - at_));
    advance_to(end);
    return true;
  }

  bool string() {
    const char quote = source_[at_];
    if (quote != '\'' && quote != '"') return false;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_syntax(line_, "a string is not closed");
    add(TokenKind::kString, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    advance_to(end + 1);
    return true;
  }

  std::string unescape(std::string_view text) const {
    std::string out;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] != '\\') {
        out += text[at];
        continue;
      }
      const char c = text[++at];  // the lexer keeps a backslash and what follows together
      static constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
      if (const size_t simple = kFrom.find(c); simple != std::string_view::npos) {
        out += kTo[simple];
      } else if (c == '\n') {
        // a line continued
      } else if (c >= '0' && c <= '7') {
        char32_t code = 0;
        size_t used = 0;
        for (; used < 3 && at + used < text.size() && text[at + used] >= '0' && text[at + used] <= '7'; ++used) {
          code = code * 8 + static_cast<char32_t>(text[at + used] - '0');
        }
        append_utf8(out, code);
        at += used - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        uint32_t code = 0;
        const std::string_view hex = text.substr(at + 1, count);
        const auto result = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
        if (hex.size() != count || result.ptr != hex.data() + count || code > 0x10FFFF) {
          fail_syntax(line_, std::string("invalid \\") + c + " escape in a string");
        }
        append_utf8(out, code);
        at += count;
      } else if (c == 'N') {
        fail_unsupported(line_, "character names (\\N{...}) in strings");
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  void punctuation(std::string& brackets) {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!looking_at(op, at_)) continue;
      if (op == "(" || op == "[" || op == "{") {
        brackets += op == "(" ? ')' : op == "[" ? ']' : '}';
      } else if (op == ")" || op == "]" || op == "}") {
        if (brackets.empty()) fail_syntax(line_, "unexpected '" + std::string(op) + "'");
        if (brackets.back() != op[0]) {
          fail_syntax(line_, "unexpected '" + std::string(op) + "', expected '" + brackets.back() + "'");
        }
        brackets.pop_back();
      }
      add(TokenKind::kOperator, std::string(op));
      advance_to(at_ + op.size());
      return;
    }
    fail_syntax(line_, "unexpected character " + source_.substr(at_, decode_utf8(source_, at_).length));
  }

  const std::string source_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace tierpack::text::jinja

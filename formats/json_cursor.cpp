#include "formats/json_cursor.h"

#include <cstring>
#include <optional>

#include "base/bytes.h"
#include "base/error.h"

namespace tierpack {

namespace {

bool is_continuation(unsigned char c) { return (c & 0xC0) == 0x80; }

// Length of the well-formed UTF-8 sequence (of more than one byte) at p, 0 if there is none: no overlong forms, no
// surrogates, nothing above U+10FFFF.
size_t sequence_length(const unsigned char* p, size_t left) {
  const unsigned char first = p[0];
  if (first >= 0xC2 && first <= 0xDF) return left >= 2 && is_continuation(p[1]) ? 2 : 0;
  if ((first & 0xF0) == 0xE0) {
    if (left < 3 || !is_continuation(p[1]) || !is_continuation(p[2])) return 0;
    if (first == 0xE0 && p[1] < 0xA0) return 0;
    if (first == 0xED && p[1] > 0x9F) return 0;
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (left < 4 || !is_continuation(p[1]) || !is_continuation(p[2]) || !is_continuation(p[3])) return 0;
    if (first == 0xF0 && p[1] < 0x90) return 0;
    if (first == 0xF4 && p[1] > 0x8F) return 0;
    return 4;
  }
  return 0;
}

// Offset of the first byte that is not valid UTF-8.
std::optional<size_t> find_invalid_utf8(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  size_t at = 0;
  while (at < text.size()) {
    if (text.size() - at >= 8 && (load<uint64_t>(p + at) & 0x8080808080808080u) == 0) {
      at += 8;
    } else if (p[at] < 0x80) {
      ++at;
    } else {
      const size_t length = sequence_length(p + at, text.size() - at);
      if (length == 0) return at;
      at += length;
    }
  }
  return std::nullopt;
}

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 63));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 63));
    out += static_cast<char>(0x80 | (code & 63));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 63));
    out += static_cast<char>(0x80 | (code >> 6 & 63));
    out += static_cast<char>(0x80 | (code & 63));
  }
}

// Four hex digits at text[at], if they are there.
std::optional<uint32_t> hex4(std::string_view text, size_t at) {
  if (text.size() < 4 || at > text.size() - 4) return std::nullopt;
  uint32_t value = 0;
  for (size_t i = at; i < at + 4; ++i) {
    const char c = text[i];
    uint32_t digit = 0;
    if (c >= '0' && c <= '9')
      digit = static_cast<uint32_t>(c - '0');
    else if (c >= 'a' && c <= 'f')
      digit = static_cast<uint32_t>(c - 'a' + 10);
    else if (c >= 'A' && c <= 'F')
      digit = static_cast<uint32_t>(c - 'A' + 10);
    else
      return std::nullopt;
    value = value << 4 | digit;
  }
  return value;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

JsonCursor::JsonCursor(std::string_view text, std::string source, uint64_t base)
    : text_(text), source_(std::move(source)), base_(base) {
  if (const auto invalid = find_invalid_utf8(text)) {
    at_ = *invalid;
    fail_here("text that is not valid UTF-8");
  }
}

void JsonCursor::fail_here(const std::string& problem) const {
  fail(ErrorKind::kCorrupt, "{}: {} at byte {}", source_, problem, base_ + at_);
}

void JsonCursor::skip_space() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return;
    ++at_;
  }
}

char JsonCursor::peek() {
  skip_space();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonCursor::accept(char c) {
  skip_space();
  if (at_ >= text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

void JsonCursor::expect(char c, const char* what) {
  if (!accept(c)) {
    fail_here(at_ < text_.size() ? fmt::format("expected {}, found other JSON", what)
                                 : fmt::format("the JSON ends where {} is expected", what));
  }
}

std::string_view JsonCursor::string(const char* what) {
  expect('"', what);
  const size_t start = at_;
  bool escaped = false;
  for (; at_ < text_.size(); ++at_) {
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') {
      const std::string_view raw = text_.substr(start, at_ - start);
      ++at_;
      if (!escaped) return raw;
      unescape(raw, start);
      return buffer_;
    }
    if (c < 0x20) fail_here("an unescaped control character in a string");
    if (c == '\\') {
      escaped = true;
      ++at_;  // whatever follows does not end the string
    }
  }
  at_ = text_.size();
  fail_here("the JSON ends inside a string");
}

void JsonCursor::unescape(std::string_view raw, size_t start) {
  buffer_.clear();
  const auto bad = [&](size_t at) {
    at_ = start + at;
    fail_here("an invalid escape in a string");
  };
  for (size_t i = 0; i < raw.size();) {
    if (raw[i] != '\\') {
      buffer_ += raw[i++];
      continue;
    }
    const size_t escape = i;
    if (i + 1 >= raw.size()) bad(escape);
    const char kind = raw[i + 1];
    i += 2;
    static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
    if (const size_t simple = kFrom.find(kind); simple != std::string_view::npos) {
      buffer_ += kTo[simple];
      continue;
    }
    if (kind != 'u') bad(escape);
    const auto high = hex4(raw, i);
    if (!high) bad(escape);
    i += 4;
    uint32_t code = *high;
    if (code >= 0xD800 && code <= 0xDFFF) {
      const bool paired = code < 0xDC00 && raw.substr(i, 2) == "\\u";
      const auto low = paired ? hex4(raw, i + 2) : std::nullopt;
      if (!low || *low < 0xDC00 || *low > 0xDFFF) bad(escape);
      code = 0x10000 + ((code - 0xD800) << 10) + (*low - 0xDC00);
      i += 6;
    }
    append_utf8(buffer_, code);
  }
}

uint64_t JsonCursor::u64(const char* what) {
  const char first = peek();
  if (!is_digit(first)) fail_here(fmt::format("expected {} as a non-negative integer", what));
  const size_t start = at_;
  uint64_t value = 0;
  while (at_ < text_.size() && is_digit(text_[at_])) {
    const auto digit = static_cast<uint64_t>(text_[at_] - '0');
    if (value > (UINT64_MAX - digit) / 10) fail_here(fmt::format("{} is larger than 2^64 - 1", what));
    value = value * 10 + digit;
    ++at_;
  }
  if (first == '0' && at_ - start > 1) fail_here(fmt::format("{} has a leading zero", what));
  if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')) {
    fail_here(fmt::format("expected {} as an integer, found a fraction or exponent", what));
  }
  return value;
}

void JsonCursor::skip_number() {
  const auto digits = [&] {
    const size_t start = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    if (at_ == start) fail_here("a malformed number");
  };
  if (text_[at_] == '-') ++at_;
  if (at_ < text_.size() && text_[at_] == '0')
    ++at_;
  else
    digits();
  if (at_ < text_.size() && text_[at_] == '.') {
    ++at_;
    digits();
  }
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    digits();
  }
}

void JsonCursor::skip_word(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) fail_here("text that is not JSON");
  at_ += word.size();
}

void JsonCursor::skip_value(int depth) {
  switch (peek()) {
    case '{':
      if (depth == 0) fail_here("JSON nested too deeply");
      object("an object", [&](std::string_view) { skip_value(depth - 1); });
      return;
    case '[':
      if (depth == 0) fail_here("JSON nested too deeply");
      array("an array", [&] { skip_value(depth - 1); });
      return;
    case '"': string("a string"); return;
    case 't': skip_word("true"); return;
    case 'f': skip_word("false"); return;
    case 'n': skip_word("null"); return;
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': skip_number(); return;
    default: fail_here(at_ < text_.size() ? "text that is not JSON" : "the JSON ends where a value is expected");
  }
}

std::string_view JsonCursor::raw_value(int depth) {
  peek();
  const size_t start = at_;
  skip_value(depth);
  return text_.substr(start, at_ - start);
}

void JsonCursor::end() {
  if (peek() != '\0' || at_ < text_.size()) fail_here("text after the end of the JSON document");
}

}  // namespace tierpack

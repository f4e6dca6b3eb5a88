// UTF-8 without surprises: one decoder that every reader of text shares. Invalid bytes are read as U+FFFD, one for each
// maximal subpart of an ill-formed sequence (Unicode 15, section 3.9, the practice of Python and browsers).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tierpack::text {

inline constexpr char32_t kReplacement = 0xFFFD;

struct CodePoint {
  char32_t value;
  uint32_t length;  // bytes read, at least 1
  bool valid;       // false: `value` is U+FFFD standing for `length` bytes
  bool cut_short;   // not valid only because the text ended inside a sequence
};

// The code point that starts at text[at]; at < text.size().
CodePoint decode_utf8(std::string_view text, size_t at);

// Code points above U+10FFFF and surrogates are written as U+FFFD.
void append_utf8(std::string& out, char32_t code);

bool is_valid_utf8(std::string_view text);
// `text` with every invalid sequence replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// Unicode White_Space, 25 code points.
bool is_white_space(char32_t code);

}  // namespace tierpack::text

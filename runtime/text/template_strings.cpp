#include "runtime/text/template_strings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "runtime/text/template_operations.h"
#include "runtime/text/unicode.h"
#include "runtime/text/utf8.h"

namespace tierpack::text::jinja {

namespace {

// Where the last character of a text begins.
size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

std::string_view strip(std::string_view text, const Value* characters, bool left, bool right) {
  if (characters != nullptr && !characters->is_string()) {
    if (characters->is_undefined()) fail_undefined(*characters);
    throw TemplateError("strip arg must be None or str");
  }
  const auto goes = [&](std::string_view character) {
    if (characters == nullptr) return is_python_space(decode_utf8(character, 0).value);
    return characters->as_string().find(character) != std::string_view::npos;
  };
  while (left && !text.empty()) {
    const size_t bytes = decode_utf8(text, 0).length;
    if (!goes(text.substr(0, bytes))) break;
    text.remove_prefix(bytes);
  }
  while (right && !text.empty()) {
    const size_t at = last_character(text);
    if (!goes(text.substr(at))) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  const auto is_boundary = [](char32_t code) {
    return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
           code == 0x2029;
  };
  std::vector<std::string_view> out;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    size_t next = at + code.length;
    if (is_boundary(code.value)) {
      if (code.value == '\r' && next < text.size() && text[next] == '\n') ++next;
      out.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) out.push_back(text.substr(begin));
  return out;
}

std::string_view replace_in(Heap& heap, std::string_view text, std::string_view from, std::string_view to,
                            int64_t count) {
  heap.work_on(text);
  std::string out;
  const auto append = [&](std::string_view part) {
    heap.charge(part.size());
    out.append(part);
  };
  if (from.empty()) {  // between all characters, and at both ends
    for (size_t at = 0; count != 0; --count) {
      append(to);
      if (at >= text.size()) return heap.store(out);
      const uint32_t bytes = decode_utf8(text, at).length;
      append(text.substr(at, bytes));
      at += bytes;
      if (count == 1) {
        append(text.substr(at));
        return heap.store(out);
      }
    }
    return text;
  }
  size_t begin = 0;
  for (; count != 0; --count) {
    const size_t found = text.find(from, begin);
    if (found == std::string_view::npos) break;
    append(text.substr(begin, found - begin));
    append(to);
    begin = found + from.size();
  }
  if (begin == 0) return text;
  append(text.substr(begin));
  return heap.store(out);
}

std::string_view pad(Heap& heap, std::string_view text, int64_t width, std::string_view fill, char align) {
  if (count_characters(fill) != 1) throw TemplateError("The fill character must be exactly one character long");
  const int64_t missing = width - count_characters(text);
  if (missing <= 0) return text;
  heap.charge(static_cast<size_t>(missing) * fill.size());
  // str.center puts the odd one to the left when the width is odd.
  const int64_t left = align == '<' ? 0 : align == '>' ? missing : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return heap.store(out);
}

std::vector<std::string_view> split(Heap& heap, std::string_view text, std::string_view separator, int64_t limit,
                                    bool from_right) {
  heap.work_on(text);
  std::vector<std::string_view> out;
  if (limit < 0) limit = INT64_MAX;
  if (!separator.empty() && !from_right) {
    size_t begin = 0;
    for (; limit > 0; --limit) {
      const size_t found = text.find(separator, begin);
      if (found == std::string_view::npos) break;
      out.push_back(text.substr(begin, found - begin));
      begin = found + separator.size();
    }
    out.push_back(text.substr(begin));
    return out;
  }
  if (!separator.empty()) {
    for (; limit > 0; --limit) {
      const size_t found = text.size() < separator.size() ? std::string_view::npos : text.rfind(separator);
      if (found == std::string_view::npos) break;
      out.push_back(text.substr(found + separator.size()));
      text = text.substr(0, found);
    }
    out.push_back(text);
    std::reverse(out.begin(), out.end());
    return out;
  }
  const auto is_space_at = [&](size_t at) { return is_python_space(decode_utf8(text, at).value); };
  if (!from_right) {
    for (;; --limit) {
      text = strip(text, nullptr, true, false);
      if (text.empty()) break;
      if (limit == 0) {
        out.push_back(text);
        break;
      }
      size_t end = 0;
      while (end < text.size() && !is_space_at(end)) end += decode_utf8(text, end).length;
      out.push_back(text.substr(0, end));
      text = text.substr(end);
    }
    return out;
  }
  for (;; --limit) {
    text = strip(text, nullptr, false, true);
    if (text.empty()) break;
    if (limit == 0) {
      out.push_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      const size_t at = last_character(text.substr(0, begin));
      if (is_space_at(at)) break;
      begin = at;
    }
    out.push_back(text.substr(begin));
    text = text.substr(0, begin);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

namespace {

// Underscores between digits are allowed and dropped; false if one is elsewhere.
bool drop_underscores(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() && std::isalnum(static_cast<unsigned char>(text[i - 1])) &&
                         std::isalnum(static_cast<unsigned char>(text[i + 1]));
    if (!between) return false;
  }
  return true;
}

}  // namespace

bool parse_integer(std::string_view text, int64_t base, int64_t& out) {
  if (base != 0 && (base < 2 || base > 36)) throw TemplateError("int() base must be >= 2 and <= 36, or 0");
  text = strip(text, nullptr, true, true);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const char mark = text.size() > 2 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked != 0 && (base == marked || base == 0)) {
    base = marked;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  } else if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos) return false;
  }
  std::string digits;
  if (text.empty() || !drop_underscores(text, digits)) return false;
  uint64_t magnitude = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, static_cast<int>(base));
  if (result.ptr != digits.data() + digits.size()) return false;
  if (result.ec == std::errc::result_out_of_range || magnitude > static_cast<uint64_t>(INT64_MAX) + negative) {
    throw TemplateError("integers beyond 64 bits are not supported", false);
  }
  if (result.ec != std::errc()) return false;
  out = static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
  return true;
}

bool parse_float(std::string_view text, double& out) {
  text = strip(text, nullptr, true, true);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const std::string lower = to_lower(text);
  if (lower == "inf" || lower == "infinity") {
    out = std::numeric_limits<double>::infinity();
  } else if (lower == "nan") {
    out = std::numeric_limits<double>::quiet_NaN();
  } else {
    std::string digits;
    if (text.empty() || !(text[0] == '.' || (text[0] >= '0' && text[0] <= '9')) || !drop_underscores(text, digits)) {
      return false;
    }
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    if (result.ptr != digits.data() + digits.size()) return false;
    if (result.ec == std::errc::result_out_of_range) {
      // Too large or too small: the exponent's sign tells which.
      const size_t e = digits.find_first_of("eE");
      const bool small = e != std::string::npos ? digits[e + 1] == '-' : digits[0] == '0' || digits[0] == '.';
      out = small ? 0 : std::numeric_limits<double>::infinity();
    } else if (result.ec != std::errc()) {
      return false;
    }
  }
  if (negative) out = -out;
  return true;
}

}  // namespace tierpack::text::jinja

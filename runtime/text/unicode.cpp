#include "runtime/text/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <memory>
#include <new>

#include "base/error.h"
#include "runtime/text/case_tables.h"
#include "runtime/text/utf8.h"

namespace tierpack::text {

namespace {

// Categories beyond ASCII come from PCRE2.
class Category {
 public:
  explicit Category(const char* expression) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                          &error, &offset, nullptr);
    TIERPACK_CHECK(code_ != nullptr);
  }
  Category(const Category&) = delete;
  Category& operator=(const Category&) = delete;
  ~Category() { pcre2_code_free(code_); }

  bool has(char32_t code) const {
    std::string text;
    append_utf8(text, code);
    const auto release = [](pcre2_match_data* match) { pcre2_match_data_free(match); };
    const std::unique_ptr<pcre2_match_data, decltype(release)> match(pcre2_match_data_create(1, nullptr), release);
    if (!match) throw std::bad_alloc();
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, PCRE2_NO_UTF_CHECK,
                       match.get(), nullptr) >= 0;
  }

 private:
  pcre2_code* code_;
};

struct CaseMap {
  const CaseRange* ranges;
  size_t ranges_size;
  const CaseSpecial* specials;
  size_t specials_size;
};

CaseMap upper_map() { return {kUpperRanges, kUpperRangesSize, kUpperSpecials, kUpperSpecialsSize}; }
CaseMap lower_map() { return {kLowerRanges, kLowerRangesSize, kLowerSpecials, kLowerSpecialsSize}; }
CaseMap title_map() { return {kTitleRanges, kTitleRangesSize, kTitleSpecials, kTitleSpecialsSize}; }

bool append_mapped(std::string& out, char32_t code, const CaseMap& map) {
  const CaseSpecial* special = std::lower_bound(map.specials, map.specials + map.specials_size, code,
                                                [](const CaseSpecial& s, char32_t value) { return s.code < value; });
  if (special != map.specials + map.specials_size && special->code == code) {
    for (const char32_t part : special->mapped) {
      if (part != 0) append_utf8(out, part);
    }
    return true;
  }
  // Ranges of every second character overlap with their neighbours' gaps, so look at a few.
  const CaseRange* range = std::lower_bound(map.ranges, map.ranges + map.ranges_size, code,
                                            [](const CaseRange& r, char32_t value) { return r.last < value; });
  for (; range != map.ranges + map.ranges_size && range->first <= code; ++range) {
    if ((code - range->first) % static_cast<uint32_t>(range->step) == 0) {
      append_utf8(out, static_cast<char32_t>(static_cast<int32_t>(code) + range->delta));
      return true;
    }
  }
  append_utf8(out, code);
  return false;
}

bool has_case(char32_t code) {
  if (code < 0x80) return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
  std::string unused;
  return append_mapped(unused, code, lower_map()) || append_mapped(unused, code, upper_map()) ||
         is_in(CharacterClass::kUpper, code) || is_in(CharacterClass::kLower, code);
}

// A sigma at the end of a word: a cased character before it and none after it.
bool is_final_sigma(std::string_view text, size_t at) {
  size_t before = at;
  while (before > 0 && (static_cast<uint8_t>(text[before - 1]) & 0xC0) == 0x80) --before;
  if (before == 0) return false;
  --before;
  while (before > 0 && (static_cast<uint8_t>(text[before]) & 0xC0) == 0x80) --before;
  if (!has_case(decode_utf8(text, before).value)) return false;
  const size_t after = at + decode_utf8(text, at).length;
  return after >= text.size() || !has_case(decode_utf8(text, after).value);
}

void append_lower(std::string& out, std::string_view text, size_t at, char32_t code) {
  if (code == 0x3A3) {
    append_utf8(out, is_final_sigma(text, at) ? 0x3C2 : 0x3C3);
  } else {
    append_mapped(out, code, lower_map());
  }
}

}  // namespace

bool is_in(CharacterClass which, char32_t code) {
  static const Category alphabetic("\\p{L}"), decimal("\\p{Nd}"), numeric("\\p{N}"), upper("[\\p{Lu}\\p{Lt}]"),
      lower("\\p{Ll}"), hidden("[\\p{C}\\p{Z}]");
  const bool ascii = code < 0x80;
  const bool is_upper = code >= 'A' && code <= 'Z', is_lower = code >= 'a' && code <= 'z';
  switch (which) {
    case CharacterClass::kAlphabetic: return ascii ? is_upper || is_lower : alphabetic.has(code);
    case CharacterClass::kDecimal: return ascii ? code >= '0' && code <= '9' : decimal.has(code);
    case CharacterClass::kNumeric: return ascii ? code >= '0' && code <= '9' : numeric.has(code);
    case CharacterClass::kUpper: return ascii ? is_upper : upper.has(code);
    case CharacterClass::kLower: return ascii ? is_lower : lower.has(code);
    case CharacterClass::kPrintable: return ascii ? code >= 0x20 && code < 0x7F : !hidden.has(code);
  }
  return false;
}

bool is_python_space(char32_t code) { return is_white_space(code) || (code >= 0x1C && code <= 0x1F); }

std::string to_upper(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    append_mapped(out, code.value, upper_map());
    at += code.length;
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    append_lower(out, text, at, code.value);
    at += code.length;
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    if (in_word) {
      append_lower(out, text, at, code.value);
    } else {
      append_mapped(out, code.value, title_map());
    }
    in_word = has_case(code.value);
    at += code.length;
  }
  return out;
}

std::string capitalized(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    if (at == 0) {
      append_mapped(out, code.value, title_map());
    } else {
      append_lower(out, text, at, code.value);
    }
    at += code.length;
  }
  return out;
}

}  // namespace tierpack::text

// Character properties and case mappings as Python's str methods have them, for the template language.
#pragma once

#include <string>
#include <string_view>

namespace tierpack::text {

enum class CharacterClass {
  kAlphabetic,  // str.isalpha: category L
  kDecimal,     // str.isdecimal: Nd
  kNumeric,     // str.isnumeric, nearly: N
  kUpper,       // cased and not lower: Lu, Lt
  kLower,       // Ll
  kPrintable,   // str.isprintable: no C, no Z but the space
};
bool is_in(CharacterClass which, char32_t code);
// str.isspace: Unicode White_Space and the separators U+001C to U+001F.
bool is_python_space(char32_t code);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
// First character of each word in title case, the others in lower case; a word begins after a character without case.
std::string to_title(std::string_view text);
// First character of the text in title case, the others in lower case.
std::string capitalized(std::string_view text);

}  // namespace tierpack::text

// The methods of Python's str.
#include <algorithm>
#include <string>
#include <utility>

#include "runtime/text/template_arguments.h"
#include "runtime/text/template_builtins.h"
#include "runtime/text/template_evaluator.h"
#include "runtime/text/template_format.h"
#include "runtime/text/template_strings.h"
#include "runtime/text/unicode.h"
#include "runtime/text/utf8.h"

namespace tierpack::text::jinja {

namespace {

// Results of a Markup's methods are Markup; arguments that become part of them are escaped.
Value like(const Value& self, std::string_view text) { return Value::string(text, self.is_markup()); }
Value like(Evaluator& evaluator, const Value& self, const std::string& text) {
  return evaluator.text(text, self.is_markup());
}

std::string_view argument_text(Evaluator& evaluator, const Value& self, const Parameters& parameters, size_t i,
                               std::string_view fallback = {}) {
  const std::string_view text = parameters.text(i, fallback);
  const bool escaped = self.is_markup() && parameters.has(i) && !parameters.value(i).is_markup();
  return escaped ? escape(evaluator.heap(), text) : text;
}

Value list_of(Evaluator& evaluator, const Value& self, const std::vector<std::string_view>& parts,
              ListKind kind = ListKind::kList) {
  List* out = evaluator.heap().new_list(kind);
  for (const std::string_view part : parts) evaluator.heap().push(*out, like(self, part));
  return Value::list(out);
}

// Case.

template <std::string (*kMapping)(std::string_view)>
Value mapped(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters none("str method", arguments, {});
  return like(evaluator, self, kMapping(self.as_string()));
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    const std::string_view character = text.substr(at, code.length);
    out += is_in(CharacterClass::kUpper, code.value) ? to_lower(character) : to_upper(character);
    at += code.length;
  }
  return out;
}

// Stripping and splitting.

template <bool kLeft, bool kRight>
Value stripped(Evaluator&, const Value& self, Arguments& arguments) {
  const Parameters parameters("strip", arguments, {"chars"});
  return like(self, strip(self.as_string(), parameters.is_set(0) ? &parameters.value(0) : nullptr, kLeft, kRight));
}

template <bool kFromRight>
Value split_text(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters parameters("split", arguments, {"sep", "maxsplit"});
  std::string_view separator;
  if (parameters.is_set(0)) {
    separator = argument_text(evaluator, self, parameters, 0);
    if (separator.empty()) throw TemplateError("empty separator");
  }
  return list_of(evaluator, self,
                 split(evaluator.heap(), self.as_string(), separator, parameters.integer(1, -1), kFromRight));
}

Value lines(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters parameters("splitlines", arguments, {"keepends"});
  evaluator.heap().work_on(self.as_string());
  return list_of(evaluator, self, split_lines(self.as_string(), parameters.flag(0)));
}

template <bool kFromRight>
Value partition(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters parameters("partition", arguments, {"sep"}, 1);
  const std::string_view text = self.as_string(), separator = argument_text(evaluator, self, parameters, 0);
  if (separator.empty()) throw TemplateError("empty separator");
  const size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
  std::vector<std::string_view> parts = {text, {}, {}};
  if (at != std::string_view::npos) {
    parts = {text.substr(0, at), separator, text.substr(at + separator.size())};
  } else if (kFromRight) {
    parts = {{}, {}, text};
  }
  return list_of(evaluator, self, parts, ListKind::kTuple);
}

Value remove_prefix(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters parameters("removeprefix", arguments, {"prefix"}, 1);
  std::string_view text = self.as_string();
  const std::string_view prefix = argument_text(evaluator, self, parameters, 0);
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return like(self, text);
}

Value remove_suffix(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters parameters("removesuffix", arguments, {"suffix"}, 1);
  std::string_view text = self.as_string();
  const std::string_view suffix = argument_text(evaluator, self, parameters, 0);
  if (text.ends_with(suffix)) text.remove_suffix(suffix.size());
  return like(self, text);
}

// Searching. Positions are characters, [start, end) as in a slice.

struct Part {
  std::string_view text;
  int64_t start;  // in characters of the whole text; -1 if start is beyond its end
};

Part part_of(const Value& self, const Parameters& parameters, size_t first) {
  const std::string_view text = self.as_string();
  const int64_t size = count_characters(text);
  const auto at = [&](size_t i, int64_t fallback) {
    int64_t value = parameters.is_set(i) ? parameters.integer(i) : fallback;
    if (value < 0) value = std::max<int64_t>(value + size, 0);
    return value;
  };
  const int64_t start = at(first, 0), end = std::min(at(first + 1, size), size);
  if (start > size || start > end) return {{}, -1};
  const size_t begin = offset_of(text, start);
  const std::string_view rest = text.substr(begin);
  return {rest.substr(0, offset_of(rest, end - start)), start};
}

template <bool kFromRight, bool kFails>
Value find_text(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters parameters(kFails ? "index" : "find", arguments, {"sub", "start", "end"}, 1);
  evaluator.heap().work_on(self.as_string());
  const Part part = part_of(self, parameters, 1);
  const std::string_view wanted = parameters.text(0);
  const size_t at = part.start < 0 ? std::string_view::npos
                    : kFromRight   ? part.text.rfind(wanted)
                                   : part.text.find(wanted);
  if (at != std::string_view::npos) return Value::integer(part.start + count_characters(part.text.substr(0, at)));
  if (kFails) throw TemplateError("substring not found");
  return Value::integer(-1);
}

Value count_text(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters parameters("count", arguments, {"sub", "start", "end"}, 1);
  evaluator.heap().work_on(self.as_string());
  const Part part = part_of(self, parameters, 1);
  const std::string_view wanted = parameters.text(0);
  if (part.start < 0) return Value::integer(0);
  if (wanted.empty()) return Value::integer(count_characters(part.text) + 1);
  int64_t count = 0;
  for (size_t at = part.text.find(wanted); at != std::string_view::npos;
       at = part.text.find(wanted, at + wanted.size())) {
    ++count;
  }
  return Value::integer(count);
}

template <bool kAtEnd>
Value has_affix(Evaluator&, const Value& self, Arguments& arguments) {
  const Parameters parameters(kAtEnd ? "endswith" : "startswith", arguments, {"affix", "start", "end"}, 1);
  const Part part = part_of(self, parameters, 1);
  const auto has = [&](const Value& affix) {
    if (affix.is_undefined()) fail_undefined(affix);
    if (!affix.is_string()) {
      throw TemplateError(std::string(kAtEnd ? "endswith" : "startswith") +
                          " first arg must be str or a tuple of str, not " + type_name(affix));
    }
    if (part.start < 0) return false;
    return kAtEnd ? part.text.ends_with(affix.as_string()) : part.text.starts_with(affix.as_string());
  };
  const Value& affix = parameters.value(0);
  if (affix.is(Kind::kList) && affix.as_list().kind == ListKind::kTuple) {
    const auto& all = affix.as_list().items;
    return Value::boolean(std::any_of(all.begin(), all.end(), has));
  }
  return Value::boolean(has(affix));
}

// Making text.

Value replace(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters parameters("replace", arguments, {"old", "new", "count"}, 2);
  return like(self, replace_in(evaluator.heap(), self.as_string(), argument_text(evaluator, self, parameters, 0),
                               argument_text(evaluator, self, parameters, 1), parameters.integer(2, -1)));
}

Value join(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters parameters("join", arguments, {"iterable"}, 1);
  std::string_view out;
  bool first = true;
  int64_t index = 0;
  for (const Value& one : items_of(evaluator.heap(), parameters.value(0))->items) {
    if (!one.is_string()) {
      throw TemplateError("sequence item " + std::to_string(index) + ": expected str instance, " + type_name(one) +
                          " found");
    }
    ++index;
    if (!first) out = evaluator.heap().join(out, self.as_string());
    first = false;
    const bool escaped = self.is_markup() && !one.is_markup();
    out = evaluator.heap().join(out, escaped ? escape(evaluator.heap(), one.as_string()) : one.as_string());
  }
  return like(self, out);
}

template <char kAlign>
Value padded(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters parameters("str padding", arguments, {"width", "fillchar"}, 1);
  return like(self, pad(evaluator.heap(), self.as_string(), parameters.integer(0),
                        argument_text(evaluator, self, parameters, 1, " "), kAlign));
}

Value zero_filled(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters parameters("zfill", arguments, {"width"}, 1);
  std::string_view text = self.as_string();
  std::string sign;
  if (text.starts_with('+') || text.starts_with('-')) {
    sign = text.substr(0, 1);
    text.remove_prefix(1);
  }
  const int64_t width = parameters.integer(0) - static_cast<int64_t>(sign.size());
  return like(evaluator, self, sign + std::string(pad(evaluator.heap(), text, width, "0", '>')));
}

Value expand_tabs(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters parameters("expandtabs", arguments, {"tabsize"});
  const int64_t every = std::min<int64_t>(parameters.integer(0, 8), 1000);
  std::string out;
  int64_t column = 0;
  for (const char c : self.as_string()) {
    if (c == '\t' && every > 0) {
      const int64_t blanks = every - column % every;
      evaluator.heap().charge(static_cast<size_t>(blanks));
      out.append(static_cast<size_t>(blanks), ' ');
      column += blanks;
    } else if (c != '\t') {
      out += c;
      if ((static_cast<uint8_t>(c) & 0xC0) != 0x80) ++column;
      if (c == '\n' || c == '\r') column = 0;
    }
  }
  return like(evaluator, self, out);
}

Value format(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  size_t next = 0;
  return like(evaluator, self, format_fields(evaluator.heap(), self.as_string(), [&](std::string_view field) {
                const size_t end = std::min(field.find_first_of(".["), field.size());
                const std::string_view head = field.substr(0, end);
                Value value;
                int64_t index = 0;
                if (head.empty() || parse_integer(head, 10, index)) {
                  const size_t at = head.empty() ? next++ : static_cast<size_t>(index);
                  if (at >= arguments.positional.size())
                    throw TemplateError("Replacement index out of range for positional args tuple", false);
                  value = arguments.positional[at];
                } else {
                  const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                                  [&](const auto& one) { return one.first == head; });
                  if (named == arguments.named.end())
                    throw TemplateError("format: there is no argument '" + std::string(head) + "'", false);
                  value = named->second;
                }
                for (std::string_view rest = field.substr(end); !rest.empty();) {
                  if (rest[0] == '.') {
                    const size_t stop = std::min(rest.find_first_of(".[", 1), rest.size());
                    value = evaluator.attribute(value, rest.substr(1, stop - 1));
                    rest = rest.substr(stop);
                  } else {
                    const size_t stop = rest.find(']');
                    if (stop == std::string_view::npos) throw TemplateError("Missing ']' in format string");
                    const std::string_view key = rest.substr(1, stop - 1);
                    const bool number = parse_integer(key, 10, index);
                    value = evaluator.item(value, number ? Value::integer(index) : Value::string(key));
                    rest = rest.substr(stop + 1);
                  }
                }
                return value;
              }));
}

// Asking about characters: true if there is one and all are in a class.

template <bool (*kPredicate)(char32_t)>
Value all_characters(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters none("str method", arguments, {});
  const std::string_view text = self.as_string();
  evaluator.heap().work(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    if (!kPredicate(code.value)) return Value::boolean(false);
    at += code.length;
  }
  return Value::boolean(!text.empty());
}

bool is_alphabetic(char32_t code) { return is_in(CharacterClass::kAlphabetic, code); }
bool is_decimal(char32_t code) { return is_in(CharacterClass::kDecimal, code); }
// Superscripts and the like are digits too, but not fractions or letters.
bool is_digit(char32_t code) {
  return is_decimal(code) || code == 0xB2 || code == 0xB3 || code == 0xB9 ||
         (code >= 0x2070 && code <= 0x2089 && code != 0x2071 && code != 0x2072 && code != 0x2073) ||
         (code >= 0x2460 && code <= 0x2468);
}
bool is_numeric(char32_t code) { return is_in(CharacterClass::kNumeric, code); }
bool is_alphanumeric(char32_t code) { return is_alphabetic(code) || is_numeric(code); }

Value is_ascii(Evaluator&, const Value& self, Arguments& arguments) {
  const Parameters none("isascii", arguments, {});
  const std::string_view text = self.as_string();
  return Value::boolean(std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; }));
}

Value is_printable(Evaluator&, const Value& self, Arguments& arguments) {
  const Parameters none("isprintable", arguments, {});
  const std::string_view text = self.as_string();
  for (size_t at = 0; at < text.size(); at += decode_utf8(text, at).length) {
    if (!is_in(CharacterClass::kPrintable, decode_utf8(text, at).value)) return Value::boolean(false);
  }
  return Value::boolean(true);
}

template <bool kUpper>
Value has_case(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  return Value::boolean(find_test(kUpper ? "upper" : "lower")(evaluator, self, arguments));
}

Value is_title(Evaluator&, const Value& self, Arguments& arguments) {
  const Parameters none("istitle", arguments, {});
  const std::string_view text = self.as_string();
  return Value::boolean(!text.empty() && to_title(text) == text && to_lower(text) != text);
}

Value is_identifier(Evaluator&, const Value& self, Arguments& arguments) {
  const Parameters none("isidentifier", arguments, {});
  const std::string_view text = self.as_string();
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    const bool fine = code.value == '_' || is_alphabetic(code.value) || (at > 0 && is_decimal(code.value));
    if (!fine) return Value::boolean(false);
    at += code.length;
  }
  return Value::boolean(!text.empty());
}

constexpr std::pair<std::string_view, Method> kMethods[] = {
    {"capitalize", mapped<capitalized>},
    {"casefold", mapped<to_lower>},
    {"center", padded<'^'>},
    {"count", count_text},
    {"endswith", has_affix<true>},
    {"expandtabs", expand_tabs},
    {"find", find_text<false, false>},
    {"format", format},
    {"index", find_text<false, true>},
    {"isalnum", all_characters<is_alphanumeric>},
    {"isalpha", all_characters<is_alphabetic>},
    {"isascii", is_ascii},
    {"isdecimal", all_characters<is_decimal>},
    {"isdigit", all_characters<is_digit>},
    {"isidentifier", is_identifier},
    {"islower", has_case<false>},
    {"isnumeric", all_characters<is_numeric>},
    {"isprintable", is_printable},
    {"isspace", all_characters<is_python_space>},
    {"istitle", is_title},
    {"isupper", has_case<true>},
    {"join", join},
    {"ljust", padded<'<'>},
    {"lower", mapped<to_lower>},
    {"lstrip", stripped<true, false>},
    {"partition", partition<false>},
    {"removeprefix", remove_prefix},
    {"removesuffix", remove_suffix},
    {"replace", replace},
    {"rfind", find_text<true, false>},
    {"rindex", find_text<true, true>},
    {"rjust", padded<'>'>},
    {"rpartition", partition<true>},
    {"rsplit", split_text<true>},
    {"rstrip", stripped<false, true>},
    {"split", split_text<false>},
    {"splitlines", lines},
    {"startswith", has_affix<false>},
    {"strip", stripped<true, true>},
    {"swapcase", mapped<swap_case>},
    {"title", mapped<to_title>},
    {"upper", mapped<to_upper>},
    {"zfill", zero_filled},
};

}  // namespace

Method find_string_method(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kMethods), std::end(kMethods), [&](const auto& one) { return one.first == name; });
  return found == std::end(kMethods) ? nullptr : found->second;
}

}  // namespace tierpack::text::jinja

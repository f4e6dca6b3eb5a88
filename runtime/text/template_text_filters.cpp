// Jinja2's filters that make text and numbers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "runtime/text/template_arguments.h"
#include "runtime/text/template_builtins.h"
#include "runtime/text/template_evaluator.h"
#include "runtime/text/template_format.h"
#include "runtime/text/template_json.h"
#include "runtime/text/template_strings.h"
#include "runtime/text/unicode.h"
#include "runtime/text/utf8.h"

namespace tierpack::text::jinja {

namespace {

// A string as it is, anything else as its text.
Value soft_text(Evaluator& evaluator, const Value& value) {
  return value.is_string() ? value : Value::string(evaluator.to_text(value));
}

Value lower(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("lower", arguments, {});
  const Value text = soft_text(evaluator, value);
  return evaluator.text(to_lower(text.as_string()), text.is_markup());
}

Value upper(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("upper", arguments, {});
  const Value text = soft_text(evaluator, value);
  return evaluator.text(to_upper(text.as_string()), text.is_markup());
}

Value capitalize(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("capitalize", arguments, {});
  const Value text = soft_text(evaluator, value);
  return evaluator.text(capitalized(text.as_string()), text.is_markup());
}

Value title(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("title", arguments, {});
  const std::string_view text = soft_text(evaluator, value).as_string();
  evaluator.heap().work_on(text);
  // Words begin after white space, "-" and opening brackets; unlike str.title, letters after others stay small.
  std::string out;
  size_t begin = 0;
  const auto flush = [&](size_t end) {
    if (end == begin) return;
    const std::string_view word = text.substr(begin, end - begin);
    const size_t first = decode_utf8(word, 0).length;
    out += to_upper(word.substr(0, first)) + to_lower(word.substr(first));
  };
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    const bool separates = is_python_space(code.value) || code.value == '-' || code.value == '(' || code.value == '{' ||
                           code.value == '[' || code.value == '<';
    if (separates) {
      flush(at);
      out.append(text.substr(at, code.length));
      begin = at + code.length;
    }
    at += code.length;
  }
  flush(text.size());
  return evaluator.text(out);
}

Value trim(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters parameters("trim", arguments, {"chars"});
  const Value text = soft_text(evaluator, value);
  return Value::string(strip(text.as_string(), parameters.is_set(0) ? &parameters.value(0) : nullptr, true, true),
                       text.is_markup());
}

Value replace(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters parameters("replace", arguments, {"old", "new", "count"}, 2);
  const int64_t count = parameters.is_set(2) ? parameters.integer(2) : -1;
  return Value::string(replace_in(evaluator.heap(), evaluator.to_text(value), evaluator.to_text(parameters.value(0)),
                                  evaluator.to_text(parameters.value(1)), count));
}

Value string(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("string", arguments, {});
  return soft_text(evaluator, value);
}

Value safe(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("safe", arguments, {});
  return Value::string(evaluator.to_text(value), true);
}

Value escape_text(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("escape", arguments, {});
  if (value.is_string() && value.is_markup()) return value;
  return Value::string(escape(evaluator.heap(), evaluator.to_text(value)), true);
}

Value force_escape(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("forceescape", arguments, {});
  return Value::string(escape(evaluator.heap(), evaluator.to_text(value)), true);
}

Value center(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters parameters("center", arguments, {"width"});
  const Value text = soft_text(evaluator, value);
  return Value::string(pad(evaluator.heap(), text.as_string(), parameters.integer(0, 80), " ", '^'), text.is_markup());
}

Value indent(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters parameters("indent", arguments, {"width", "first", "blank"});
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_string())
    throw TemplateError(std::string("unsupported operand type(s) for +=: '") + type_name(value) + "' and 'str'");
  std::string indention;
  if (parameters.has(0) && parameters.value(0).is_string()) {
    indention = parameters.value(0).as_string();
  } else {
    const int64_t width = parameters.integer(0, 4);
    evaluator.heap().charge(static_cast<size_t>(std::max<int64_t>(width, 0)));
    indention.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  evaluator.heap().charge(value.as_string().size());
  std::string out;
  bool first_line = true;
  // A newline behind the text keeps one at its end as an empty last line.
  const std::string text = std::string(value.as_string()) + "\n";
  for (const std::string_view line : split_lines(text, false)) {
    if (!first_line) out += '\n';
    const bool indented = first_line ? parameters.flag(1) : parameters.flag(2) || !line.empty();
    if (indented) {
      evaluator.heap().charge(indention.size());
      out += indention;
    }
    out += line;
    first_line = false;
  }
  return evaluator.text(out, value.is_markup());
}

Value truncate(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters parameters("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const int64_t limit = parameters.integer(0, 255);
  const std::string_view end = parameters.text(2, "...");
  const int64_t leeway = parameters.is_set(3) ? parameters.integer(3) : 5;
  const int64_t kept = limit - count_characters(end);
  if (kept < 0 || leeway < 0)
    throw TemplateError("truncate: the length must be at least that of the end, leeway at least 0");
  if (length(value) <= limit + leeway) return value;
  if (!value.is_string()) throw TemplateError(std::string("cannot truncate a ") + type_name(value));
  std::string_view head = value.as_string().substr(0, offset_of(value.as_string(), kept));
  if (!parameters.flag(1)) {
    if (const size_t space = head.rfind(' '); space != std::string_view::npos) head = head.substr(0, space);
  }
  return evaluator.text(std::string(head) + std::string(end));
}

Value word_count(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("wordcount", arguments, {});
  const std::string_view text = soft_text(evaluator, value).as_string();
  evaluator.heap().work_on(text);
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    const bool word = code.value == '_' || is_in(CharacterClass::kAlphabetic, code.value) ||
                      is_in(CharacterClass::kNumeric, code.value);
    words += word && !inside;
    inside = word;
    at += code.length;
  }
  return Value::integer(words);
}

Value format(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    throw TemplateError("can't handle positional and keyword arguments at the same time", false);
  }
  Heap& heap = evaluator.heap();
  if (!arguments.named.empty()) {
    Dict* dict = heap.new_dict();
    for (const auto& [name, one] : arguments.named) heap.set(*dict, Value::string(name), one);
    return format_percent(heap, soft_text(evaluator, value), Value::dict(dict));
  }
  List* tuple = heap.new_list(ListKind::kTuple);
  for (const Value& one : arguments.positional) heap.push(*tuple, one);
  return format_percent(heap, soft_text(evaluator, value), Value::list(tuple));
}

Value url_encode(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("urlencode", arguments, {});
  if (value.is(Kind::kDict) || value.is(Kind::kList))
    throw TemplateError("urlencode of mappings and lists is not supported", false);
  std::string out;
  for (const char c : evaluator.to_text(value)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-_.~/").find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      static constexpr char kHex[] = "0123456789ABCDEF";
      out += '%';
      out += kHex[static_cast<uint8_t>(c) >> 4];
      out += kHex[static_cast<uint8_t>(c) & 15];
    }
  }
  return evaluator.text(out);
}

Value absolute(Evaluator&, const Value& value, Arguments& arguments) {
  const Parameters none("abs", arguments, {});
  if (value.is(Kind::kFloat)) return Value::real(std::fabs(value.as_double()));
  if (value.is_integral()) return value.as_integer() < 0 ? negate(value) : Value::integer(value.as_integer());
  if (value.is_undefined()) fail_undefined(value);
  throw TemplateError(std::string("bad operand type for abs(): '") + type_name(value) + "'");
}

Value to_integer(Evaluator&, const Value& value, Arguments& arguments) {
  const Parameters parameters("int", arguments, {"default", "base"});
  const Value fallback = parameters.has(0) ? parameters.value(0) : Value::integer(0);
  const auto truncated = [&](double number) {
    if (std::isnan(number)) return fallback;
    if (std::isinf(number)) throw TemplateError("cannot convert float infinity to integer", false);
    if (std::fabs(number) >= 9.2e18) throw TemplateError("integers beyond 64 bits are not supported", false);
    return Value::integer(static_cast<int64_t>(number));
  };
  switch (value.kind()) {
    case Kind::kUndefined: fail_undefined(value);
    case Kind::kBool:
    case Kind::kInteger: return Value::integer(value.as_integer());
    case Kind::kBigInteger: return value;
    case Kind::kFloat: return truncated(value.as_double());
    case Kind::kString: {
      int64_t whole = 0;
      if (parse_integer(value.as_string(), parameters.integer(1, 10), whole)) return Value::integer(whole);
      double number = 0;
      if (parse_float(value.as_string(), number)) return truncated(number);
      return fallback;
    }
    default: return fallback;
  }
}

Value to_float(Evaluator&, const Value& value, Arguments& arguments) {
  const Parameters parameters("float", arguments, {"default"});
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_number()) return Value::real(value.as_double());
  double number = 0;
  if ((value.is_string() || value.is(Kind::kBigInteger)) && parse_float(value.as_string(), number)) {
    return Value::real(number);
  }
  return parameters.has(0) ? parameters.value(0) : Value::real(0);
}

Value round_number(Evaluator&, const Value& value, Arguments& arguments) {
  const Parameters parameters("round", arguments, {"precision", "method"});
  const int64_t precision = parameters.integer(0, 0);
  const std::string_view method = parameters.text(1, "common");
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_number())
    throw TemplateError(std::string("type ") + type_name(value) + " doesn't define __round__ method");
  const double number = value.as_double();
  if (method == "ceil" || method == "floor") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = method == "ceil" ? std::ceil(number * scale) : std::floor(number * scale);
    return Value::real(scaled / scale);
  }
  if (method != "common") throw TemplateError("method must be common, ceil or floor", false);
  if (value.is_integral() && precision >= 0) return Value::integer(value.as_integer());
  if (!std::isfinite(number) || precision > 300) return value;
  if (precision < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    const double scaled = std::nearbyint(number / scale) * scale;
    return value.is_integral() ? Value::integer(static_cast<int64_t>(scaled)) : Value::real(scaled);
  }
  // Decimal rounding of the exact binary value, ties to even, as Python's round.
  char buffer[800];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed, static_cast<int>(precision));
  double rounded = 0;
  std::from_chars(buffer, end.ptr, rounded);
  return Value::real(rounded);
}

Value to_json_text(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters parameters("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = parameters.flag(0);
  style.sort_keys = parameters.flag(3);
  if (parameters.is_set(1)) {
    style.indented = true;
    style.item_separator = ",";
    if (parameters.value(1).is_string()) {
      style.indent = parameters.value(1).as_string();
    } else {
      const int64_t width = std::max<int64_t>(parameters.integer(1), 0);
      if (width > 1000) throw TemplateError("tojson: the indent is too wide", false);
      style.indent.assign(static_cast<size_t>(width), ' ');
    }
  }
  if (parameters.is_set(2)) {
    const List* separators = items_of(evaluator.heap(), parameters.value(2));
    if (separators->items.size() != 2 || !separators->items[0].is_string() || !separators->items[1].is_string()) {
      throw TemplateError("tojson: separators must be two strings");
    }
    style.item_separator = separators->items[0].as_string();
    style.key_separator = separators->items[1].as_string();
  }
  return evaluator.text(to_json(evaluator.heap(), value, style));
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"abs", absolute},
    {"capitalize", capitalize},
    {"center", center},
    {"e", escape_text},
    {"escape", escape_text},
    {"float", to_float},
    {"forceescape", force_escape},
    {"format", format},
    {"indent", indent},
    {"int", to_integer},
    {"lower", lower},
    {"replace", replace},
    {"round", round_number},
    {"safe", safe},
    {"string", string},
    {"title", title},
    {"tojson", to_json_text},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", upper},
    {"urlencode", url_encode},
    {"wordcount", word_count},
};

}  // namespace

Filter find_text_filter(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kFilters), std::end(kFilters), [&](const auto& one) { return one.first == name; });
  return found == std::end(kFilters) ? nullptr : found->second;
}

Filter find_filter(std::string_view name) {
  const Filter filter = find_text_filter(name);
  return filter != nullptr ? filter : find_sequence_filter(name);
}

}  // namespace tierpack::text::jinja

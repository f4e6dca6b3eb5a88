#include "runtime/text/template_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "runtime/text/template_operations.h"
#include "runtime/text/utf8.h"

namespace tierpack::text::jinja {

namespace {

// Widths and precisions beyond this are refused.
constexpr int64_t kMaxWidth = 1 << 20;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int64_t read_number(std::string_view text, size_t& at) {
  int64_t out = 0;
  while (at < text.size() && is_digit(text[at])) {
    out = out * 10 + (text[at++] - '0');
    if (out > kMaxWidth) throw TemplateError("format: width or precision is too large");
  }
  return out;
}

std::string digits_of(int64_t value, int base, bool upper) {
  char buffer[72];
  const uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string out(buffer, std::to_chars(buffer, buffer + sizeof buffer, magnitude, base).ptr);
  if (upper)
    std::transform(out.begin(), out.end(), out.begin(), [](char c) { return c >= 'a' && c <= 'z' ? c - 32 : c; });
  return out;
}

// |value| in one of the formats e, E, f, F, g, G.
std::string float_digits(double value, char type, int64_t precision, bool alternate) {
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  value = std::fabs(value);
  if (!std::isfinite(value)) {
    const char* name = std::isnan(value) ? "nan" : "inf";
    return upper ? (std::isnan(value) ? "NAN" : "INF") : name;
  }
  if (alternate) throw TemplateError("format: '#' is not supported with floating-point formats");
  const char lower = static_cast<char>(type | 0x20);
  const auto format = lower == 'e'   ? std::chars_format::scientific
                      : lower == 'f' ? std::chars_format::fixed
                                     : std::chars_format::general;
  if (lower == 'g' && precision == 0) precision = 1;
  std::string out(static_cast<size_t>(precision) + 400, '\0');
  out.resize(static_cast<size_t>(
      std::to_chars(out.data(), out.data() + out.size(), value, format, static_cast<int>(precision)).ptr - out.data()));
  if (upper) std::replace(out.begin(), out.end(), 'e', 'E');
  return out;
}

std::string pad(const std::string& body, const std::string& sign, int64_t width, char align, const std::string& fill) {
  const int64_t missing = width - count_characters(body) - static_cast<int64_t>(sign.size());
  if (missing <= 0) return sign + body;
  const auto times = [&](int64_t n) {
    std::string out;
    for (int64_t i = 0; i < n; ++i) out += fill;
    return out;
  };
  switch (align) {
    case '<': return sign + body + times(missing);
    case '^': return times(missing / 2) + sign + body + times(missing - missing / 2);
    case '=': return sign + times(missing) + body;
    default: return times(missing) + sign + body;
  }
}

std::string first_characters(std::string_view text, int64_t count) {
  return std::string(text.substr(0, offset_of(text, count)));
}

struct Percent {
  bool minus = false, plus = false, space = false, zero = false, alternate = false;
  int64_t width = 0, precision = -1;
  char type = 's';
};

int64_t whole_number(const Value& value, char type) {
  if (value.is_integral()) return value.as_integer();
  const bool decimal = type == 'd' || type == 'i' || type == 'u';
  if (decimal && value.is(Kind::kFloat) && std::fabs(value.as_double()) < 9e18) {
    return static_cast<int64_t>(value.as_double());
  }
  if (value.is_undefined()) fail_undefined(value);
  throw TemplateError(std::string("%") + type + " format: a number is required, not " + type_name(value));
}

std::string format_one(Heap& heap, const Value& value, const Percent& spec, bool markup) {
  std::string body, sign;
  const auto sign_of = [&](bool negative) { return negative ? "-" : spec.plus ? "+" : spec.space ? " " : ""; };
  switch (spec.type) {
    case 's': body = to_text(heap, value); break;
    case 'r':
    case 'a': body = repr(heap, value); break;
    case 'c':
      if (value.is_string()) {
        if (count_characters(value.as_string()) != 1) throw TemplateError("%c requires int or char");
        body = value.as_string();
      } else {
        const int64_t code = whole_number(value, 'c');
        if (code < 0 || code > 0x10FFFF) throw TemplateError("%c arg not in range(0x110000)");
        append_utf8(body, static_cast<char32_t>(code));
      }
      break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
      const int64_t number = whole_number(value, spec.type);
      const int base = spec.type == 'o' ? 8 : (spec.type | 0x20) == 'x' ? 16 : 10;
      body = digits_of(number, base, spec.type == 'X');
      if (static_cast<int64_t>(body.size()) < spec.precision) {
        body.insert(0, static_cast<size_t>(spec.precision) - body.size(), '0');
      }
      sign = sign_of(number < 0);
      if (spec.alternate && base != 10) sign += base == 8 ? "0o" : spec.type == 'X' ? "0X" : "0x";
      break;
    }
    default: {  // floating point
      if (value.is_undefined()) fail_undefined(value);
      if (!value.is_number()) {
        throw TemplateError(std::string("must be real number, not ") + type_name(value));
      }
      const double number = value.as_double();
      body = float_digits(number, spec.type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
      sign = sign_of(std::signbit(number));
    }
  }
  const bool text = spec.type == 's' || spec.type == 'r' || spec.type == 'a';
  if (text && markup && !value.is_markup()) body = escape(heap, body);
  if (text && spec.precision >= 0) body = first_characters(body, spec.precision);
  const bool zero = spec.zero && !spec.minus && !text && spec.type != 'c';
  return pad(body, sign, spec.width, spec.minus ? '<' : zero ? '=' : '>', zero ? "0" : " ");
}

}  // namespace

Value format_percent(Heap& heap, const Value& format, const Value& arguments) {
  const std::string_view text = format.as_string();
  heap.work_on(text);
  const bool is_tuple = arguments.is(Kind::kList) && arguments.as_list().kind == ListKind::kTuple;
  const bool is_mapping = arguments.is(Kind::kDict);
  size_t used = 0;
  const size_t available = is_tuple ? arguments.as_list().items.size() : 1;
  const auto next = [&]() -> const Value& {
    if (used >= available) throw TemplateError("not enough arguments for format string");
    return is_tuple ? arguments.as_list().items[used++] : (++used, arguments);
  };

  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '%') {
      out += text[at++];
      continue;
    }
    ++at;
    Percent spec;
    const Value* named = nullptr;
    if (at < text.size() && text[at] == '(') {
      const size_t close = text.find(')', at);
      if (close == std::string_view::npos) throw TemplateError("incomplete format key");
      if (!is_mapping) throw TemplateError("format requires a mapping");
      const std::string_view key = text.substr(at + 1, close - at - 1);
      named = arguments.as_dict().find(key);
      if (named == nullptr) throw TemplateError("format key '" + std::string(key) + "' is missing", false);
      at = close + 1;
    }
    for (bool more = true; more && at < text.size(); at += more) {
      switch (text[at]) {
        case '-': spec.minus = true; break;
        case '+': spec.plus = true; break;
        case ' ': spec.space = true; break;
        case '0': spec.zero = true; break;
        case '#': spec.alternate = true; break;
        default: more = false;
      }
    }
    const auto read_width = [&]() -> int64_t {
      if (at >= text.size() || text[at] != '*') return read_number(text, at);
      ++at;
      const Value& width = next();
      if (!width.is_integral()) throw TemplateError("* wants int");
      if (width.as_integer() > kMaxWidth) throw TemplateError("format: width or precision is too large");
      return width.as_integer();
    };
    spec.width = read_width();
    if (spec.width < 0) spec.minus = true, spec.width = -spec.width;
    if (at < text.size() && text[at] == '.') {
      ++at;
      spec.precision = std::max<int64_t>(read_width(), 0);
    }
    while (at < text.size() && (text[at] == 'l' || text[at] == 'h' || text[at] == 'L')) ++at;
    if (at >= text.size()) throw TemplateError("incomplete format");
    spec.type = text[at++];
    if (spec.type == '%') {
      out += '%';
      continue;
    }
    if (std::string_view("sracdiuxXoeEfFgG").find(spec.type) == std::string_view::npos) {
      throw TemplateError(std::string("unsupported format character '") + spec.type + "'");
    }
    const std::string one = format_one(heap, named != nullptr ? *named : next(), spec, format.is_markup());
    heap.charge(one.size());
    out += one;
  }
  // Whatever can be subscripted by a key may be left over, which to Python includes lists and undefined values.
  const bool may_be_left = is_mapping || arguments.is_undefined() ||
                           (arguments.is(Kind::kList) && (arguments.as_list().kind == ListKind::kList ||
                                                          arguments.as_list().kind == ListKind::kRange));
  if (!may_be_left && used < available) {
    throw TemplateError("not all arguments converted during string formatting");
  }
  return Value::string(heap.store(out), format.is_markup());
}

std::string format_value(Heap& heap, const Value& value, std::string_view specification) {
  if (specification.empty()) return std::string(to_text(heap, value));
  if (value.is_undefined() || value.is(Kind::kNone) || (!value.is_number() && !value.is_string())) {
    throw TemplateError(std::string("unsupported format string passed to ") + type_name(value) + ".__format__");
  }
  size_t at = 0;
  std::string fill = " ";
  char align = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  const size_t first = decode_utf8(specification, 0).length;
  if (first < specification.size() && is_align(specification[first])) {
    fill = specification.substr(0, first);
    align = specification[first];
    at = first + 1;
  } else if (is_align(specification[0])) {
    align = specification[at++];
  }
  const auto take = [&](char c) { return at < specification.size() && specification[at] == c ? (++at, true) : false; };
  const bool plus = take('+');
  const bool space = !plus && take(' ');
  if (!plus && !space) take('-');
  const bool alternate = take('#');
  const bool zero = take('0');
  if (zero && align == 0) align = '=', fill = "0";
  const int64_t width = read_number(specification, at);
  const char group = take(',') ? ',' : take('_') ? '_' : '\0';
  int64_t precision = -1;
  if (take('.')) precision = read_number(specification, at);
  char type = at < specification.size() ? specification[at++] : '\0';
  if (at != specification.size()) throw TemplateError("invalid format specifier");

  if (value.is_string()) {
    if ((type != 's' && type != '\0') || align == '=' || group != '\0' || plus || space || alternate) {
      throw TemplateError("invalid format specifier for a string");
    }
    std::string body(value.as_string());
    if (precision >= 0) body = first_characters(body, precision);
    return pad(body, "", width, align == 0 ? '<' : align, fill);
  }

  std::string body, sign;
  bool negative = false;
  if (value.is_integral() && std::string_view("dbxXoc\0", 7).find(type) != std::string_view::npos) {
    const int64_t number = value.as_integer();
    negative = number < 0;
    if (precision >= 0) throw TemplateError("precision not allowed in integer format specifier");
    if (type == 'c') {
      append_utf8(body, static_cast<char32_t>(number));
    } else {
      const int base = type == 'b' ? 2 : type == 'o' ? 8 : (type | 0x20) == 'x' ? 16 : 10;
      body = digits_of(number, base, type == 'X');
      if (alternate && base != 10) sign = base == 2 ? "0b" : base == 8 ? "0o" : type == 'X' ? "0X" : "0x";
    }
  } else {
    double number = value.as_double();
    negative = std::signbit(number);
    if (type == '%') number *= 100;
    if (type == '\0' && precision < 0) {
      body = float_repr(std::fabs(number));
    } else if (std::string_view("eEfFgG%\0", 8).find(type) != std::string_view::npos) {
      const char base = type == '%' ? 'f' : type == '\0' ? 'g' : type;
      body = float_digits(number, base, precision < 0 ? 6 : precision, alternate);
    } else {
      throw TemplateError(std::string("unknown format code '") + type + "' for object of type '" + type_name(value) +
                          "'");
    }
  }
  if (group != '\0') {
    const bool decimal = type != 'x' && type != 'X' && type != 'b' && type != 'o';
    const size_t every = decimal ? 3 : 4;
    size_t whole = 0;
    while (whole < body.size() && std::isxdigit(static_cast<unsigned char>(body[whole])) &&
           (!decimal || is_digit(body[whole]))) {
      ++whole;
    }
    for (size_t i = whole; i > every; i -= every) body.insert(i - every, 1, group);
  }
  if (type == '%') body += '%';
  sign = std::string(negative ? "-" : plus ? "+" : space ? " " : "") + sign;
  return pad(body, sign, width, align == 0 ? '>' : align, fill);
}

std::string format_fields(Heap& heap, std::string_view format, const std::function<Value(std::string_view)>& field) {
  std::string out;
  for (size_t at = 0; at < format.size();) {
    const char c = format[at];
    if ((c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c) {
      out += c;
      at += 2;
      continue;
    }
    if (c == '}') throw TemplateError("Single '}' encountered in format string");
    if (c != '{') {
      out += c;
      ++at;
      continue;
    }
    const size_t close = format.find('}', at);
    if (close == std::string_view::npos) throw TemplateError("Single '{' encountered in format string");
    std::string_view inner = format.substr(at + 1, close - at - 1);
    if (inner.find('{') != std::string_view::npos) {
      throw TemplateError("nested replacement fields are not supported", false);
    }
    std::string_view specification, conversion;
    if (const size_t colon = inner.find(':'); colon != std::string_view::npos) {
      specification = inner.substr(colon + 1);
      inner = inner.substr(0, colon);
    }
    if (const size_t mark = inner.find('!'); mark != std::string_view::npos) {
      conversion = inner.substr(mark + 1);
      inner = inner.substr(0, mark);
    }
    Value value = field(inner);
    if (conversion == "r" || conversion == "a") {
      value = Value::string(heap.store(repr(heap, value)));
    } else if (conversion == "s") {
      value = Value::string(to_text(heap, value));
    } else if (!conversion.empty()) {
      throw TemplateError("unknown conversion specifier '" + std::string(conversion) + "'");
    }
    const std::string one = format_value(heap, value, specification);
    heap.charge(one.size());
    out += one;
    at = close + 1;
  }
  return out;
}

}  // namespace tierpack::text::jinja

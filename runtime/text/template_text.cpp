// The part of template_operations.h that is about str() and repr().
#include <charconv>
#include <cmath>
#include <cstdio>

#include "runtime/text/template_objects.h"
#include "runtime/text/template_operations.h"
#include "runtime/text/unicode.h"
#include "runtime/text/utf8.h"

namespace tierpack::text::jinja {

namespace {

constexpr int kMaxNesting = 200;

void append_repr(Heap& heap, std::string& out, const Value& value, int depth);

void append_items(Heap& heap, std::string& out, const std::vector<Value>& items, const char* open, const char* close,
                  int depth) {
  out += open;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(heap, out, items[i], depth + 1);
  }
  out += close;
}

void append_list(Heap& heap, std::string& out, const List& list, int depth) {
  switch (list.kind) {
    case ListKind::kList: return append_items(heap, out, list.items, "[", "]", depth);
    case ListKind::kTuple: return append_items(heap, out, list.items, "(", list.items.size() == 1 ? ",)" : ")", depth);
    case ListKind::kDictItems: return append_items(heap, out, list.items, "dict_items([", "])", depth);
    case ListKind::kDictKeys: return append_items(heap, out, list.items, "dict_keys([", "])", depth);
    case ListKind::kDictValues: return append_items(heap, out, list.items, "dict_values([", "])", depth);
    case ListKind::kRange:
      out += "range(" + std::to_string(list.start) + ", " + std::to_string(list.stop);
      if (list.step != 1) out += ", " + std::to_string(list.step);
      out += ')';
      return;
    case ListKind::kIterator: out += "<generator object>"; return;
  }
}

void append_dict(Heap& heap, std::string& out, const Dict& dict, int depth) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out += ", ";
    first = false;
    append_repr(heap, out, key, depth + 1);
    out += ": ";
    append_repr(heap, out, value, depth + 1);
  }
  out += '}';
}

void append_repr(Heap& heap, std::string& out, const Value& value, int depth) {
  if (depth > kMaxNesting) throw TemplateError("values are nested too deep", false);
  heap.work(1);
  const size_t before = out.size();
  switch (value.kind()) {
    case Kind::kUndefined: out += "Undefined"; break;
    case Kind::kNone: out += "None"; break;
    case Kind::kBool: out += value.as_bool() ? "True" : "False"; break;
    case Kind::kInteger: out += std::to_string(value.as_integer()); break;
    case Kind::kBigInteger: out += value.as_string(); break;
    case Kind::kFloat: out += float_repr(value.as_double()); break;
    case Kind::kString:
      if (value.is_markup()) out += "Markup(";
      out += string_repr(value.as_string());
      if (value.is_markup()) out += ')';
      break;
    case Kind::kList: append_list(heap, out, value.as_list(), depth); return;
    case Kind::kDict: append_dict(heap, out, value.as_dict(), depth); return;
    case Kind::kNamespace:
      out += "<Namespace ";
      append_dict(heap, out, value.as_dict(), depth);
      out += '>';
      return;
    case Kind::kLoop:
      out += "<LoopContext " + std::to_string(value.as_loop().index + 1) + "/" +
             std::to_string(value.as_loop().items->size()) + ">";
      break;
    case Kind::kCallable: {
      const Callable& callable = value.as_callable();
      out += callable.kind == CallableKind::kMacro ? "<Macro '" : "<function '";
      out += callable.name;
      out += "'>";
      break;
    }
  }
  heap.charge(out.size() - before);
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // The shortest digits that give the value back, in Python's notation.
  char buffer[32];
  const char* end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  std::string digits, out;
  for (const char c : text.substr(0, e)) {
    if (c == '-') {
      out = "-";
    } else if (c != '.') {
      digits += c;
    }
  }
  int exponent = 0;
  const std::string_view exponent_text = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    std::snprintf(buffer, sizeof buffer, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + buffer;
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string string_repr(std::string_view text) {
  const bool double_quotes = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    char buffer[16] = "";
    if (code.value == '\n') {
      out += "\\n";
    } else if (code.value == '\r') {
      out += "\\r";
    } else if (code.value == '\t') {
      out += "\\t";
    } else if (code.value == '\\' || code.value == static_cast<char32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(code.value);
    } else if (is_in(CharacterClass::kPrintable, code.value)) {
      out.append(text.substr(at, code.length));
    } else {
      const char* format = code.value < 0x100 ? "\\x%02x" : code.value < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(buffer, sizeof buffer, format, static_cast<unsigned>(code.value));
      out += buffer;
    }
    at += code.length;
  }
  return out + quote;
}

std::string repr(Heap& heap, const Value& value) {
  std::string out;
  append_repr(heap, out, value, 0);
  return out;
}

std::string_view to_text(Heap& heap, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return "";
    case Kind::kNone: return "None";
    case Kind::kBool: return value.as_bool() ? "True" : "False";
    case Kind::kString:
    case Kind::kBigInteger: return value.as_string();
    default: return heap.store(repr(heap, value));
  }
}

std::string_view escape(Heap& heap, std::string_view text) {
  if (text.find_first_of("&<>'\"") == std::string_view::npos) return text;
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return heap.store(out);
}

}  // namespace tierpack::text::jinja

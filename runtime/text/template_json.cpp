#include "runtime/text/template_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "runtime/text/template_operations.h"
#include "runtime/text/utf8.h"

namespace tierpack::text::jinja {

namespace {

constexpr size_t kMaxDepth = 100;

// Builds values while the parser reads.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(Heap& heap) : heap_(heap) {}
  Value result() const { return result_; }
  const std::string& error() const { return error_; }

  bool null() override { return add(Value::none()); }
  bool boolean(bool value) override { return add(Value::boolean(value)); }
  bool number_integer(number_integer_t value) override { return add(Value::integer(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= INT64_MAX) return add(Value::integer(static_cast<int64_t>(value)));
    return add(Value::big_integer(heap_.store(std::to_string(value))));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    // Integers beyond 64 bits arrive here too.
    if (text.find_first_of(".eE") != std::string::npos) return add(Value::real(value));
    return add(Value::big_integer(heap_.store(text)));
  }
  bool string(string_t& value) override { return add(Value::string(heap_.store(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Value::dict(heap_.new_dict())); }
  bool key(string_t& value) override {
    keys_.back() = heap_.store(value);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Value::list(heap_.new_list())); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    error_ = error.what();
    return false;
  }

 private:
  bool add(const Value& value) {
    if (open_.empty()) {
      result_ = value;
    } else if (open_.back().is(Kind::kDict)) {
      heap_.set(open_.back().as_dict(), Value::string(keys_.back()), value);
    } else {
      heap_.push(open_.back().as_list(), value);
    }
    return true;
  }
  bool open(const Value& value) {
    if (open_.size() >= kMaxDepth) {
      error_ = "nested too deep";
      return false;
    }
    add(value);
    open_.push_back(value);
    keys_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  Heap& heap_;
  Value result_;
  std::vector<Value> open_;
  std::vector<std::string_view> keys_;
  std::string error_;
};

void append_string(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  const auto escape = [&](char32_t unit) {
    char buffer[16];
    std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(unit));
    out += buffer;
  };
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    switch (code.value) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\f': out += "\\f"; break;
      case '\b': out += "\\b"; break;
      default:
        if (code.value < 0x20) {
          escape(code.value);
        } else if (!ensure_ascii || code.value < 0x7F + 1) {
          out.append(text.substr(at, code.length));
        } else if (code.value < 0x10000) {
          escape(code.value);
        } else {
          escape(0xD800 + ((code.value - 0x10000) >> 10));
          escape(0xDC00 + ((code.value - 0x10000) & 0x3FF));
        }
    }
    at += code.length;
  }
  out += '"';
}

std::string float_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_repr(value);
}

class Writer {
 public:
  Writer(Heap& heap, const JsonStyle& style) : heap_(heap), style_(style) {}

  void write(const Value& value, size_t depth) {
    if (depth > kMaxDepth * 2) throw TemplateError("values are nested too deep for JSON", false);
    heap_.work(1);
    const size_t before = out_.size();
    switch (value.kind()) {
      case Kind::kNone: out_ += "null"; break;
      case Kind::kBool: out_ += value.as_bool() ? "true" : "false"; break;
      case Kind::kInteger: out_ += std::to_string(value.as_integer()); break;
      case Kind::kBigInteger: out_ += value.as_string(); break;
      case Kind::kFloat: out_ += float_text(value.as_double()); break;
      case Kind::kString:
        append_string(out_, value.as_string(), style_.ensure_ascii);
        heap_.work_on(value.as_string());
        break;
      case Kind::kList:
        if (value.as_list().kind <= ListKind::kTuple) return write_list(value.as_list(), depth);
        [[fallthrough]];
      default:
        if (value.is(Kind::kDict)) return write_dict(value.as_dict(), depth);
        throw TemplateError(std::string("Object of type ") + type_name(value) + " is not JSON serializable");
    }
    heap_.charge(out_.size() - before);
  }

  std::string take() { return std::move(out_); }

 private:
  void separate(bool first, size_t depth) {
    if (!first) out_ += style_.item_separator;
    if (style_.indented) {
      out_ += '\n';
      for (size_t i = 0; i < depth; ++i) out_ += style_.indent;
      heap_.charge(1 + depth * style_.indent.size());
    }
  }

  void write_list(const List& list, size_t depth) {
    out_ += '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      separate(i == 0, depth + 1);
      write(list.items[i], depth + 1);
    }
    if (!list.items.empty() && style_.indented) separate(true, depth);
    out_ += ']';
  }

  std::string key_text(const Value& key) const {
    switch (key.kind()) {
      case Kind::kString:
      case Kind::kBigInteger: return std::string(key.as_string());
      case Kind::kNone: return "null";
      case Kind::kBool: return key.as_bool() ? "true" : "false";
      case Kind::kInteger: return std::to_string(key.as_integer());
      case Kind::kFloat: return float_text(key.as_double());
      default: break;
    }
    throw TemplateError(std::string("keys must be str, int, float, bool or None, not ") + type_name(key));
  }

  void write_dict(const Dict& dict, size_t depth) {
    out_ += '{';
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const Dict::Entry* a, const Dict::Entry* b) {
        return compare(heap_, a->first, b->first) < 0;
      });
    }
    bool first = true;
    for (const Dict::Entry* entry : entries) {
      separate(first, depth + 1);
      first = false;
      append_string(out_, key_text(entry->first), style_.ensure_ascii);
      out_ += style_.key_separator;
      write(entry->second, depth + 1);
    }
    if (!first && style_.indented) separate(true, depth);
    out_ += '}';
  }

  Heap& heap_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

Value parse_json_value(Heap& heap, std::string_view text) {
  Builder builder(heap);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    fail(ErrorKind::kCorrupt, "the variables of a chat template are not valid JSON: {}", builder.error());
  }
  return builder.result();
}

std::string to_json(Heap& heap, const Value& value, const JsonStyle& style) {
  Writer writer(heap, style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace tierpack::text::jinja

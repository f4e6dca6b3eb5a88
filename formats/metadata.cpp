#include "formats/metadata.h"

#include <cmath>

#include "base/error.h"

namespace tierpack {
namespace {

std::string kind_text(const MetaValue& value) {
  static constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
  const auto name = [](ValueType type) { return kNames[static_cast<size_t>(type)]; };
  if (value.is_array()) return fmt::format("an array of {} {}", value.array_size(), name(value.element_type));
  return fmt::format("{} {}", name(value.type), value.text(40));
}

// Copies text with control characters escaped, at most `limit` bytes and only whole UTF-8 sequences.
std::string printable(std::string_view text, size_t limit) {
  std::string out;
  bool cut = false;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    std::string piece;
    size_t used = 1;
    if (byte == '\n') {
      piece = "\\n";
    } else if (byte == '\t') {
      piece = "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      piece = fmt::format("\\x{:02x}", byte);
    } else {
      used = byte < 0x80 ? 1 : byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
      bool whole = byte < 0x80 || (byte >= 0xc2 && byte < 0xf5 && i + used <= text.size());
      for (size_t k = 1; whole && k < used; ++k) whole = (static_cast<unsigned char>(text[i + k]) & 0xc0) == 0x80;
      if (whole) {
        piece = std::string(text.substr(i, used));
      } else {
        used = 1;
        piece = fmt::format("\\x{:02x}", byte);
      }
    }
    if (out.size() + piece.size() > limit) {
      cut = true;
      break;
    }
    out += piece;
    i += used;
  }
  if (cut) out += "...";
  return out;
}

std::string number_text(uint64_t v) { return std::to_string(v); }
std::string number_text(int64_t v) { return std::to_string(v); }
std::string number_text(bool v) { return v ? "true" : "false"; }

// Shortest text that reads back as the same number of the file's own width.
std::string float_text(double v, ValueType type) {
  return type == ValueType::kF32 ? fmt::format("{}", static_cast<float>(v)) : fmt::format("{}", v);
}

[[noreturn]] void wrong_kind(const std::string& source, std::string_view key, const MetaValue& value,
                             const char* wanted) {
  fail(ErrorKind::kCorrupt, "{}: '{}': expected {}, found {}", source, key, wanted, kind_text(value));
}

std::optional<uint64_t> to_u64(const MetaValue::Scalar& scalar) {
  if (const auto* u = std::get_if<uint64_t>(&scalar)) return *u;
  if (const auto* b = std::get_if<bool>(&scalar)) return *b ? 1 : 0;
  if (const auto* i = std::get_if<int64_t>(&scalar); i && *i >= 0) return static_cast<uint64_t>(*i);
  return std::nullopt;
}

std::optional<int64_t> to_i64(const MetaValue::Scalar& scalar) {
  if (const auto* i = std::get_if<int64_t>(&scalar)) return *i;
  if (const auto* b = std::get_if<bool>(&scalar)) return *b ? 1 : 0;
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (const auto* u = std::get_if<uint64_t>(&scalar); u && *u <= kMax) return static_cast<int64_t>(*u);
  return std::nullopt;
}

std::optional<double> to_f64(const MetaValue::Scalar& scalar) {
  if (const auto* d = std::get_if<double>(&scalar)) return std::isfinite(*d) ? std::optional(*d) : std::nullopt;
  if (const auto* u = std::get_if<uint64_t>(&scalar)) return static_cast<double>(*u);
  if (const auto* i = std::get_if<int64_t>(&scalar)) return static_cast<double>(*i);
  return std::nullopt;
}

// Elements of an array (or the one scalar) through `convert`.
template <typename T, typename Convert>
std::vector<T> to_array(const std::string& source, std::string_view key, const MetaValue& value, const char* wanted,
                        Convert convert) {
  std::vector<T> out;
  const auto push = [&](const MetaValue::Scalar& scalar) {
    const std::optional<T> converted = convert(scalar);
    if (!converted) wrong_kind(source, key, value, wanted);
    out.push_back(*converted);
  };
  if (!value.is_array()) {
    push(std::get<MetaValue::Scalar>(value.value));
    return out;
  }
  out.reserve(value.array_size());
  std::visit(
      [&](const auto& elements) {
        for (const auto& element : elements) {
          push(MetaValue::Scalar(static_cast<typename std::decay_t<decltype(elements)>::value_type>(element)));
        }
      },
      std::get<MetaValue::Array>(value.value));
  return out;
}

}  // namespace

MetaValue MetaValue::scalar(ValueType type, Scalar value) { return {type, ValueType::kU32, std::move(value)}; }

MetaValue MetaValue::array(ValueType element_type, Array elements) {
  return {ValueType::kArray, element_type, std::move(elements)};
}

uint64_t MetaValue::array_size() const {
  if (!is_array()) return 0;
  return std::visit([](const auto& elements) -> uint64_t { return elements.size(); }, std::get<Array>(value));
}

std::string MetaValue::text(size_t limit) const {
  if (!is_array()) {
    return std::visit(
        [&](const auto& v) -> std::string {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, std::string>) {
            return printable(v, limit);
          } else if constexpr (std::is_same_v<T, double>) {
            return float_text(v, type);
          } else {
            return number_text(v);
          }
        },
        std::get<Scalar>(value));
  }
  std::string out = "[";
  std::visit(
      [&](const auto& elements) {
        using T = typename std::decay_t<decltype(elements)>::value_type;
        size_t shown = 0;
        for (const auto& element : elements) {
          std::string piece = shown ? ", " : "";
          if constexpr (std::is_same_v<T, std::string>) {
            piece += '"' + printable(element, limit) + '"';
          } else if constexpr (std::is_same_v<T, double>) {
            piece += float_text(element, element_type);
          } else {
            piece += number_text(static_cast<T>(element));
          }
          if (out.size() + piece.size() + 24 > limit && shown + 1 < elements.size()) {
            out += fmt::format("{}... of {}", shown ? ", " : "", elements.size());
            break;
          }
          out += piece;
          ++shown;
        }
      },
      std::get<Array>(value));
  return out + "]";
}

void Metadata::add(std::string key, MetaValue value) {
  const auto [at, fresh] = index_.emplace(key, entries_.size());
  if (!fresh) fail(ErrorKind::kCorrupt, "{}: the key '{}' appears twice", source_, key);
  entries_.emplace_back(std::move(key), std::move(value));
}

const MetaValue* Metadata::find(std::string_view key) const {
  const auto at = index_.find(std::string(key));
  return at == index_.end() ? nullptr : &entries_[at->second].second;
}

const MetaValue& Metadata::require(std::string_view key) const {
  const MetaValue* value = find(key);
  if (!value) fail(ErrorKind::kCorrupt, "{}: the metadata has no key '{}'", source_, key);
  return *value;
}

uint64_t Metadata::u64(std::string_view key) const {
  const MetaValue& value = require(key);
  const auto number = value.is_array() ? std::nullopt : to_u64(std::get<MetaValue::Scalar>(value.value));
  if (!number) wrong_kind(source_, key, value, "a non-negative integer");
  return *number;
}

uint64_t Metadata::u64_or(std::string_view key, uint64_t fallback) const { return has(key) ? u64(key) : fallback; }

double Metadata::f64(std::string_view key) const {
  const MetaValue& value = require(key);
  const auto number = value.is_array() ? std::nullopt : to_f64(std::get<MetaValue::Scalar>(value.value));
  if (!number) wrong_kind(source_, key, value, "a finite number");
  return *number;
}

double Metadata::f64_or(std::string_view key, double fallback) const { return has(key) ? f64(key) : fallback; }

bool Metadata::boolean_or(std::string_view key, bool fallback) const {
  const MetaValue* value = find(key);
  if (!value) return fallback;
  const auto number = value->is_array() ? std::nullopt : to_u64(std::get<MetaValue::Scalar>(value->value));
  if (!number || *number > 1) wrong_kind(source_, key, *value, "true or false");
  return *number == 1;
}

std::string Metadata::string(std::string_view key) const {
  const MetaValue& value = require(key);
  if (value.type != ValueType::kString) wrong_kind(source_, key, value, "a string");
  return std::get<std::string>(std::get<MetaValue::Scalar>(value.value));
}

std::string Metadata::string_or(std::string_view key, std::string_view fallback) const {
  return has(key) ? string(key) : std::string(fallback);
}

std::vector<uint64_t> Metadata::u64_array(std::string_view key) const {
  return to_array<uint64_t>(source_, key, require(key), "non-negative integers", to_u64);
}

std::vector<int64_t> Metadata::i64_array(std::string_view key) const {
  return to_array<int64_t>(source_, key, require(key), "integers", to_i64);
}

std::vector<double> Metadata::f64_array(std::string_view key) const {
  return to_array<double>(source_, key, require(key), "finite numbers", to_f64);
}

const std::vector<std::string>& Metadata::string_array(std::string_view key) const {
  const MetaValue& value = require(key);
  if (!value.is_array() || value.element_type != ValueType::kString) {
    wrong_kind(source_, key, value, "an array of strings");
  }
  return std::get<std::vector<std::string>>(std::get<MetaValue::Array>(value.value));
}

}  // namespace tierpack

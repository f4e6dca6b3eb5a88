// Values of a checkpoint's JSON files, checked, and metadata being written from them. Used by hf_*.cpp alone.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "formats/metadata.h"

namespace tierpack {

// One JSON object. A member that is null counts as absent.
class HfObject {
 public:
  // Throws kCorrupt unless `json` is an object; it must outlive this.
  HfObject(const Json& json, std::string source);

  const std::string& source() const { return source_; }
  const Json* find(const char* key) const;
  bool has(const char* key) const { return find(key) != nullptr; }

  // Throw kCorrupt for another kind of value, and outside low .. high; the plain forms also when it is absent.
  uint64_t count(const char* key, uint64_t low, uint64_t high) const;
  std::optional<uint64_t> find_count(const char* key, uint64_t low, uint64_t high) const;
  double number(const char* key) const;
  std::optional<double> find_number(const char* key) const;
  std::optional<bool> find_flag(const char* key) const;
  std::optional<std::string> find_string(const char* key) const;
  std::string string(const char* key) const;
  std::vector<uint64_t> counts(const char* key, uint64_t high, size_t most) const;  // an array
  std::optional<HfObject> find_object(const char* key) const;

  template <typename... Args>
  [[noreturn]] void corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::kCorrupt, source_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  [[noreturn]] void unsupported(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::kUnsupported, source_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const Json& json_;
  std::string source_;
};

// Adds keys below a prefix ("qwen3moe."), each with the type that converters give it.
class MetadataWriter {
 public:
  MetadataWriter(Metadata& out, std::string prefix) : out_(out), prefix_(std::move(prefix)) {}

  void u32(const char* key, uint64_t value) { add(key, MetaValue::scalar(ValueType::kU32, value)); }
  void u32(const char* key, const std::optional<uint64_t>& value) {
    if (value) u32(key, *value);
  }
  // Held as the 32-bit float that a GGUF would give back.
  void f32(const char* key, double value) {
    add(key, MetaValue::scalar(ValueType::kF32, static_cast<double>(static_cast<float>(value))));
  }
  void f32(const char* key, const std::optional<double>& value) {
    if (value) f32(key, *value);
  }
  void flag(const char* key, bool value) { add(key, MetaValue::scalar(ValueType::kBool, value)); }
  void string(const char* key, std::string value) { add(key, MetaValue::scalar(ValueType::kString, std::move(value))); }
  void array(const char* key, ValueType type, MetaValue::Array values) {
    add(key, MetaValue::array(type, std::move(values)));
  }

 private:
  void add(const char* key, MetaValue value) { out_.add(prefix_ + key, std::move(value)); }
  Metadata& out_;
  std::string prefix_;
};

// Limits of what a checkpoint may say, far above any model's.
inline constexpr uint64_t kHfTokensMax = uint64_t{1} << 20;

// The texts in one place: JSON of at most 8 MiB, or kCorrupt.
Json parse_hf_json(std::string_view text, const std::string& source);

}  // namespace tierpack

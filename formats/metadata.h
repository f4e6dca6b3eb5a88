// Typed key-value metadata of a model, in GGUF's vocabulary (facts: docs/gguf.md). Whatever a source was, the rest of
// the program reads its hyper-parameters, tokenizer and chat template from here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/bytes.h"

namespace tierpack {

// GGUF value type ids.
enum class ValueType : int32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

struct MetaValue {
  // Integers of any width are held in 64 bits, floats as double; `type` keeps what the file said. Arrays are flat.
  using Scalar = std::variant<uint64_t, int64_t, double, bool, std::string>;
  using Array = std::variant<std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>, std::vector<bool>,
                             std::vector<std::string>>;
  ValueType type = ValueType::kU32;          // kArray for arrays
  ValueType element_type = ValueType::kU32;  // of arrays
  std::variant<Scalar, Array> value;

  // Integers must come as uint64_t or int64_t according to the signedness of the type.
  static MetaValue scalar(ValueType type, Scalar value);
  static MetaValue array(ValueType element_type, Array elements);

  bool is_array() const { return type == ValueType::kArray; }
  uint64_t array_size() const;  // 0 for scalars
  // For people: at most `limit` characters, arrays shortened.
  std::string text(size_t limit) const;
};

class Metadata {
 public:
  explicit Metadata(std::string source = "metadata") : source_(std::move(source)) {}
  const std::string& source() const { return source_; }

  // Throws kCorrupt on a duplicate key.
  void add(std::string key, MetaValue value);
  const MetaValue* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const std::vector<std::pair<std::string, MetaValue>>& entries() const { return entries_; }

  // Typed access. Any integer type converts with a range check; a value of the wrong kind is kCorrupt. The plain form
  // throws kCorrupt when the key is missing, the _or forms return the default.
  uint64_t u64(std::string_view key) const;
  uint64_t u64_or(std::string_view key, uint64_t fallback) const;
  double f64(std::string_view key) const;  // finite, or kCorrupt
  double f64_or(std::string_view key, double fallback) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string string(std::string_view key) const;
  std::string string_or(std::string_view key, std::string_view fallback) const;
  std::vector<uint64_t> u64_array(std::string_view key) const;  // a scalar counts as one element
  std::vector<int64_t> i64_array(std::string_view key) const;
  std::vector<double> f64_array(std::string_view key) const;
  const std::vector<std::string>& string_array(std::string_view key) const;

 private:
  const MetaValue& require(std::string_view key) const;
  std::string source_;
  std::vector<std::pair<std::string, MetaValue>> entries_;
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace tierpack

#include "formats/hf_values.h"

#include <limits>

#include "base/printable.h"

namespace tierpack {

namespace {

std::string shown(const Json& value) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 60);
}

}  // namespace

HfObject::HfObject(const Json& json, std::string source) : json_(json), source_(std::move(source)) {
  if (!json_.is_object()) corrupt("expected a JSON object, found {}", shown(json_));
}

const Json* HfObject::find(const char* key) const {
  const auto found = json_.find(key);
  return found != json_.end() && !found->is_null() ? &*found : nullptr;
}

std::optional<uint64_t> HfObject::find_count(const char* key, uint64_t low, uint64_t high) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_unsigned()) corrupt("'{}': expected a non-negative integer, found {}", key, shown(*value));
  const auto number = value->get<uint64_t>();
  if (number < low || number > high) corrupt("'{}' is {}; it must be from {} to {}", key, number, low, high);
  return number;
}

uint64_t HfObject::count(const char* key, uint64_t low, uint64_t high) const {
  const auto value = find_count(key, low, high);
  if (!value) corrupt("'{}' is missing", key);
  return *value;
}

std::optional<double> HfObject::find_number(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(std::fabs(number) <= std::numeric_limits<float>::max())) {
    corrupt("'{}': expected a number within a 32-bit float's range, found {}", key, shown(*value));
  }
  return number;
}

double HfObject::number(const char* key) const {
  const auto value = find_number(key);
  if (!value) corrupt("'{}' is missing", key);
  return *value;
}

std::optional<bool> HfObject::find_flag(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) corrupt("'{}': expected true or false, found {}", key, shown(*value));
  return value->get<bool>();
}

std::optional<std::string> HfObject::find_string(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) corrupt("'{}': expected a string, found {}", key, shown(*value));
  return value->get<std::string>();
}

std::string HfObject::string(const char* key) const {
  const auto value = find_string(key);
  if (!value) corrupt("'{}' is missing", key);
  return *value;
}

std::vector<uint64_t> HfObject::counts(const char* key, uint64_t high, size_t most) const {
  const Json* value = find(key);
  if (value == nullptr) corrupt("'{}' is missing", key);
  if (!value->is_array() || value->size() > most) {
    corrupt("'{}': expected a list of at most {} integers, found {}", key, most, shown(*value));
  }
  std::vector<uint64_t> out;
  for (const Json& element : *value) {
    if (!element.is_number_unsigned() || element.get<uint64_t>() > high) {
      corrupt("'{}': expected integers from 0 to {}, found {}", key, high, shown(element));
    }
    out.push_back(element.get<uint64_t>());
  }
  return out;
}

std::optional<HfObject> HfObject::find_object(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return std::optional<HfObject>(std::in_place, *value, source_ + ": " + key);
}

Json parse_hf_json(std::string_view text, const std::string& source) {
  JsonLimits limits;
  limits.max_bytes = uint64_t{8} << 20;
  limits.max_keys = 8192;
  return parse_json(text, source, limits);
}

}  // namespace tierpack

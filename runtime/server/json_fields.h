// Typed access to the fields of a request, with refusals that name the field. Include only from .cpp files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "runtime/server/api_error.h"

namespace tierpack::server {

// "messages[2].content: expected a string, found a number"
[[noreturn]] inline void refuse_field(const std::string& param, const std::string& problem,
                                      const std::string& code = "invalid_value") {
  throw ApiError(400, "'" + param + "': " + problem, code, param);
}

inline std::string with_article(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "an array";
    case Json::value_t::string: return "a string";
    case Json::value_t::boolean: return "a boolean";
    default: return "a number";
  }
}

// A client's own text in a message, shortened.
inline std::string quoted(const std::string& text) {
  constexpr size_t kShown = 60;
  return "\"" + (text.size() <= kShown ? text : text.substr(0, kShown) + "...") + "\"";
}

[[noreturn]] inline void refuse_type(const std::string& param, const char* expected, const Json& found) {
  refuse_field(param, std::string("expected ") + expected + ", found " + with_article(found), "invalid_type");
}

// An object of a request; `path` is put before the names of its fields in messages.
class Fields {
 public:
  Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
    if (!object.is_object()) refuse_type(path_.empty() ? "body" : path_, "an object", object);
  }

  std::string name(const char* key) const { return path_.empty() ? key : path_ + "." + key; }

  // Null when absent or null.
  const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  const Json& require(const char* key, const char* expected) const {
    const Json* value = find(key);
    if (value == nullptr) {
      throw ApiError(400, "'" + name(key) + "' is missing: expected " + expected, "missing_required_parameter",
                     name(key));
    }
    return *value;
  }

  bool boolean(const char* key, bool fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) refuse_type(name(key), "a boolean", *value);
    return value->get<bool>();
  }

  std::string string(const char* key, std::string fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_string()) refuse_type(name(key), "a string", *value);
    return value->get<std::string>();
  }

  double number(const char* key, double fallback, double low, double high) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number()) refuse_type(name(key), "a number", *value);
    const double number = value->get<double>();
    if (!(number >= low && number <= high)) {
      refuse_field(name(key), fmt::format("expected a number from {} to {}, found {}", low, high, value->dump()));
    }
    return number;
  }

  // A whole number; 3.0 counts as one, since some clients know no integers.
  int64_t integer(const char* key, int64_t fallback, int64_t low, int64_t high) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number()) refuse_type(name(key), "an integer", *value);
    const double number = value->get<double>();
    constexpr double kExact = 9007199254740992.0;  // 2^53
    const bool whole =
        value->is_number_integer() ||
        (number == static_cast<double>(static_cast<int64_t>(number > -kExact && number < kExact ? number : 0.5)));
    if (!whole) refuse_field(name(key), fmt::format("expected an integer, found {}", value->dump()), "invalid_type");
    const bool too_large = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    const int64_t integer = too_large ? INT64_MAX : value->get<int64_t>();
    if (too_large || integer < low || integer > high) {
      refuse_field(name(key), fmt::format("expected an integer from {} to {}, found {}", low, high, value->dump()));
    }
    return integer;
  }

 private:
  const Json& object_;
  std::string path_;
};

}  // namespace tierpack::server

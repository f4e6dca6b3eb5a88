#include "base/json.h"

#include <set>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

namespace tierpack {

Json parse_json(std::string_view text, const std::string& source, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    fail(ErrorKind::kCorrupt, "{}: {} of JSON, more than the limit of {}", source, format_size(text.size()),
         format_size(limits.max_bytes));
  }
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > limits.max_depth) {
      fail(ErrorKind::kCorrupt, "{}: JSON nested deeper than {} levels", source, limits.max_depth);
    }
    switch (event) {
      case Json::parse_event_t::object_start: keys.emplace_back(); break;
      case Json::parse_event_t::object_end: keys.pop_back(); break;
      case Json::parse_event_t::key:
        if (!keys.back().insert(value.get<std::string>()).second) {
          fail(ErrorKind::kCorrupt, "{}: key '{}' appears twice in one JSON object", source, value.get<std::string>());
        }
        if (keys.back().size() > limits.max_keys) {
          fail(ErrorKind::kCorrupt, "{}: more than {} keys in one JSON object", source, limits.max_keys);
        }
        break;
      default: break;
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::kCorrupt, "{}: not valid JSON: {}", source, e.what());
  }
}

const Json& json_member(const Json& object, const char* key, const std::string& source) {
  if (!object.is_object()) {
    fail(ErrorKind::kCorrupt, "{}: expected a JSON object holding '{}', found {}", source, key, object.type_name());
  }
  const auto found = object.find(key);
  if (found == object.end()) fail(ErrorKind::kCorrupt, "{}: '{}' is missing", source, key);
  return *found;
}

std::string json_string(const Json& object, const char* key, const std::string& source) {
  const Json& value = json_member(object, key, source);
  if (!value.is_string()) {
    fail(ErrorKind::kCorrupt, "{}: '{}': expected a string, found {}", source, key, value.type_name());
  }
  return value.get<std::string>();
}

uint64_t json_u64(const Json& object, const char* key, const std::string& source) {
  const Json& value = json_member(object, key, source);
  if (!value.is_number_unsigned()) {
    fail(ErrorKind::kCorrupt, "{}: '{}': expected a non-negative integer, found {}", source, key,
         value.is_number() ? value.dump() : value.type_name());
  }
  return value.get<uint64_t>();
}

std::string dump_json(const Json& value) { return value.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace tierpack

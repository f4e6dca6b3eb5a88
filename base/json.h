// JSON from outside, bounded: depth, size, keys of one object and duplicate keys are checked before a document is
// believed. Objects keep the order of their keys, so finding one takes time linear in their number.
// Include only from .cpp files; nlohmann/json is slow to compile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace tierpack {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  uint64_t max_bytes = uint64_t{64} << 20;
  int max_depth = 64;
  size_t max_keys = 16384;  // in one object
};

// Strict parse: valid UTF-8, no duplicate keys in one object, within the limits. Throws kCorrupt naming `source`.
Json parse_json(std::string_view text, const std::string& source, const JsonLimits& limits = {});

// Member of an object with the given type, or kCorrupt: "<source>: <key>: expected a string, found number".
const Json& json_member(const Json& object, const char* key, const std::string& source);
std::string json_string(const Json& object, const char* key, const std::string& source);
uint64_t json_u64(const Json& object, const char* key, const std::string& source);

// Pretty form with a trailing newline, invalid UTF-8 replaced.
std::string dump_json(const Json& value);

}  // namespace tierpack

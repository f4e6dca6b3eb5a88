// JSON in and out of template values, as Python's json module does it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/text/template_value.h"

namespace tierpack::text::jinja {

// Numbers without fraction or exponent are integers of any size; a repeated key keeps its last value. Throws kCorrupt
// for text that is not JSON.
Value parse_json_value(Heap& heap, std::string_view text);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;  // of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// json.dumps. Fails for values that JSON has no form for, undefined ones included.
std::string to_json(Heap& heap, const Value& value, const JsonStyle& style);

}  // namespace tierpack::text::jinja

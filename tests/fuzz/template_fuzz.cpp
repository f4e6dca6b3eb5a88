// Any bytes as a chat template and its variables: parsing and rendering end with a text or an Error, within small limits
// on time and memory. Input: the template, the byte 1E, a JSON object; without the byte some variables of a conversation.
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string_view>

#include "base/error.h"
#include "runtime/text/template_evaluator.h"
#include "runtime/text/template_json.h"
#include "runtime/text/template_parser.h"
#include "runtime/text/utf8.h"

namespace {

constexpr std::string_view kConversation =
    R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "é 世"},
        {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5]}}}]}],
        "tools": [{"type": "function", "function": {"name": "f"}}], "add_generation_prompt": true, "x": -1, "y": []})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tierpack::text;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t separator = input.find('\x1E');
  const std::string_view source = input.substr(0, separator);
  const std::string_view variables = separator == std::string_view::npos ? kConversation : input.substr(separator + 1);
  if (!is_valid_utf8(source)) return 0;
  try {
    const jinja::Template parsed = jinja::parse_template(source);
    jinja::Heap heap(16 << 20, 200'000);
    const jinja::Value values = jinja::parse_json_value(heap, variables);
    if (!values.is(jinja::Kind::kDict)) return 0;
    jinja::Evaluator(parsed, heap, std::tm{}).render(values.as_dict());
  } catch (const tierpack::Error&) {
  }
  return 0;
}

// Request bodies from arbitrary bytes: an ApiError with a short, well-formed body, or a request within its promises.
#include <cstdlib>

#include "base/json.h"
#include "runtime/server/api_error.h"
#include "runtime/server/openai_types.h"

using namespace tierpack;
using namespace tierpack::server;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_error(const ApiError& e, size_t size) {
  const Json error = Json::parse(e.body())["error"];
  require(e.status() == 400 && error["message"].is_string() && error["type"] == "invalid_request_error");
  require(e.body().size() < 2000 + 2 * size);
}

void check_common(const CommonRequest& r) {
  require(r.stop.size() <= 16);
  for (const std::string& stop : r.stop) require(!stop.empty() && stop.size() <= 1024);
  require(r.sampling.temperature >= 0 && r.sampling.temperature <= 2);
  require(!r.include_usage || r.stream);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  try {
    const ChatRequest request = parse_chat_request(body, {});
    check_common(request);
    const Json messages = Json::parse(request.variables_json)["messages"];
    require(messages.is_array() && !messages.empty());
    for (const Json& message : messages) require(message["role"].is_string() && message["content"].is_string());
  } catch (const ApiError& e) {
    check_error(e, size);
  }
  try {
    check_common(parse_completion_request(body, {}));
  } catch (const ApiError& e) {
    check_error(e, size);
  }
  return 0;
}

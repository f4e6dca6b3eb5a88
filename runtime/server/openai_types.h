// Requests of OpenAI's API, read and checked. docs/http_api.md lists every field.
//
// A field we know must have its type and range, or the request is refused with 400 naming it. A field that would change
// the answer in a way we do not implement is refused unless it has its neutral value. Fields we do not know are
// ignored, since clients send many. null means absent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/text/sampler.h"

namespace tierpack::server {

struct CommonRequest {
  std::string model;  // empty: not given
  bool stream = false;
  bool include_usage = false;  // a last event with the token counts
  uint32_t max_tokens = 0;     // 0 = until the context is full
  std::vector<std::string> stop;
  text::SamplerOptions sampling;
};

struct ChatRequest : CommonRequest {
  // The chat template's variables as a JSON object: messages with text content, chat_template_kwargs.
  std::string variables_json;
};

struct CompletionRequest : CommonRequest {
  std::variant<std::string, std::vector<uint32_t>> prompt;
};

// `defaults` stand where the request says nothing; without "seed" the seed is random. Throws ApiError.
ChatRequest parse_chat_request(std::string_view body, const text::SamplerOptions& defaults);
CompletionRequest parse_completion_request(std::string_view body, const text::SamplerOptions& defaults);

}  // namespace tierpack::server

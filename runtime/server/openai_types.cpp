#include "runtime/server/openai_types.h"

#include <array>
#include <limits>

#include "runtime/generate.h"
#include "runtime/server/json_fields.h"

namespace tierpack::server {

namespace {

constexpr size_t kStopsMax = 16;
constexpr size_t kStopBytesMax = 1024;
constexpr int64_t kTokensMax = std::numeric_limits<int32_t>::max();

[[noreturn]] void unsupported(const Fields& fields, const char* key, const std::string& what) {
  refuse_field(fields.name(key), what, "unsupported_parameter");
}

Json parse_body(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw ApiError(400, "the request's body is empty: expected a JSON object", "invalid_json");
  }
  try {
    Json json = parse_json(body, "request body", {.max_bytes = std::numeric_limits<uint64_t>::max(), .max_depth = 128});
    if (!json.is_object()) {
      throw ApiError(400, "request body: expected a JSON object, found " + with_article(json), "invalid_json");
    }
    return json;
  } catch (const Error& e) {
    throw ApiError(400, e.what(), "invalid_json");
  }
}

std::vector<std::string> parse_stop(const Fields& fields) {
  const Json* value = fields.find("stop");
  if (value == nullptr) return {};
  std::vector<std::string> stops;
  const auto add = [&](const Json& one, const std::string& name) {
    if (!one.is_string()) refuse_type(name, "a string", one);
    const auto& text = one.get_ref<const std::string&>();
    if (text.empty() || text.size() > kStopBytesMax) {
      refuse_field(name, fmt::format("expected 1 to {} bytes, found {}", kStopBytesMax, text.size()));
    }
    stops.push_back(text);
  };
  if (value->is_array()) {
    if (value->size() > kStopsMax) {
      refuse_field("stop", fmt::format("expected at most {} strings, found {}", kStopsMax, value->size()));
    }
    for (size_t i = 0; i < value->size(); ++i) add((*value)[i], fmt::format("stop[{}]", i));
  } else if (value->is_string()) {
    add(*value, "stop");
  } else {
    refuse_type("stop", "a string or an array of strings", *value);
  }
  return stops;
}

text::SamplerOptions parse_sampling(const Fields& fields, const text::SamplerOptions& defaults) {
  text::SamplerOptions options = defaults;
  options.temperature = static_cast<float>(fields.number("temperature", defaults.temperature, 0, 2));
  options.top_p = static_cast<float>(fields.number("top_p", defaults.top_p, 0, 1));
  options.min_p = static_cast<float>(fields.number("min_p", defaults.min_p, 0, 1));
  // -1 is another way to say "all".
  options.top_k = static_cast<uint32_t>(std::max<int64_t>(0, fields.integer("top_k", defaults.top_k, -1, kTokensMax)));
  const double penalty = fields.number("repeat_penalty", defaults.repetition_penalty, 0.01, 10);
  options.repetition_penalty = static_cast<float>(fields.number("repetition_penalty", penalty, 0.01, 10));
  constexpr int64_t kUnset = std::numeric_limits<int64_t>::min();
  const int64_t seed = fields.integer("seed", kUnset, kUnset, std::numeric_limits<int64_t>::max());
  options.seed = seed == kUnset ? random_seed() : static_cast<uint64_t>(seed);
  try {
    const text::Sampler check(options);
  } catch (const Error& e) {
    throw ApiError(e);
  }
  return options;
}

void refuse_unimplemented(const Fields& fields) {
  if (fields.integer("n", 1, 1, 128) != 1) unsupported(fields, "n", "only one answer a request is possible; use 1");
  for (const char* key : {"presence_penalty", "frequency_penalty"}) {
    if (fields.number(key, 0, -2, 2) != 0) {
      unsupported(fields, key, "not implemented; use repetition_penalty, or leave it at 0");
    }
  }
  if (const Json* bias = fields.find("logit_bias")) {
    if (!bias->is_object()) refuse_type("logit_bias", "an object", *bias);
    if (!bias->empty()) unsupported(fields, "logit_bias", "not implemented; leave it empty");
  }
  if (const Json* format = fields.find("response_format")) {
    const std::string type = Fields(*format, "response_format").string("type", "text");
    if (type != "text") {
      refuse_field("response_format.type", "only \"text\" is implemented, found " + quoted(type),
                   "unsupported_parameter");
    }
  }
}

void parse_common(const Fields& fields, const text::SamplerOptions& defaults, CommonRequest& request) {
  request.model = fields.string("model", "");
  request.stream = fields.boolean("stream", false);
  if (const Json* options = fields.find("stream_options")) {
    request.include_usage = Fields(*options, "stream_options").boolean("include_usage", false) && request.stream;
  }
  const int64_t max_tokens = fields.integer("max_tokens", 0, 1, kTokensMax);
  request.max_tokens = static_cast<uint32_t>(fields.integer("max_completion_tokens", max_tokens, 1, kTokensMax));
  request.stop = parse_stop(fields);
  request.sampling = parse_sampling(fields, defaults);
  refuse_unimplemented(fields);
}

// Text parts joined; templates of text models expect one string.
std::string text_content(const Json& content, const std::string& name) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) refuse_type(name, "a string or an array of text parts", content);
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string part_name = fmt::format("{}[{}]", name, i);
    const Fields part(content[i], part_name);
    const Json& type = part.require("type", "\"text\"");
    if (!type.is_string()) refuse_type(part_name + ".type", "a string", type);
    const auto& kind = type.get_ref<const std::string&>();
    if (kind != "text" && kind != "input_text") {
      refuse_field(part_name + ".type", "this model reads only text parts, found " + quoted(kind),
                   "unsupported_content");
    }
    const Json& value = part.require("text", "a string");
    if (!value.is_string()) refuse_type(part_name + ".text", "a string", value);
    text += value.get_ref<const std::string&>();
  }
  return text;
}

// Templates walk over arguments; clients send them as the JSON text that the model wrote.
Json tool_calls(const Json& calls, const std::string& name) {
  if (!calls.is_array()) refuse_type(name, "an array", calls);
  Json out = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string call_name = fmt::format("{}[{}]", name, i);
    const Fields call(calls[i], call_name);
    const Json& function = call.require("function", "an object");
    const Fields fields(function, call_name + ".function");
    if (!fields.require("name", "a string").is_string()) refuse_type(fields.name("name"), "a string", function["name"]);
    Json copy = calls[i];
    if (const Json* arguments = fields.find("arguments"); arguments != nullptr && arguments->is_string()) {
      const auto& text = arguments->get_ref<const std::string&>();
      try {
        copy["function"]["arguments"] =
            text.empty() ? Json::object() : parse_json(text, "arguments", {.max_depth = 128});
      } catch (const Error& e) {
        refuse_field(fields.name("arguments"), e.what());
      }
    }
    out.push_back(std::move(copy));
  }
  return out;
}

Json parse_message(const Json& message, size_t index) {
  const std::string path = fmt::format("messages[{}]", index);
  const Fields fields(message, path);
  const Json& role_value = fields.require("role", "a string");
  if (!role_value.is_string()) refuse_type(path + ".role", "a string", role_value);
  const auto role = role_value.get<std::string>();
  static constexpr std::array kRoles = {"system", "developer", "user", "assistant", "tool"};
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    refuse_field(path + ".role", "expected system, developer, user, assistant or tool, found " + quoted(role));
  }
  Json out = message;
  out["role"] = role == "developer" ? "system" : role;  // a newer name that templates do not know
  const Json* content = fields.find("content");
  const Json* calls = fields.find("tool_calls");
  if (content != nullptr) {
    out["content"] = text_content(*content, path + ".content");
  } else if (role == "assistant" && calls != nullptr) {
    out["content"] = "";
  } else {
    fields.require("content", "a string or an array of text parts");
  }
  if (calls != nullptr) out["tool_calls"] = tool_calls(*calls, path + ".tool_calls");
  for (const char* key : {"name", "tool_call_id", "reasoning_content"}) fields.string(key, "");
  return out;
}

}  // namespace

ChatRequest parse_chat_request(std::string_view body, const text::SamplerOptions& defaults) {
  const Json json = parse_body(body);
  const Fields fields(json, "");
  ChatRequest request;
  parse_common(fields, defaults, request);
  if (fields.boolean("logprobs", false)) unsupported(fields, "logprobs", "not implemented; leave it false");
  if (fields.integer("top_logprobs", 0, 0, 20) != 0) unsupported(fields, "top_logprobs", "not implemented; leave it 0");
  for (const char* key : {"tools", "functions"}) {
    const Json* tools = fields.find(key);
    if (tools == nullptr) continue;
    if (!tools->is_array()) refuse_type(key, "an array", *tools);
    const Json* choice = fields.find("tool_choice");
    const bool none = choice != nullptr && choice->is_string() && choice->get_ref<const std::string&>() == "none";
    if (!tools->empty() && !none) unsupported(fields, key, "tool calls are not implemented; leave it empty");
  }

  Json variables = Json::object();
  if (const Json* arguments = fields.find("chat_template_kwargs")) {
    if (!arguments->is_object()) refuse_type("chat_template_kwargs", "an object", *arguments);
    variables = *arguments;
  }
  if (const std::string effort = fields.string("reasoning_effort", ""); !effort.empty()) {
    if (effort == "none") {
      variables["enable_thinking"] = false;
    } else {
      variables["reasoning_effort"] = effort;
    }
  }
  const Json& messages = fields.require("messages", "an array of messages");
  if (!messages.is_array()) refuse_type("messages", "an array", messages);
  if (messages.empty()) refuse_field("messages", "expected at least one message, found none");
  Json list = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) list.push_back(parse_message(messages[i], i));
  variables["messages"] = std::move(list);
  request.variables_json = variables.dump();
  return request;
}

CompletionRequest parse_completion_request(std::string_view body, const text::SamplerOptions& defaults) {
  const Json json = parse_body(body);
  const Fields fields(json, "");
  CompletionRequest request;
  parse_common(fields, defaults, request);
  if (fields.find("logprobs") != nullptr) {
    fields.integer("logprobs", 0, 0, 20);
    unsupported(fields, "logprobs", "not implemented; leave it out");
  }
  if (fields.boolean("echo", false)) unsupported(fields, "echo", "not implemented; leave it false");
  if (!fields.string("suffix", "").empty()) unsupported(fields, "suffix", "not implemented; leave it out");
  if (fields.integer("best_of", 1, 1, 128) != 1)
    unsupported(fields, "best_of", "only one answer a request is possible; use 1");

  static constexpr const char* kExpected = "a string or an array of token ids";
  const Json* prompt = &fields.require("prompt", kExpected);
  if (prompt->is_array() && !prompt->empty() && !prompt->front().is_number()) {
    // A batch; one prompt in it is as good as the prompt itself.
    if (!prompt->front().is_string() && !prompt->front().is_array())
      refuse_type("prompt[0]", kExpected, prompt->front());
    if (prompt->size() != 1) {
      refuse_field("prompt", fmt::format("only one prompt a request is possible, found {}", prompt->size()),
                   "unsupported_parameter");
    }
    prompt = &prompt->front();
  }
  if (prompt->is_string()) {
    request.prompt = prompt->get<std::string>();
  } else if (prompt->is_array()) {
    std::vector<uint32_t> ids;
    for (size_t i = 0; i < prompt->size(); ++i) {
      const Json& id = (*prompt)[i];
      if (!id.is_number_unsigned() || id.get<uint64_t>() > std::numeric_limits<uint32_t>::max()) {
        refuse_field(fmt::format("prompt[{}]", i),
                     "expected a token id, found " + (id.is_number() ? id.dump() : with_article(id)), "invalid_type");
      }
      ids.push_back(id.get<uint32_t>());
    }
    if (ids.empty()) refuse_field("prompt", "expected at least one token id, found none");
    request.prompt = std::move(ids);
  } else {
    refuse_type("prompt", kExpected, *prompt);
  }
  return request;
}

}  // namespace tierpack::server

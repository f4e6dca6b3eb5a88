#include "runtime/server/openai_replies.h"

#include <chrono>
#include <random>

#include <fmt/core.h>

#include "base/json.h"
#include "runtime/server/sse.h"

namespace tierpack::server {

namespace {

std::string random_id(const char* prefix) {
  std::random_device device;
  return fmt::format("{}-{:08x}{:08x}{:08x}", prefix, device(), device(), device());
}

int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json usage(const GenerateResult& result) {
  Json usage;
  usage["prompt_tokens"] = result.prompt_tokens;
  usage["completion_tokens"] = result.tokens.size();
  usage["total_tokens"] = result.prompt_tokens + result.tokens.size();
  usage["prompt_tokens_details"] = {{"cached_tokens", result.reused_tokens}};
  usage["completion_tokens_details"] = {{"reasoning_tokens", result.reasoning_tokens}};
  return usage;
}

// What OpenAI's API has no place for: how long it took, and what is needed to repeat and to prove the answer.
Json details(const GenerateResult& result, uint64_t seed) {
  Json details;
  details["seed"] = seed;
  details["logits_xxh3"] = result.logits.hex();
  details["prefill_ms"] = result.prefill_s * 1e3;
  details["prefill_tokens_per_s"] = result.prefill_rate();
  details["decode_ms"] = result.decode_s * 1e3;
  details["decode_tokens_per_s"] = result.decode_rate();
  return details;
}

Json model_object(const std::string& model, int64_t created_s, uint32_t context) {
  return {{"id", model},
          {"object", "model"},
          {"created", created_s},
          {"owned_by", "tierpack"},
          {"context_length", context}};
}

}  // namespace

Reply::Reply(std::shared_ptr<Exchange> exchange, ReplyShape shape)
    : exchange_(std::move(exchange)),
      shape_(std::move(shape)),
      id_(random_id(shape_.chat ? "chatcmpl" : "cmpl")),
      created_s_(now_s()) {}

void Reply::send(const std::string& json) { exchange_->send(sse_event(json)); }

// `content_json`: the delta object of a chat, the text string of a completion.
std::string Reply::event(const std::string& content_json, const char* finish_reason) const {
  const std::string reason = finish_reason == nullptr ? "null" : fmt::format("\"{}\"", finish_reason);
  return fmt::format(
      R"({{"id":"{}","object":"{}","created":{},"model":{},"choices":[{{"index":0,"{}":{},"logprobs":null,"finish_reason":{}}}]{}}})",
      id_, shape_.chat ? "chat.completion.chunk" : "text_completion", created_s_, text_of(shape_.model),
      shape_.chat ? "delta" : "text", content_json, reason, shape_.include_usage ? R"(,"usage":null)" : "");
}

void Reply::open() {
  if (!shape_.stream || opened_) return;
  opened_ = true;
  exchange_->begin_stream(kEventStreamType, kHeartbeat);
}

void Reply::begin() {
  open();
  if (shape_.stream && shape_.chat) send(event(R"({"role":"assistant","content":""})", nullptr));
}

void Reply::text(TextKind kind, std::string_view text) {
  const bool reasoning = kind == TextKind::kReasoning;
  if (!shape_.stream) {
    (reasoning ? reasoning_ : answer_) += text;
    return;
  }
  const std::string value = text_of(Json(std::string(text)));
  send(event(!shape_.chat ? value : fmt::format(R"({{"{}":{}}})", reasoning ? "reasoning_content" : "content", value),
             nullptr));
}

void Reply::finish(const GenerateResult& result) {
  const char* reason = result.finish == FinishReason::kStop ? "stop" : "length";
  if (shape_.stream) {
    send(event(shape_.chat ? "{}" : "\"\"", reason));
    if (shape_.include_usage) {
      Json last = {{"id", id_},
                   {"object", shape_.chat ? "chat.completion.chunk" : "text_completion"},
                   {"created", created_s_},
                   {"model", shape_.model},
                   {"choices", Json::array()}};
      last["usage"] = usage(result);
      last["tierpack"] = details(result, shape_.seed);
      send(text_of(last));
    }
    send("[DONE]");
    exchange_->end_stream();
    return;
  }
  Json choice = {{"index", 0}};
  if (shape_.chat) {
    choice["message"] = {{"role", "assistant"}, {"content", answer_}};
    if (!reasoning_.empty()) choice["message"]["reasoning_content"] = reasoning_;
  } else {
    choice["text"] = answer_;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = reason;
  Json reply = {{"id", id_},
                {"object", shape_.chat ? "chat.completion" : "text_completion"},
                {"created", created_s_},
                {"model", shape_.model},
                {"choices", Json::array({std::move(choice)})}};
  reply["usage"] = usage(result);
  reply["tierpack"] = details(result, shape_.seed);
  HttpResponse response;
  response.body = text_of(reply);
  exchange_->respond(std::move(response));
}

void Reply::fail(const ApiError& error) {
  if (opened_) {
    // The status line is gone; clients look for an error in the events.
    send(error.body());
    exchange_->end_stream();
  } else {
    exchange_->respond(error.response());
  }
}

std::string model_json(const std::string& model, int64_t created_s, uint32_t context) {
  return text_of(model_object(model, created_s, context));
}

std::string models_json(const std::string& model, int64_t created_s, uint32_t context) {
  return text_of({{"object", "list"}, {"data", Json::array({model_object(model, created_s, context)})}});
}

}  // namespace tierpack::server

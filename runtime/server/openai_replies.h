// Answers of OpenAI's API: one JSON object, or a stream of events.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/generate.h"
#include "runtime/server/api_error.h"
#include "runtime/server/http_message.h"

namespace tierpack::server {

struct ReplyShape {
  bool chat = true;  // else a text completion
  bool stream = false;
  bool include_usage = false;
  std::string model;
  uint64_t seed = 0;
};

// The answer to one request while it is being made. The calls come in the order below, from one thread at a time.
class Reply {
 public:
  Reply(std::shared_ptr<Exchange> exchange, ReplyShape shape);

  void open();   // streams: the client learns that its request was accepted
  void begin();  // the model starts
  void text(TextKind kind, std::string_view text);
  void finish(const GenerateResult& result);
  void fail(const ApiError& error);  // instead of finish, at any time

 private:
  std::string event(const std::string& delta_json, const char* finish_reason) const;
  void send(const std::string& json);

  std::shared_ptr<Exchange> exchange_;
  ReplyShape shape_;
  std::string id_;
  int64_t created_s_;
  bool opened_ = false;
  std::string answer_;
  std::string reasoning_;
};

// GET /v1/models and /v1/models/MODEL.
std::string models_json(const std::string& model, int64_t created_s, uint32_t context);
std::string model_json(const std::string& model, int64_t created_s, uint32_t context);

}  // namespace tierpack::server

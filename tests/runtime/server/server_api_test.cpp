// The routes over a socket: answers, streams and errors as clients see them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "tests/support/test_server.h"

namespace tierpack::server {
namespace {

using namespace testing_support;
using ::testing::HasSubstr;

Json error_of(const ClientResponse& response) {
  EXPECT_EQ(response.header("content-type"), "application/json");
  const Json body = Json::parse(response.body);
  EXPECT_TRUE(body.contains("error")) << response.body;
  for (const char* key : {"message", "type", "param", "code"})
    EXPECT_TRUE(body["error"].contains(key)) << response.body;
  return body["error"];
}

TEST(ServerApi, AnswersAChat) {
  TestServer server;
  const ClientResponse response = server.chat("say:hello", R"(,"seed":5,"user":"u")");
  ASSERT_EQ(response.status, 200u) << response.body;
  EXPECT_EQ(response.header("content-type"), "application/json");
  EXPECT_EQ(response.header("x-content-type-options"), "nosniff");
  const Json body = Json::parse(response.body);
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_THAT(body["id"].get<std::string>(), ::testing::StartsWith("chatcmpl-"));
  EXPECT_EQ(body["model"], "fake");
  EXPECT_GT(body["created"], 1'700'000'000);
  ASSERT_EQ(body["choices"].size(), 1u);
  const Json& choice = body["choices"][0];
  EXPECT_EQ(choice["index"], 0);
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "hello");
  EXPECT_FALSE(choice["message"].contains("reasoning_content"));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["completion_tokens"], 6);
  EXPECT_EQ(body["usage"]["total_tokens"], body["usage"]["prompt_tokens"].get<int>() + 6);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(body["tierpack"]["seed"], 5);
  EXPECT_EQ(body["tierpack"]["logits_xxh3"].get<std::string>().size(), 32u);
}

TEST(ServerApi, AnswersACompletion) {
  TestServer server;
  for (const char* prompt : {R"("say:hello|")", R"(["say:hello|"])"}) {
    const ClientResponse response =
        server.post("/v1/completions", R"({"model":"fake","prompt":)" + std::string(prompt) + "}");
    ASSERT_EQ(response.status, 200u) << response.body;
    const Json body = Json::parse(response.body);
    EXPECT_EQ(body["object"], "text_completion");
    EXPECT_EQ(body["choices"][0]["text"], "hello");
    EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
    EXPECT_EQ(body["usage"]["prompt_tokens"], 10);
  }
  // Token ids, and the cached prefix of the request before.
  const ClientResponse ids = server.post("/v1/completions", R"({"prompt":[115,97,121,58,120,124]})");
  EXPECT_EQ(Json::parse(ids.body)["choices"][0]["text"], "x");
  const ClientResponse longer = server.post("/v1/completions", R"({"prompt":"say:x|xsay:y|"})");
  EXPECT_EQ(Json::parse(longer.body)["usage"]["prompt_tokens_details"]["cached_tokens"], 7);
}

TEST(ServerApi, LimitsAndStops) {
  TestServer server;
  Json body = Json::parse(server.chat("go on", R"(,"max_tokens":5)").body);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["completion_tokens"], 5);
  body = Json::parse(server.chat("say:one two three", R"(,"stop":["two","x"])").body);
  EXPECT_EQ(body["choices"][0]["message"]["content"], "one ");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
}

TEST(ServerApi, StreamsAChat) {
  TestServer server;
  const ClientResponse response =
      server.chat("say:h\xC3\xA9llo\n\"you\"", R"(,"stream":true,"stream_options":{"include_usage":true})");
  ASSERT_EQ(response.status, 200u) << response.body;
  EXPECT_THAT(response.header("content-type"), HasSubstr("text/event-stream"));
  EXPECT_TRUE(response.chunked && response.complete);
  const std::vector<std::string> events = parse_events(response.body);
  ASSERT_GE(events.size(), 5u);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string text, id;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json event = Json::parse(events[i]);
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    if (id.empty()) id = event["id"];
    EXPECT_EQ(event["id"], id);
    EXPECT_EQ(event["model"], "fake");
    const bool last = i + 2 == events.size();
    if (last) {
      EXPECT_EQ(event["choices"].size(), 0u);
      EXPECT_GT(event["usage"]["completion_tokens"], 0);
      continue;
    }
    EXPECT_TRUE(event["usage"].is_null());
    const Json& choice = event["choices"][0];
    if (i == 0) {
      EXPECT_EQ(choice["delta"]["role"], "assistant");
    }
    EXPECT_EQ(choice["finish_reason"].is_null(), i + 3 != events.size()) << events[i];
    if (choice["delta"].contains("content")) text += choice["delta"]["content"].get<std::string>();
  }
  EXPECT_EQ(text, "h\xC3\xA9llo\n\"you\"");
}

TEST(ServerApi, StreamsACompletionWithoutUsage) {
  TestServer server;
  const ClientResponse response = server.post("/v1/completions", R"({"prompt":"say:abc|","stream":true})");
  const std::vector<std::string> events = parse_events(response.body);
  std::string text;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json event = Json::parse(events[i]);
    EXPECT_EQ(event["object"], "text_completion");
    EXPECT_FALSE(event.contains("usage"));
    text += event["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, "abc");
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST(ServerApi, ReasoningIsApart) {
  TestServer server;
  Json body = Json::parse(server.chat("say:<think>hm\n</think>\n\nyes").body);
  EXPECT_EQ(body["choices"][0]["message"]["reasoning_content"], "hm");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "yes");
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 5);

  body = Json::parse(server.chat("say:hm</think>yes", R"(,"chat_template_kwargs":{"think":true})").body);
  EXPECT_EQ(body["choices"][0]["message"]["reasoning_content"], "hm");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "yes");

  std::string reasoning, text;
  const ClientResponse stream = server.chat("say:<think>hm</think>yes", R"(,"stream":true)");
  for (const std::string& event : parse_events(stream.body)) {
    if (event == "[DONE]") continue;
    const Json delta = Json::parse(event)["choices"][0]["delta"];
    reasoning += delta.value("reasoning_content", "");
    text += delta.value("content", "");
  }
  EXPECT_EQ(reasoning, "hm");
  EXPECT_EQ(text, "yes");
}

TEST(ServerApi, ErrorsHaveTheShapeOfOpenai) {
  TestServer::Options options;
  options.fake.context = 64;
  TestServer server(options);
  const struct {
    std::string request;
    unsigned status;
    const char* code;
    const char* param;
  } cases[] = {
      {http_post("/v1/chat/completions", "{"), 400, "invalid_json", nullptr},
      {http_post("/v1/chat/completions", ""), 400, "invalid_json", nullptr},
      {http_post("/v1/chat/completions", R"({"messages":[]})"), 400, "invalid_value", "messages"},
      {http_post("/v1/chat/completions", chat_body("x", R"(,"max_tokens":"9")")), 400, "invalid_type", "max_tokens"},
      {http_post("/v1/chat/completions", chat_body("x", R"(,"model":"gpt-4")")), 404, "model_not_found", "model"},
      {http_post("/v1/chat/completions", chat_body(std::string(100, 'x'))), 400, "context_length_exceeded", "messages"},
      {http_post("/v1/chat/completions", chat_body("x", R"(,"chat_template_kwargs":{"fail":"no"})")), 400,
       "invalid_value", "messages"},
      {http_post("/v1/completions", R"({"prompt":""})"), 400, "invalid_value", "prompt"},
      {http_post("/v1/completions", R"({"prompt":[5,260]})"), 400, "invalid_value", "prompt"},
      {http_get("/v1/nothing"), 404, "not_found", nullptr},
      {http_get("/"), 404, "not_found", nullptr},
      {http_get("/v1/chat/completions"), 405, "method_not_allowed", nullptr},
      {http_post("/v1/models", "{}"), 405, "method_not_allowed", nullptr},
      {http_get("/v1/models/other"), 404, "model_not_found", "model"},
  };
  for (const auto& c : cases) {
    const ClientResponse response = fetch_once(server.port(), c.request);
    EXPECT_EQ(response.status, c.status) << c.request << response.body;
    const Json error = error_of(response);
    EXPECT_EQ(error["code"], c.code) << c.request;
    EXPECT_EQ(error["type"], "invalid_request_error");
    if (c.param == nullptr) {
      EXPECT_TRUE(error["param"].is_null()) << c.request;
    } else {
      EXPECT_EQ(error["param"], c.param) << c.request;
    }
  }
  const Json too_long = error_of(server.chat(std::string(100, 'x')));
  EXPECT_THAT(too_long["message"].get<std::string>(), HasSubstr("has 119 tokens"));
  EXPECT_THAT(too_long["message"].get<std::string>(), HasSubstr("holds 64 tokens"));
  EXPECT_EQ(fetch_once(server.port(), http_get("/v1/chat/completions")).header("allow"), "POST, OPTIONS");
  EXPECT_THAT(fetch_once(server.port(), http_get("/chat/completions")).body,
              HasSubstr("did you mean /v1/chat/completions?"));
}

TEST(ServerApi, AStreamingRequestThatIsWrongGetsAStatus) {
  TestServer server;
  const ClientResponse response = server.post("/v1/chat/completions", R"({"messages":[],"stream":true})");
  EXPECT_EQ(response.status, 400u);
  error_of(response);
}

TEST(ServerApi, ModelsHealthAndMetrics) {
  TestServer server;
  const Json models = Json::parse(server.get("/v1/models").body);
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "fake");
  EXPECT_EQ(models["data"][0]["object"], "model");
  EXPECT_EQ(Json::parse(server.get("/v1/models/fake").body)["id"], "fake");
  const Json health = Json::parse(server.get("/health?x=1").body);
  EXPECT_EQ(health["status"], "ready");
  EXPECT_EQ(health["context_length"], 4096);
  server.chat("say:hi");
  const ClientResponse metrics = server.get("/metrics");
  EXPECT_THAT(metrics.header("content-type"), HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(metrics.body, HasSubstr("tierpack_generated_tokens_total 3\n"));
  EXPECT_THAT(metrics.body,
              HasSubstr("tierpack_http_responses_total{route=\"/v1/chat/completions\",code=\"200\"} 1\n"));
  EXPECT_THAT(metrics.body, HasSubstr("tierpack_info{version="));
  const ClientResponse head = fetch_once(server.port(), "HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n", true);
  EXPECT_EQ(head.status, 200u);
  EXPECT_NE(head.header("content-length"), "0");
}

TEST(ServerApi, KeysAreAskedForEverywhereButHealth) {
  TestServer::Options options;
  options.server.api_keys = {"secret"};
  TestServer server(options);
  EXPECT_EQ(server.get("/health").status, 200u);
  for (const char* path : {"/v1/models", "/metrics", "/v1/nothing"}) {
    const ClientResponse response = server.get(path);
    EXPECT_EQ(response.status, 401u) << path;
    EXPECT_EQ(response.header("www-authenticate"), "Bearer");
    EXPECT_EQ(error_of(response)["code"], "invalid_api_key");
  }
  EXPECT_EQ(server.post("/v1/chat/completions", chat_body("say:x"), "Authorization: Bearer wrong\r\n").status, 401u);
  EXPECT_EQ(server.post("/v1/chat/completions", chat_body("say:x"), "Authorization: Bearer secret\r\n").status, 200u);
  // With a key, any name may lead here.
  EXPECT_EQ(
      fetch_once(server.port(), "GET /v1/models HTTP/1.1\r\nHost: llm.example\r\nAuthorization: Bearer secret\r\n\r\n")
          .status,
      200u);
}

TEST(ServerApi, HostsAndOrigins) {
  TestServer::Options options;
  options.server.allowed_origins = {"https://chat.example"};
  options.server.allowed_hosts = {"box.example"};
  TestServer server(options);
  const auto with_host = [&](const std::string& host) {
    return fetch_once(server.port(), "GET /v1/models HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  for (const char* good : {"localhost", "127.0.0.1:99", "[::1]:99", "box.example"})
    EXPECT_EQ(with_host(good).status, 200u) << good;
  const ClientResponse rebound = with_host("evil.example");
  EXPECT_EQ(rebound.status, 403u);
  EXPECT_EQ(error_of(rebound)["code"], "host_not_allowed");

  const ClientResponse stranger =
      server.post("/v1/chat/completions", chat_body("say:x"), "Origin: https://evil.example\r\n");
  EXPECT_EQ(stranger.status, 403u);
  EXPECT_EQ(stranger.header("access-control-allow-origin"), "");
  const ClientResponse friendly =
      server.post("/v1/chat/completions", chat_body("say:x"), "Origin: https://chat.example\r\n");
  EXPECT_EQ(friendly.status, 200u);
  EXPECT_EQ(friendly.header("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(friendly.header("vary"), "Origin");
  const ClientResponse stream =
      server.post("/v1/chat/completions", chat_body("say:x", R"(,"stream":true)"), "Origin: https://chat.example\r\n");
  EXPECT_EQ(stream.header("access-control-allow-origin"), "https://chat.example");
  const ClientResponse preflight = fetch_once(
      server.port(),
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: https://chat.example\r\n"
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,x-stainless-os\r\n\r\n");
  EXPECT_EQ(preflight.status, 204u);
  EXPECT_EQ(preflight.header("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(preflight.header("access-control-allow-headers"), "authorization,x-stainless-os");
}

TEST(ServerApi, AModelWithoutTemplate) {
  TestServer::Options options;
  options.template_available = false;
  TestServer server(options);
  const ClientResponse response = server.chat("hi");
  EXPECT_EQ(response.status, 400u);
  EXPECT_EQ(error_of(response)["code"], "no_chat_template");
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"say:x|"})").status, 200u);
}

TEST(ServerApi, AFailureOfTheEngineIsAnAnswer) {
  TestServer server;
  server.engine().broken = true;
  const ClientResponse plain = server.chat("say:x");
  EXPECT_EQ(plain.status, 500u);
  const Json error = error_of(plain);
  EXPECT_EQ(error["type"], "server_error");
  EXPECT_EQ(error["code"], "corrupt");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("record 7"));
  const ClientResponse stream = server.chat("say:x", R"(,"stream":true)");
  EXPECT_EQ(stream.status, 200u);
  EXPECT_TRUE(stream.complete);
  const auto events = parse_events(stream.body);
  EXPECT_THAT(events.back(), HasSubstr("record 7"));
  server.engine().broken = false;
  EXPECT_EQ(server.chat("say:x").status, 200u);
}

}  // namespace
}  // namespace tierpack::server

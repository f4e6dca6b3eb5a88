// The server over the real engine and the embedded model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/json.h"
#include "runtime/server/server.h"
#include "tests/runtime/model/model_fixture.h"
#include "tests/support/http_client.h"

namespace tierpack::server {
namespace {

using namespace testing_support;
using ::testing::HasSubstr;

// A server over pebble whose engine has the given thread count and chunk.
class PebbleServer {
 public:
  PebbleServer(int threads, uint32_t chunk)
      : server_(server_options(),
                [threads, chunk](const std::function<void(uint64_t, uint64_t)>& on_load) {
                  EngineOptions options;
                  options.pack = pebble_pack();
                  options.threads = threads;
                  options.chunk = chunk;
                  options.on_load = on_load;
                  ServedModel model;
                  model.engine = Engine::open(options);
                  model.format.emplace(model.engine->pack().metadata(), model.engine->tokenizer());
                  return model;
                }),
        port_(server_.listen()),
        thread_([this] { server_.run(); }) {
    while (fetch_once(port_, http_get("/health")).status != 200)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ~PebbleServer() {
    server_.stop();
    thread_.join();
  }

  uint16_t port() const { return port_; }
  Json chat(const Json& messages, const std::string& more = "") const {
    const std::string body = R"({"messages":)" + messages.dump() + R"(,"temperature":0,"max_tokens":48)" + more + "}";
    const ClientResponse response = fetch_once(port_, http_post("/v1/chat/completions", body));
    EXPECT_EQ(response.status, 200u) << response.body;
    return Json::parse(response.body);
  }

 private:
  static ServerOptions server_options() {
    ServerOptions options;
    options.port = 0;
    options.model = "pebble";
    options.grace = std::chrono::seconds(1);
    return options;
  }
  Server server_;
  uint16_t port_;
  std::thread thread_;
};

Json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }

TEST(ServerPebble, AnswersQuestions) {
  const PebbleServer server(1, 512);
  const Json answer = server.chat(Json::array({user("What is the capital of France?")}));
  EXPECT_THAT(answer["choices"][0]["message"]["content"].get<std::string>(), HasSubstr("Paris"));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  const std::string body =
      R"({"messages":[{"role":"user","content":"What is the capital of France?"}],"temperature":0,"stream":true})";
  std::string streamed;
  for (const std::string& event :
       parse_events(fetch_once(server.port(), http_post("/v1/chat/completions", body)).body)) {
    if (event != "[DONE]") streamed += Json::parse(event)["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(streamed, answer["choices"][0]["message"]["content"]);
}

TEST(ServerPebble, AConversationThatGoesOnReusesItsBeginningAndAnswersTheSame) {
  // An answer without reasoning: the template drops reasoning from history, and with it the exact continuation.
  const Json first_question = user("What is the capital of France?");
  const Json second_question = user("What is the capital of Italy?");
  Json kept, fresh, first;
  {
    const PebbleServer server(1, 512);
    first = server.chat(Json::array({first_question}));
    kept = server.chat(Json::array({first_question, first["choices"][0]["message"], second_question}));
  }
  {
    const PebbleServer server(2, 7);  // other threads and chunks, nothing cached
    fresh = server.chat(Json::array({first_question, first["choices"][0]["message"], second_question}));
  }
  EXPECT_GT(kept["usage"]["prompt_tokens_details"]["cached_tokens"], 10);
  EXPECT_EQ(fresh["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(kept["choices"], fresh["choices"]);
  EXPECT_EQ(kept["tierpack"]["logits_xxh3"], fresh["tierpack"]["logits_xxh3"]);
}

TEST(ServerPebble, SamplingRepeatsWithItsSeed) {
  const PebbleServer server(1, 512);
  const Json question = Json::array({user("Tell me a story.")});
  const std::string body =
      R"({"messages":)" + question.dump() + R"(,"temperature":1.5,"top_p":1,"top_k":0,"max_tokens":32,"seed":)";
  const auto text = [&](const std::string& seed) {
    const ClientResponse response = fetch_once(server.port(), http_post("/v1/chat/completions", body + seed + "}"));
    return Json::parse(response.body)["choices"][0]["message"]["content"].get<std::string>();
  };
  const std::string one = text("1");
  EXPECT_EQ(text("1"), one);
  EXPECT_NE(text("2"), one);
}

TEST(ServerPebble, ALongPromptIsCancelledBetweenChunks) {
  const PebbleServer server(1, 16);
  std::string long_text;
  while (long_text.size() < 8000) long_text += "Max has a blue ball. ";
  {
    HttpClient client(server.port());
    client.send(http_post("/v1/completions", Json{{"prompt", long_text}}.dump()));
    while (fetch_once(server.port(), http_get("/metrics")).body.find("tierpack_requests_running 1\n") ==
           std::string::npos) {
    }
  }
  const ClientResponse next =
      fetch_once(server.port(), http_post("/v1/completions", R"({"prompt":"Once","max_tokens":4})"));
  EXPECT_EQ(next.status, 200u);
  EXPECT_THAT(fetch_once(server.port(), http_get("/metrics")).body,
              HasSubstr("tierpack_generations_total{finish_reason=\"cancelled\"} 1\n"));
}

}  // namespace
}  // namespace tierpack::server

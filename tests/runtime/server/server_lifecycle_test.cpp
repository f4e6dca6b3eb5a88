// Loading, queueing, cancelling and stopping.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "base/error.h"
#include "base/json.h"
#include "tests/support/test_server.h"

namespace tierpack::server {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using ::testing::HasSubstr;

// Holds the loading model back until it is opened.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

TestServer::Options slow_options() {
  TestServer::Options options;
  options.fake.token_time = 5ms;
  return options;
}

TEST(ServerLifecycle, ListensWhileLoading) {
  Gate gate;
  TestServer::Options options;
  options.wait_ready = false;
  options.while_loading = [&](const std::function<void(uint64_t, uint64_t)>& on_load) {
    on_load(1, 4);
    gate.pass();
  };
  TestServer server(options);
  while (Json::parse(server.get("/health").body)["progress"] != 0.25) std::this_thread::sleep_for(1ms);
  const ClientResponse health = server.get("/health");
  EXPECT_EQ(health.status, 503u);
  EXPECT_EQ(Json::parse(health.body)["status"], "loading");
  EXPECT_EQ(health.header("retry-after"), "1");
  for (const ClientResponse& response : {server.chat("say:x"), server.get("/v1/models")}) {
    EXPECT_EQ(response.status, 503u);
    EXPECT_EQ(response.header("retry-after"), "1");
    EXPECT_EQ(Json::parse(response.body)["error"]["code"], "loading");
  }
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("tierpack_ready 0\n"));
  EXPECT_EQ(server.get("/v1/nothing").status, 404u);
  gate.open();
  EXPECT_TRUE(server.metric_becomes("tierpack_ready", "1"));
  EXPECT_EQ(server.chat("say:x").status, 200u);
  EXPECT_TRUE(server.stop());
}

TEST(ServerLifecycle, AModelThatCannotBeLoadedEndsTheServer) {
  TestServer::Options options;
  options.wait_ready = false;
  options.while_loading = [](const auto&) { fail(ErrorKind::kCorrupt, "pack.json is damaged"); };
  TestServer server(options);
  try {
    server.join();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kCorrupt);
  }
}

TEST(ServerLifecycle, StopsWhileLoading) {
  TestServer::Options options;
  options.wait_ready = false;
  std::atomic<bool> loading{false};
  options.while_loading = [&](const std::function<void(uint64_t, uint64_t)>& on_load) {
    for (uint64_t i = 0;; ++i) {
      on_load(i % 100, 100);
      loading = true;
      std::this_thread::sleep_for(1ms);
    }
  };
  TestServer server(options);
  while (!loading) std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(server.stop());
}

TEST(ServerLifecycle, OneAtATimeInOrderWithALimit) {
  TestServer::Options options = slow_options();
  options.server.queue = 2;
  TestServer server(options);
  HttpClient running(server.port());
  running.send(http_post("/v1/chat/completions", chat_body("for ever", R"(,"stream":true)")));
  ASSERT_TRUE(running.read_until("\"content\":\"b"));  // the model is at work

  HttpClient second(server.port()), third(server.port());
  second.send(http_post("/v1/chat/completions", chat_body("say:second")));
  ASSERT_TRUE(server.metric_becomes("tierpack_requests_waiting", "1"));
  third.send(http_post("/v1/chat/completions", chat_body("say:third")));
  ASSERT_TRUE(server.metric_becomes("tierpack_requests_waiting", "2"));

  const ClientResponse refused = server.chat("say:x");
  EXPECT_EQ(refused.status, 429u);
  EXPECT_EQ(refused.header("retry-after"), "1");
  EXPECT_EQ(Json::parse(refused.body)["error"]["code"], "queue_full");
  EXPECT_EQ(Json::parse(refused.body)["error"]["type"], "rate_limit_error");

  running.close();
  EXPECT_THAT(second.read().body, HasSubstr("\"second\""));
  EXPECT_THAT(third.read().body, HasSubstr("\"third\""));
  EXPECT_EQ(server.chat("say:x").status, 200u);
}

TEST(ServerLifecycle, AClientThatLeavesFreesTheModel) {
  // In the ways clients leave: closing, closing half, resetting; while streaming, while waiting for a whole answer.
  for (const bool stream : {true, false}) {
    for (int way = 0; way < 3; ++way) {
      TestServer server(slow_options());
      HttpClient client(server.port());
      client.send(http_post("/v1/chat/completions", chat_body("for ever", stream ? R"(,"stream":true)" : "")));
      ASSERT_TRUE(server.metric_becomes("tierpack_requests_running", "1"));
      if (way == 0) client.close();
      if (way == 1) client.shutdown_send();
      if (way == 2) client.reset();
      EXPECT_TRUE(server.metric_becomes("tierpack_generations_total{finish_reason=\"cancelled\"}", "1"))
          << stream << way;
      EXPECT_TRUE(server.metric_becomes("tierpack_requests_running", "0"));
      EXPECT_TRUE(
          server.metric_becomes("tierpack_http_responses_total{route=\"/v1/chat/completions\",code=\"499\"}", "1"));
      EXPECT_EQ(server.chat("say:x").status, 200u);
    }
  }
}

TEST(ServerLifecycle, LeavingIsNoticedOnAConnectionThatServedBefore) {
  TestServer server(slow_options());
  HttpClient client(server.port());
  client.send(http_post("/v1/chat/completions", chat_body("say:a", R"(,"stream":true)")));
  EXPECT_TRUE(client.read().complete);
  client.send(http_post("/v1/chat/completions", chat_body("say:b")));
  EXPECT_TRUE(client.read().complete);
  client.send(http_post("/v1/chat/completions", chat_body("for ever")));
  ASSERT_TRUE(server.metric_becomes("tierpack_requests_running", "1"));
  client.close();
  EXPECT_TRUE(server.metric_becomes("tierpack_generations_total{finish_reason=\"cancelled\"}", "1"));
}

TEST(ServerLifecycle, LeavingDuringTheLongPromptStopsIt) {
  TestServer::Options options;
  options.fake.chunk = 8;
  options.fake.chunk_time = 20ms;
  TestServer server(options);
  HttpClient client(server.port());
  client.send(http_post("/v1/completions", R"({"prompt":")" + std::string(3000, 'x') + R"("})"));
  ASSERT_TRUE(server.metric_becomes("tierpack_requests_running", "1"));
  client.close();
  ASSERT_TRUE(server.metric_becomes("tierpack_requests_running", "0"));
  EXPECT_LT(server.engine().computed, 2900u);
}

TEST(ServerLifecycle, AWaitingClientThatLeavesFreesItsPlace) {
  TestServer::Options options = slow_options();
  options.server.queue = 1;
  TestServer server(options);
  HttpClient running(server.port());
  running.send(http_post("/v1/chat/completions", chat_body("for ever", R"(,"stream":true)")));
  ASSERT_TRUE(running.read_until("\"content\":\"b"));
  for (const bool stream : {false, true}) {
    HttpClient waiting(server.port());
    waiting.send(http_post("/v1/chat/completions", chat_body("say:never", stream ? R"(,"stream":true)" : "")));
    ASSERT_TRUE(server.metric_becomes("tierpack_requests_waiting", "1"));
    EXPECT_EQ(server.chat("say:x").status, 429u);
    waiting.close();
    ASSERT_TRUE(server.metric_becomes("tierpack_requests_waiting", "0"));
  }
  HttpClient next(server.port());
  next.send(http_post("/v1/chat/completions", chat_body("say:next")));
  ASSERT_TRUE(server.metric_becomes("tierpack_requests_waiting", "1"));
  running.close();
  EXPECT_THAT(next.read().body, HasSubstr("\"next\""));
}

TEST(ServerLifecycle, AWaitingStreamIsOpenAndBeats) {
  TestServer::Options options = slow_options();
  options.server.http.heartbeat = 30ms;
  TestServer server(options);
  HttpClient running(server.port());
  running.send(http_post("/v1/chat/completions", chat_body("for ever", R"(,"stream":true)")));
  ASSERT_TRUE(running.read_until("\"content\":\"b"));
  HttpClient waiting(server.port());
  waiting.send(http_post("/v1/chat/completions", chat_body("say:x", R"(,"stream":true)")));
  ASSERT_TRUE(waiting.read_until("HTTP/1.1 200"));
  ASSERT_TRUE(waiting.read_until(": still working"));
  running.close();
  const ClientResponse response = waiting.read();
  EXPECT_EQ(parse_events(response.body).back(), "[DONE]");
}

TEST(ServerLifecycle, StoppingLetsTheRunningAnswerEnd) {
  TestServer::Options options = slow_options();
  options.server.grace = 20s;
  TestServer server(options);
  HttpClient client(server.port());
  client.send(http_post("/v1/chat/completions", chat_body("say:a long story", R"(,"stream":true)")));
  ASSERT_TRUE(client.read_until("\"content\":\"a"));
  server.server().stop();
  const ClientResponse response = client.read();
  EXPECT_EQ(parse_events(response.body).back(), "[DONE]");
  EXPECT_EQ(response.header("connection"), "");
  EXPECT_TRUE(client.closed_within(5s));
  EXPECT_TRUE(server.join());
}

TEST(ServerLifecycle, StoppingCutsWhatTakesTooLongAndRefusesWhatWaits) {
  TestServer server(slow_options());
  HttpClient running(server.port());
  running.send(http_post("/v1/chat/completions", chat_body("for ever", R"(,"stream":true)")));
  ASSERT_TRUE(running.read_until("\"content\":\"b"));
  HttpClient waiting(server.port());
  waiting.send(http_post("/v1/chat/completions", chat_body("say:never")));
  ASSERT_TRUE(server.metric_becomes("tierpack_requests_waiting", "1"));
  HttpClient idle(server.port());
  EXPECT_FALSE(server.stop());
  const ClientResponse refused = waiting.read();
  EXPECT_EQ(refused.status, 503u);
  EXPECT_EQ(Json::parse(refused.body)["error"]["code"], "stopping");
  const ClientResponse cut = running.read();
  EXPECT_TRUE(cut.complete);
  EXPECT_THAT(parse_events(cut.body).back(), HasSubstr("the server is stopping"));
  EXPECT_TRUE(idle.closed_within(1s));
  EXPECT_THROW(HttpClient(server.port()), std::runtime_error);
}

TEST(ServerLifecycle, ThePortIsTakenOrTheHostUnknown) {
  TestServer server;
  ServerOptions options;
  options.port = server.port();
  Server second(options, {});
  try {
    second.listen();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kIo);
    EXPECT_THAT(e.what(), HasSubstr("Address already in use"));
    EXPECT_THAT(e.what(), HasSubstr(std::to_string(server.port())));
  }
  options.host = "256.1.1.1";
  Server third(options, {});
  EXPECT_THROW(third.listen(), Error);
}

}  // namespace
}  // namespace tierpack::server

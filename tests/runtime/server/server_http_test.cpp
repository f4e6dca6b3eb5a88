// The HTTP layer against odd, slow and hostile clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "tests/support/test_server.h"

namespace tierpack::server {
namespace {

using namespace std::chrono_literals;
using namespace testing_support;
using ::testing::HasSubstr;

TEST(ServerHttp, KeepsConnectionsAlive) {
  TestServer server;
  HttpClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    client.send(http_post("/v1/chat/completions", chat_body("say:a")));
    EXPECT_EQ(client.read().status, 200u);
    client.send(http_post("/v1/chat/completions", chat_body("say:b", R"(,"stream":true)")));
    EXPECT_TRUE(client.read().complete);
    client.send(http_post("/v1/chat/completions", "{"));
    EXPECT_EQ(client.read().status, 400u);
    client.send(http_get("/health"));
    EXPECT_EQ(client.read().status, 200u);
  }
}

TEST(ServerHttp, PipelinedRequestsAreAnsweredInOrder) {
  TestServer server;
  HttpClient client(server.port());
  std::string all;
  for (int i = 0; i < 20; ++i) {
    all += http_post("/v1/chat/completions",
                     chat_body("say:answer " + std::to_string(i), i % 2 == 0 ? "" : R"(,"stream":true)"));
    all += http_get("/health");
  }
  client.send(all);
  for (int i = 0; i < 20; ++i) {
    const ClientResponse answer = client.read();
    EXPECT_EQ(answer.chunked, i % 2 == 1);
    if (!answer.chunked) {
      EXPECT_THAT(answer.body, HasSubstr("\"answer " + std::to_string(i) + "\""));
    }
    EXPECT_THAT(client.read().body, HasSubstr("ready"));
  }
}

TEST(ServerHttp, RequestsInPieces) {
  TestServer server;
  HttpClient client(server.port());
  const std::string request = http_post("/v1/chat/completions", chat_body("say:piecemeal"));
  for (const char c : request) client.send(std::string_view(&c, 1));
  EXPECT_THAT(client.read().body, HasSubstr("piecemeal"));
}

TEST(ServerHttp, ChunkedBodies) {
  TestServer server;
  HttpClient client(server.port());
  const std::string body = chat_body("say:chunks");
  std::string request = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (size_t at = 0; at < body.size(); at += 7) {
    const std::string piece = body.substr(at, 7);
    request += std::to_string(piece.size()) + "\r\n" + piece + "\r\n";
  }
  client.send(request + "0\r\n\r\n");
  EXPECT_THAT(client.read().body, HasSubstr("chunks"));
}

TEST(ServerHttp, OldClientsGetTheBodyUntilTheEnd) {
  TestServer server;
  const std::string body = chat_body("say:old", R"(,"stream":true)");
  const ClientResponse stream =
      fetch_once(server.port(), "POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) +
                                    "\r\n\r\n" + body);
  EXPECT_EQ(stream.status, 200u);
  EXPECT_FALSE(stream.chunked);
  EXPECT_EQ(parse_events(stream.body).back(), "[DONE]");
  HttpClient client(server.port());
  client.send("GET /health HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.read().status, 200u);
  EXPECT_TRUE(client.closed_within(5s));
}

TEST(ServerHttp, ContinueIsSaidBeforeALargeBody) {
  TestServer server;
  HttpClient client(server.port());
  const std::string body = chat_body("say:big");
  client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.read().status, 100u);
  client.send(body);
  EXPECT_THAT(client.read().body, HasSubstr("big"));
  // A refusal comes instead, before the body.
  HttpClient other(server.port());
  other.send("POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n");
  EXPECT_EQ(other.read().status, 404u);
  EXPECT_TRUE(other.closed_within(5s));
}

TEST(ServerHttp, OversizedRequests) {
  TestServer::Options options;
  options.server.http.max_request_bytes = 2000;
  options.server.http.max_header_bytes = 2000;
  TestServer server(options);
  ClientResponse response = server.post("/v1/chat/completions", std::string(2001, ' '));
  EXPECT_EQ(response.status, 413u);
  EXPECT_THAT(response.body, HasSubstr("2001 bytes"));
  EXPECT_THAT(response.body, HasSubstr("2000 bytes"));
  EXPECT_EQ(response.header("connection"), "close");
  // Announced and never sent; nothing is allocated for it.
  response = fetch_once(
      server.port(), "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9223372036854775807\r\n\r\n");
  EXPECT_EQ(response.status, 413u);
  response = fetch_once(
      server.port(), "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n7d1\r\n" +
                         std::string(2001, ' ') + "\r\n0\r\n\r\n");
  EXPECT_EQ(response.status, 413u);
  response = server.get("/health", "X-Long: " + std::string(3000, 'x') + "\r\n");
  EXPECT_EQ(response.status, 431u);
  EXPECT_TRUE(Json::parse(response.body)["error"].contains("message"));
  const std::string fits(2000, ' ');
  EXPECT_EQ(server.post("/v1/chat/completions", fits).status, 400u);  // read, and not JSON
}

TEST(ServerHttp, ALargeRefusedBodyDoesNotLoseTheResponse) {
  TestServer::Options options;
  options.server.http.max_request_bytes = 1 << 20;
  TestServer server(options);
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(server.post("/v1/chat/completions", std::string((1 << 20) + 1, ' ')).status, 413u);
}

TEST(ServerHttp, MalformedRequests) {
  TestServer server;
  const std::pair<std::string, unsigned> cases[] = {
      {"hello\r\n\r\n", 400},
      {"GET /health\r\n\r\n", 400},
      {"GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
      {"GET /health HTTP/3.0\r\nHost: localhost\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nHost: localhost\r\nBad Header\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\n\r\n", 400},  // no Host
      {"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: "
       "chunked\r\n\r\n0\r\n\r\n",
       400},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: magic\r\nContent-Length: 2\r\n\r\n{}", 417},
      {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400},  // TLS
  };
  for (const auto& [request, status] : cases) {
    const ClientResponse response = fetch_once(server.port(), request);
    EXPECT_EQ(response.status, status) << request << response.body;
    EXPECT_TRUE(Json::parse(response.body).contains("error")) << request;
  }
  EXPECT_EQ(fetch_once(server.port(), "GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 200u);
  EXPECT_EQ(server.get("/health").status, 200u);
}

TEST(ServerHttp, RandomBytesNeverDisturbTheServer) {
  TestServer server;
  std::mt19937 random(1);
  const std::string request = http_post("/v1/chat/completions", chat_body("say:x"));
  for (int i = 0; i < 200; ++i) {
    std::string bytes = request;
    for (int n = 0; n < 3; ++n) bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    HttpClient client(server.port());
    client.try_send(bytes);
    if (i % 2 == 0) client.shutdown_send();
  }
  EXPECT_EQ(server.chat("say:fine").status, 200u);
}

TEST(ServerHttp, SlowClientsAreCutOff) {
  TestServer::Options options;
  options.server.http.idle = 300ms;
  options.server.http.head = 300ms;
  options.server.http.body = 300ms;
  TestServer server(options);
  HttpClient silent(server.port());
  EXPECT_TRUE(silent.closed_within(5s));
  // One byte at a time is not progress: the whole head has one deadline.
  HttpClient dripping(server.port());
  const auto start = std::chrono::steady_clock::now();
  for (const char c : std::string("GET /health HTTP/1.1\r\nX: ") + std::string(200, 'x')) {
    if (!dripping.try_send(std::string_view(&c, 1)) || dripping.closed_within(20ms)) break;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 3s);
  HttpClient stalled(server.port());
  stalled.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_TRUE(stalled.closed_within(5s));
  HttpClient after(server.port());
  after.send(http_get("/health"));
  EXPECT_EQ(after.read().status, 200u);
  EXPECT_TRUE(after.closed_within(5s));
}

TEST(ServerHttp, AStreamNobodyReadsDoesNotHoldTheModel) {
  TestServer::Options options;
  options.fake.context = 1 << 20;
  options.server.http.max_backlog_bytes = 64 << 10;
  TestServer server(options);
  HttpClient deaf(server.port(), 4096);
  deaf.send(http_post("/v1/completions", R"({"prompt":"x","stream":true})"));
  EXPECT_TRUE(server.metric_becomes("tierpack_generations_total{finish_reason=\"cancelled\"}", "1"));
  EXPECT_EQ(server.chat("say:x").status, 200u);
}

TEST(ServerHttp, TooManyConnections) {
  TestServer::Options options;
  options.server.http.max_connections = 3;
  TestServer server(options);
  {
    HttpClient a(server.port()), b(server.port()), c(server.port());
    for (HttpClient* one : {&a, &b, &c}) {
      one->send(http_get("/health"));
      EXPECT_EQ(one->read().status, 200u);
    }
    HttpClient d(server.port());
    EXPECT_EQ(d.read().status, 503u);
    EXPECT_TRUE(d.closed_within(5s));
    a.send(http_get("/health"));
    EXPECT_EQ(a.read().status, 200u);
  }
  for (int i = 0; i < 100; ++i) {
    HttpClient e(server.port());
    e.try_send(http_get("/health"));
    if (e.read().status == 200) return;
    std::this_thread::sleep_for(10ms);
  }
  FAIL() << "closed connections are still counted";
}

TEST(ServerHttp, LargeBodiesShareABudget) {
  TestServer::Options options;
  options.server.http.max_request_bytes = 1 << 20;
  TestServer server(options);
  std::vector<std::unique_ptr<HttpClient>> clients;
  const auto announce = [&] {
    clients.push_back(std::make_unique<HttpClient>(server.port()));
    clients.back()->send(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 1048576\r\n\r\n");
    return clients.back()->read().status;
  };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(announce(), 100u);
  EXPECT_EQ(announce(), 503u);
  EXPECT_EQ(server.chat("say:x").status, 503u);  // any further byte is one too many
  clients.clear();
  for (int i = 0; i < 200 && server.chat("say:x").status != 200; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(server.chat("say:x").status, 200u);
}

TEST(ServerHttp, ManyClientsAtOnce) {
  TestServer::Options options;
  options.server.queue = 1000;
  TestServer server(options);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      HttpClient client(server.port());
      for (int i = 0; i < 20; ++i) {
        const std::string text = "client " + std::to_string(t) + " question " + std::to_string(i);
        client.send(http_post("/v1/chat/completions", chat_body("say:" + text)));
        const Json body = Json::parse(client.read().body);
        right += body["choices"][0]["message"]["content"] == text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 160);
}

}  // namespace
}  // namespace tierpack::server

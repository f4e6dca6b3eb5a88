// A Server over a FakeEngine on a free port, for tests.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "runtime/server/server.h"
#include "tests/support/fake_engine.h"
#include "tests/support/http_client.h"

namespace tierpack::testing_support {

struct TestServerOptions {
  server::ServerOptions server;
  FakeOptions fake;
  bool template_available = true;
  // Called on the model's thread before the model is there; may block, report progress, or throw.
  std::function<void(const std::function<void(uint64_t, uint64_t)>& on_load)> while_loading;
  bool wait_ready = true;
};

class TestServer {
 public:
  using Options = TestServerOptions;

  explicit TestServer(Options options = {});
  ~TestServer();

  uint16_t port() const { return port_; }
  FakeEngine& engine() { return *engine_; }
  server::Server& server() { return server_; }

  ClientResponse get(std::string_view path, std::string_view headers = "") const;
  ClientResponse post(std::string_view path, std::string_view body, std::string_view headers = "") const;
  ClientResponse chat(std::string_view content, std::string_view more_fields = "") const;
  // Waits until GET /metrics has a line that begins with `metric` and ends with " VALUE"; false after 10 seconds.
  bool metric_becomes(const std::string& metric, const std::string& value) const;

  // Stops and returns what run() returned; rethrows what it threw.
  bool stop();
  bool join();

 private:
  server::ServerOptions with_free_port(server::ServerOptions options);

  std::atomic<FakeEngine*> engine_{nullptr};
  server::Server server_;
  uint16_t port_ = 0;
  std::exception_ptr failure_;
  bool complete_ = false;
  std::thread thread_;
};

// A chat request with one user message; `more_fields` like R"(,"stream":true)".
std::string chat_body(std::string_view content, std::string_view more_fields = "");

}  // namespace tierpack::testing_support

#include "tests/support/test_server.h"

#include <chrono>

#include "base/json.h"

namespace tierpack::testing_support {

using namespace std::chrono_literals;

server::ServerOptions TestServer::with_free_port(server::ServerOptions options) {
  options.port = 0;
  if (options.model.empty()) options.model = "fake";
  options.sampling.temperature = 0;
  if (options.grace == server::ServerOptions().grace) options.grace = 200ms;
  return options;
}

TestServer::TestServer(Options options)
    : server_(with_free_port(options.server), [this, options](const std::function<void(uint64_t, uint64_t)>& on_load) {
        if (options.while_loading) options.while_loading(on_load);
        server::ServedModel model;
        auto engine = std::make_unique<FakeEngine>(options.fake);
        engine_ = engine.get();
        if (options.template_available) model.format.emplace(fake_metadata(options.fake), engine->tokenizer());
        model.engine = std::move(engine);
        return model;
      }) {
  port_ = server_.listen();
  thread_ = std::thread([this] {
    try {
      complete_ = server_.run();
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
  for (int i = 0; options.wait_ready && i < 2000; ++i) {
    if (get("/health").status == 200) return;
    std::this_thread::sleep_for(5ms);
  }
}

TestServer::~TestServer() {
  server_.stop();
  if (thread_.joinable()) thread_.join();
}

bool TestServer::stop() {
  server_.stop();
  return join();
}

bool TestServer::join() {
  thread_.join();
  if (failure_) std::rethrow_exception(failure_);
  return complete_;
}

ClientResponse TestServer::get(std::string_view path, std::string_view headers) const {
  return fetch_once(port_, http_get(path, headers));
}

ClientResponse TestServer::post(std::string_view path, std::string_view body, std::string_view headers) const {
  return fetch_once(port_, http_post(path, body, headers));
}

ClientResponse TestServer::chat(std::string_view content, std::string_view more_fields) const {
  return post("/v1/chat/completions", chat_body(content, more_fields));
}

bool TestServer::metric_becomes(const std::string& metric, const std::string& value) const {
  for (int i = 0; i < 1000; ++i) {
    const std::string text = get("/metrics").body;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      const std::string line = text.substr(at, end - at);
      if (line.starts_with(metric) && line.ends_with(" " + value)) return true;
      at = end + 1;
    }
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

std::string chat_body(std::string_view content, std::string_view more_fields) {
  const Json message = {{"role", "user"}, {"content", std::string(content)}};
  return R"({"messages":[)" + message.dump() + "]" + std::string(more_fields) + "}";
}

}  // namespace tierpack::testing_support

#include "runtime/server/http_server.h"

#include <netinet/tcp.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>

#include "base/error.h"
#include "runtime/server/http_connection.h"

namespace tierpack::server {

namespace net = boost::asio;
using boost::beast::error_code;
using net::ip::tcp;

namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr int kUnackedTimeoutMs = 60'000;

void set_options(tcp::socket& socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(net::socket_base::keep_alive(true), ignored);
  // A peer that vanished without a word is noticed when it does not acknowledge.
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnackedTimeoutMs, sizeof kUnackedTimeoutMs);
}

}  // namespace

struct HttpServer::State {
  State(const HttpLimits& http_limits, HttpHandler& handler)
      : limits(http_limits),
        acceptor(io),
        tick_timer(io),
        accept_pause(io),
        context{limits, handler, 0, false, [this](HttpConnection* c) { forget(c); }} {}

  HttpLimits limits;
  net::io_context io{1};
  tcp::acceptor acceptor;
  net::steady_timer tick_timer;
  net::steady_timer accept_pause;
  ConnectionContext context;
  std::unordered_map<HttpConnection*, std::weak_ptr<HttpConnection>> connections;
  std::atomic<size_t> connection_count{0};
  std::function<void()> tick;

  void forget(HttpConnection* connection) {
    connections.erase(connection);
    connection_count = connections.size();
  }

  void accept() {
    acceptor.async_accept([this](error_code ec, tcp::socket socket) {
      if (!acceptor.is_open()) return;
      if (ec) {
        // Usually too many open files: let some be closed first.
        accept_pause.expires_after(kTick);
        accept_pause.async_wait([this](error_code cancelled) {
          if (!cancelled && acceptor.is_open()) accept();
        });
        return;
      }
      set_options(socket);
      const bool full = connections.size() >= limits.max_connections;
      auto connection = std::make_shared<HttpConnection>(std::move(socket), context);
      connections.emplace(connection.get(), connection);
      connection_count = connections.size();
      if (full) {
        HttpResponse busy = context.handler.http_error(503, "too many connections; try again");
        busy.headers.emplace_back("Retry-After", "1");
        connection->refuse_and_close(std::move(busy));
      } else {
        connection->start();
      }
      accept();
    });
  }

  void on_tick() {
    if (tick) tick();
    if (context.stopping && connections.empty()) return;
    tick_timer.expires_after(kTick);
    tick_timer.async_wait([this](error_code ec) {
      if (!ec) on_tick();
    });
  }

  // A connection may end, and leave the table, while the loop runs.
  template <typename Call>
  void for_each_connection(Call call) {
    std::vector<std::shared_ptr<HttpConnection>> all;
    for (auto& [key, weak] : connections) {
      if (auto connection = weak.lock()) all.push_back(std::move(connection));
    }
    for (const auto& connection : all) call(*connection);
  }

  void begin_stop() {
    context.stopping = true;
    error_code ignored;
    acceptor.close(ignored);
    accept_pause.cancel();
    for_each_connection([](HttpConnection& c) { c.stop_when_idle(); });
  }
};

HttpServer::HttpServer(const HttpLimits& limits, HttpHandler& handler)
    : state_(std::make_unique<State>(limits, handler)) {}

// Handlers still queued hold connections, whose end touches the table: they go first.
HttpServer::~HttpServer() {
  state_->for_each_connection([](HttpConnection& c) { c.abort(); });
  state_->io.restart();
  state_->io.poll();
}

uint16_t HttpServer::listen(const std::string& host, uint16_t port) {
  State& s = *state_;
  tcp::resolver resolver(s.io);
  error_code ec;
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, ec);
  if (ec) fail(ErrorKind::kUsage, "listening on host '{}': it cannot be resolved: {}", host, ec.message());
  // A name may mean both families; clients that try the other one first fall back to this.
  const auto v4 = std::find_if(found.begin(), found.end(), [](const auto& one) { return one.endpoint().address().is_v4(); });
  const tcp::endpoint endpoint = (v4 == found.end() ? found.begin() : v4)->endpoint();
  const auto check = [&](const char* what) {
    if (ec) fail(ErrorKind::kIo, "listening on {} port {}: {}: {}", host, port, what, ec.message());
  };
  s.acceptor.open(endpoint.protocol(), ec);
  check("opening a socket");
  s.acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  check("SO_REUSEADDR");
  s.acceptor.bind(endpoint, ec);
  check("bind");
  s.acceptor.listen(net::socket_base::max_listen_connections, ec);
  check("listen");
  const uint16_t bound = s.acceptor.local_endpoint(ec).port();
  check("getsockname");
  s.accept();
  return bound;
}

void HttpServer::run(const std::function<void()>& tick) {
  state_->tick = tick;
  state_->on_tick();
  state_->io.run();
}

void HttpServer::stop() {
  net::post(state_->io, [state = state_.get()] { state->begin_stop(); });
}

void HttpServer::abort() {
  net::post(state_->io, [state = state_.get()] {
    state->begin_stop();
    state->for_each_connection([](HttpConnection& c) { c.abort(); });
  });
}

size_t HttpServer::connections() const { return state_->connection_count; }

}  // namespace tierpack::server

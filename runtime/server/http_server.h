// The HTTP/1.1 layer: accepts connections, reads requests within limits and writes answers. It knows nothing of what is
// served; an HttpHandler does.
//
// Everything runs on the one thread that calls run(); stop() and abort() may be called from any thread.
//   - A connection answers one request after the other, in order; what a client sends ahead stays in the socket.
//   - While a request is being answered, the client's presence is watched: a closed or half-closed connection counts as
//     gone, and the handler is told through Exchange::on_gone.
//   - A client that is slow to send or to read is cut off by a deadline, never waited for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/server/http_message.h"
#include "runtime/server/server_options.h"

namespace tierpack::server {

class HttpServer {
 public:
  HttpServer(const HttpLimits& limits, HttpHandler& handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Binds and listens; returns the port. Throws kIo with the system's reason and the address, kUsage for a host that
  // cannot be resolved.
  uint16_t listen(const std::string& host, uint16_t port);

  // Serves until stop() or abort() has let every connection end. `tick` is called about ten times a second.
  void run(const std::function<void()>& tick);
  // No new connections or requests; running answers are completed.
  void stop();
  // As stop(), but cuts running answers off.
  void abort();

  size_t connections() const;

  struct State;  // for the connections

 private:
  std::unique_ptr<State> state_;
};

}  // namespace tierpack::server

// A server as a whole: the HTTP thread (the caller of run), the model's thread and the thread that prepares requests.
//
// It listens before the model is loaded: /health tells how far it is, other routes answer 503 until then. Shutdown lets
// the running answer end within the grace period, refuses the waiting requests and joins every thread.
#pragma once

#include <functional>
#include <memory>

#include "runtime/server/served_model.h"
#include "runtime/server/server_options.h"

namespace tierpack::server {

class Server {
 public:
  Server(ServerOptions options, ModelLoader load);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Binds; returns the port. Throws kIo or kUsage.
  uint16_t listen();

  // Serves until stop() is called or `should_stop` (asked about ten times a second) returns true. Returns true when
  // every accepted request was answered in full. Throws what loading the model threw.
  bool run(const std::function<bool()>& should_stop = {});

  // From any thread.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tierpack::server

// POST /v1/chat/completions and /v1/completions: from a request's bytes to a job in the queue.
//
// Parsing, templates and tokenizing happen on a thread of their own, one request after the other, so that neither the
// HTTP thread nor the model waits for them. What is wrong with a request is therefore known before its turn comes.
#pragma once

#include <memory>

#include "runtime/generate.h"
#include "runtime/server/http_message.h"
#include "runtime/server/metrics.h"
#include "runtime/server/request_queue.h"
#include "runtime/server/served_model.h"
#include "runtime/server/server_options.h"

namespace tierpack::server {

class Completions {
 public:
  enum class Endpoint { kChat, kText };

  Completions(const ServerOptions& options, const ServerState& state, RequestQueue& queue, Metrics& metrics);
  ~Completions();  // waits for the requests being prepared

  // From the HTTP thread, when the server is ready.
  void handle(Endpoint endpoint, HttpRequest request, std::shared_ptr<Exchange> exchange);
  // From the model's thread: what its jobs run on. Must outlive the last job.
  void set_generator(Generator* generator, Engine* engine);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tierpack::server

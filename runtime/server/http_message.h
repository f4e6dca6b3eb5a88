// What the HTTP layer and the routes say to each other: a request's head, a whole request, a whole response, and the
// Exchange through which a request is answered, at once or piece by piece.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tierpack::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpHead {
  std::string method;
  std::string path;  // without the query
  std::optional<std::string> host;
  std::optional<std::string> origin;
  std::string authorization;
  std::string requested_headers;  // Access-Control-Request-Headers of a preflight
};

struct HttpRequest {
  HttpHead head;
  std::string body;
};

struct HttpResponse {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers;
};

// One request being answered: either respond(), or begin_stream(), any number of send() and end_stream(). Every
// function may be called from any thread and returns at once; calls after the client has gone do nothing. Shared
// between the connection that made it and whoever works on the answer: either may outlive the other.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void respond(HttpResponse response) = 0;
  // `heartbeat` is sent whenever nothing else was for some seconds.
  virtual void begin_stream(std::string content_type, std::string heartbeat) = 0;
  virtual void send(std::string data) = 0;
  virtual void end_stream() = 0;
  // Called once, on the HTTP thread, when the client leaves before its answer is complete; at once if it has left.
  virtual void on_gone(std::function<void()> callback) = 0;
  virtual bool gone() const = 0;
};

// What a server does with requests. Called on the HTTP thread only; nothing here may block.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // A refusal that needs no body: wrong host, key, path, method, or not ready.
  virtual std::optional<HttpResponse> refuse(const HttpHead& head) = 0;
  virtual void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) = 0;
  // Headers for every response to this request (CORS).
  virtual Headers response_headers(const HttpHead& head) = 0;
  // A failure found by the HTTP layer itself, in the API's own shape.
  virtual HttpResponse http_error(unsigned status, const std::string& message) = 0;
  // Every response, for logs and counters. `head` is empty when it could not be read.
  virtual void on_answered(const HttpHead& head, unsigned status) = 0;
};

}  // namespace tierpack::server

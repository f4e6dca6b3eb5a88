// What a client is told when its request cannot be served, in the shape of OpenAI's API:
// {"error": {"message", "type", "param", "code"}}. Thrown while a request is read and caught at the request's boundary.
#pragma once

#include <stdexcept>
#include <string>

#include "base/error.h"
#include "runtime/server/http_message.h"

namespace tierpack::server {

class ApiError : public std::runtime_error {
 public:
  // `param` names the offending field ("messages[0].role"); empty param and code become null.
  ApiError(unsigned status, const std::string& message, std::string code = {}, std::string param = {})
      : std::runtime_error(message), status_(status), code_(std::move(code)), param_(std::move(param)) {}
  // What a failure of the runtime means to the client: its own request (kUsage) is 400, lack of memory 503, the rest
  // 500.
  explicit ApiError(const Error& error);

  unsigned status() const { return status_; }
  std::string body() const;  // JSON
  HttpResponse response() const;

 private:
  unsigned status_;
  std::string code_;
  std::string param_;
};

}  // namespace tierpack::server

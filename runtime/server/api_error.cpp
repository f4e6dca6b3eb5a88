#include "runtime/server/api_error.h"

#include "base/json.h"

namespace tierpack::server {

namespace {

const char* type_of(unsigned status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

unsigned status_of(ErrorKind kind) {
  if (kind == ErrorKind::kUsage) return 400;
  return kind == ErrorKind::kCapacity || kind == ErrorKind::kInterrupted ? 503 : 500;
}

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

ApiError::ApiError(const Error& error)
    : ApiError(status_of(error.kind()), error.what(),
               error.kind() == ErrorKind::kUsage ? "" : kind_name(error.kind())) {}

std::string ApiError::body() const {
  Json error;
  error["message"] = what();
  error["type"] = type_of(status_);
  error["param"] = or_null(param_);
  error["code"] = or_null(code_);
  return Json{{"error", std::move(error)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

HttpResponse ApiError::response() const {
  HttpResponse response;
  response.status = status_;
  response.body = body();
  if (status_ == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (status_ == 429 || status_ == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

}  // namespace tierpack::server

#include "runtime/server/http_connection.h"

#include <limits>

#include <fmt/core.h>
#include <boost/asio/write.hpp>

#include "base/bytes.h"
#include "runtime/server/exchange.h"

namespace tierpack::server {

namespace beast = boost::beast;
namespace http = beast::http;
namespace net = boost::asio;
using beast::error_code;

namespace {

constexpr size_t kFirstReadBytes = 4096;
constexpr uint64_t kBodyBytesPerSecond = 64 << 10;
constexpr uint64_t kBodiesAtOnce = 4;  // of the largest size allowed

std::string path_of(std::string_view target) {
  // A proxy's absolute form: http://host/path.
  if (const size_t scheme = target.find("://"); !target.starts_with('/') && scheme != std::string_view::npos) {
    const size_t slash = target.find('/', scheme + 3);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  return std::string(target.substr(0, target.find_first_of("?#")));
}

template <typename Text>
std::string str(const Text& text) {
  return std::string(text.data(), text.size());
}

}  // namespace

HttpConnection::HttpConnection(net::ip::tcp::socket socket, ConnectionContext& context)
    : context_(context), stream_(std::move(socket)), watch_(stream_.get_executor()) {}

HttpConnection::~HttpConnection() {
  release_body_budget();
  context_.on_closed(this);
}

void HttpConnection::start() { await_request(); }

void HttpConnection::await_request() {
  parser_.reset();
  response_.reset();
  head_ = {};
  head_known_ = false;
  if (context_.stopping) return close_gently();
  if (buffer_.size() > 0) return read_head();
  stream_.expires_after(context_.limits.idle);
  stream_.async_read_some(buffer_.prepare(kFirstReadBytes), bind(&HttpConnection::on_first_bytes));
}

void HttpConnection::on_first_bytes(error_code ec, size_t bytes) {
  if (ec) return;  // closed, or idle for too long
  buffer_.commit(bytes);
  read_head();
}

void HttpConnection::read_head() {
  parser_.emplace();
  parser_->header_limit(context_.limits.max_header_bytes);
  parser_->body_limit(std::numeric_limits<uint64_t>::max());  // decided when the head is known
  stream_.expires_after(context_.limits.head);
  http::async_read_header(stream_, buffer_, *parser_, bind(&HttpConnection::on_head));
}

void HttpConnection::on_head(error_code ec, size_t) {
  if (ec == http::error::header_limit) {
    return refuse_and_close(context_.handler.http_error(
        431, "the request's header is larger than " + format_size(context_.limits.max_header_bytes)));
  }
  const bool malformed = ec && ec.category() == http::make_error_code(http::error::bad_method).category() &&
                         ec != http::error::end_of_stream && ec != http::error::partial_message;
  if (malformed) return refuse_and_close(context_.handler.http_error(400, "not an HTTP/1.1 request: " + ec.message()));
  if (ec) return;

  const auto& message = parser_->get();
  version_ = message.version();
  head_.method = str(message.method_string());
  head_.path = path_of(std::string_view(message.target().data(), message.target().size()));
  if (const auto host = message.find(http::field::host); host != message.end()) head_.host = str(host->value());
  if (const auto origin = message.find(http::field::origin); origin != message.end()) {
    head_.origin = str(origin->value());
  }
  head_.authorization = str(message[http::field::authorization]);
  head_.requested_headers = str(message[http::field::access_control_request_headers]);
  head_known_ = true;
  keep_alive_ = parser_->keep_alive();

  std::optional<HttpResponse> refusal = unacceptable_framing();
  if (!refusal) refusal = context_.handler.refuse(head_);
  const bool has_body = parser_->chunked() || parser_->content_length().value_or(0) > 0;
  if (!refusal) return read_body();
  // A body that was not read cannot be followed by another request.
  if (has_body) keep_alive_ = false;
  answering_ = true;
  ++serial_;
  write_response(std::move(*refusal));
}

std::optional<HttpResponse> HttpConnection::unacceptable_framing() const {
  const auto& message = parser_->get();
  const auto error = [&](unsigned status, const std::string& text) {
    return context_.handler.http_error(status, text);
  };
  const size_t hosts = message.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && version_ >= 11)) return error(400, "a request needs exactly one Host header");
  if (const auto coding = message.find(http::field::transfer_encoding); coding != message.end()) {
    if (message.count(http::field::content_length) > 0) {
      return error(400, "a request has either Content-Length or Transfer-Encoding");
    }
    if (!parser_->chunked() || !beast::iequals(coding->value(), "chunked")) {
      return error(501, "the only transfer coding understood is chunked");
    }
  }
  if (const auto expect = message.find(http::field::expect);
      expect != message.end() && !beast::iequals(expect->value(), "100-continue")) {
    return error(417, "the only expectation understood is 100-continue");
  }
  const uint64_t limit = context_.limits.max_request_bytes;
  if (const auto length = parser_->content_length(); length && *length > limit) {
    return error(413,
                 fmt::format("the request's body has {} bytes, more than the limit of {} bytes (--max-request-bytes)",
                             *length, limit));
  }
  const uint64_t needed = parser_->chunked() ? limit : parser_->content_length().value_or(0);
  if (context_.body_bytes + needed > kBodiesAtOnce * limit) {
    HttpResponse busy = error(503, "too many large requests are being received at once; try again");
    busy.headers.emplace_back("Retry-After", "1");
    return busy;
  }
  return std::nullopt;
}

void HttpConnection::read_body() {
  body_budget_ = parser_->chunked() ? context_.limits.max_request_bytes : parser_->content_length().value_or(0);
  context_.body_bytes += body_budget_;
  if (parser_->get().find(http::field::expect) == parser_->get().end() || parser_->is_done()) return receive_body();
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  stream_.expires_after(context_.limits.write);
  net::async_write(stream_, net::buffer(kContinue), bind(&HttpConnection::on_continue_sent));
}

void HttpConnection::on_continue_sent(error_code ec, size_t) {
  if (!ec) receive_body();
}

void HttpConnection::receive_body() {
  parser_->body_limit(context_.limits.max_request_bytes);
  const auto extra = std::chrono::seconds(body_budget_ / kBodyBytesPerSecond);
  stream_.expires_after(context_.limits.body + extra);
  http::async_read(stream_, buffer_, *parser_, bind(&HttpConnection::on_body));
}

void HttpConnection::on_body(error_code ec, size_t) {
  if (ec == http::error::body_limit) {
    return refuse_and_close(context_.handler.http_error(
        413, fmt::format("the request's body has more than the limit of {} bytes (--max-request-bytes)",
                         context_.limits.max_request_bytes)));
  }
  const bool malformed = ec && ec.category() == http::make_error_code(http::error::bad_chunk).category() &&
                         ec != http::error::end_of_stream && ec != http::error::partial_message;
  if (malformed) return refuse_and_close(context_.handler.http_error(400, "malformed request body: " + ec.message()));
  if (ec) return;

  HttpRequest request{head_, std::move(parser_->get().body())};
  release_body_budget();
  answering_ = true;
  ++serial_;
  exchange_ = std::make_shared<ConnectionExchange>(weak_from_this(), serial_, stream_.get_executor());
  watch();
  context_.handler.handle(std::move(request), exchange_);
}

void HttpConnection::release_body_budget() {
  context_.body_bytes -= body_budget_;
  body_budget_ = 0;
}

}  // namespace tierpack::server

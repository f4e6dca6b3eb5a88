// HttpConnection's other half: answering, watching and closing.
#include <poll.h>

#include <ctime>
#include <sstream>

#include <boost/asio/write.hpp>

#include "runtime/server/exchange.h"
#include "runtime/server/sse.h"

namespace tierpack::server {

namespace beast = boost::beast;
namespace http = beast::http;
namespace net = boost::asio;
using beast::error_code;

namespace {

constexpr uint64_t kWriteBytesPerSecond = 16 << 10;
constexpr auto kDrainTime = std::chrono::seconds(3);
constexpr auto kDrainTimeStopping = std::chrono::milliseconds(300);
constexpr size_t kDrainPiece = 64 << 10;
constexpr unsigned kClientGone = 499;  // in logs and counters only

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc));
}

template <typename Message>
void set_headers(Message& message, const std::string& content_type, const Headers& headers) {
  message.set(http::field::date, http_date());
  message.set(http::field::server, "tierpack");
  if (!content_type.empty()) message.set(http::field::content_type, content_type);
  message.set(http::field::cache_control, "no-store");
  message.set("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : headers) message.set(name, value);
}

}  // namespace

void HttpConnection::respond(uint64_t serial, HttpResponse response) {
  if (serial != serial_ || !answering_ || response_ || streaming_) return;
  write_response(std::move(response));
}

void HttpConnection::write_response(HttpResponse response) {
  if (context_.stopping) keep_alive_ = false;
  status_ = response.status;
  response_.emplace(http::int_to_status(response.status), version_ == 10 ? 10 : 11);
  response_->result(response.status);
  set_headers(*response_, response.content_type, response.headers);
  if (head_known_) {
    for (const auto& [name, value] : context_.handler.response_headers(head_)) response_->set(name, value);
  }
  response_->keep_alive(keep_alive_);
  if (response.status != 204) response_->content_length(response.body.size());
  const auto extra = std::chrono::seconds(response.body.size() / kWriteBytesPerSecond);
  if (head_.method != "HEAD") response_->body() = std::move(response.body);
  stream_.expires_after(context_.limits.write + extra);
  http::async_write(stream_, *response_, bind(&HttpConnection::on_response_written));
}

void HttpConnection::refuse_and_close(HttpResponse response) {
  release_body_budget();
  keep_alive_ = false;
  answering_ = true;
  ++serial_;
  write_response(std::move(response));
}

void HttpConnection::on_response_written(error_code ec, size_t) {
  if (!ec) return answered();
  client_gone();
}

void HttpConnection::begin_stream(uint64_t serial, std::string content_type, std::string heartbeat) {
  if (serial != serial_ || !answering_ || response_ || streaming_) return;
  if (context_.stopping) keep_alive_ = false;
  chunked_ = version_ >= 11;
  if (!chunked_) keep_alive_ = false;  // the end of the connection is the end of the body
  http::response<http::empty_body> message(http::status::ok, chunked_ ? 11 : 10);
  set_headers(message, content_type, context_.handler.response_headers(head_));
  message.set("X-Accel-Buffering", "no");  // proxies that buffer would hold events back
  message.keep_alive(keep_alive_);
  if (chunked_) message.chunked(true);
  std::ostringstream text;
  text << message.base();

  status_ = 200;
  streaming_ = true;
  stream_ended_ = false;
  heartbeat_ = std::move(heartbeat);
  pending_ = text.str();
  flush();
}

void HttpConnection::send(uint64_t serial, std::string data) {
  if (serial != serial_ || !streaming_ || stream_ended_ || data.empty()) return;
  append(std::move(data));
}

void HttpConnection::end_stream(uint64_t serial) {
  if (serial != serial_ || !streaming_ || stream_ended_) return;
  stream_ended_ = true;
  if (chunked_) pending_ += kLastChunk;
  if (pending_.empty() && !writing_) return answered();
  flush();
}

void HttpConnection::append(std::string data) {
  pending_ += chunked_ ? http_chunk(data) : data;
  if (pending_.size() > context_.limits.max_backlog_bytes) return client_gone();
  flush();
}

void HttpConnection::flush() {
  if (writing_ || pending_.empty()) return;
  writing_ = true;
  in_flight_ = std::move(pending_);
  pending_.clear();
  last_write_ = std::chrono::steady_clock::now();
  stream_.expires_after(context_.limits.write + std::chrono::seconds(in_flight_.size() / kWriteBytesPerSecond));
  net::async_write(stream_, net::buffer(in_flight_), bind(&HttpConnection::on_flushed));
}

void HttpConnection::on_flushed(error_code ec, size_t) {
  writing_ = false;
  if (!streaming_) return;  // the client was given up meanwhile
  if (ec) return client_gone();
  if (!pending_.empty()) return flush();
  if (stream_ended_) answered();
}

void HttpConnection::answered() {
  if (!answering_) return;
  answering_ = false;
  streaming_ = false;
  stream_ended_ = false;
  watch_.cancel();
  if (exchange_) exchange_->complete();
  exchange_.reset();
  context_.handler.on_answered(head_, status_);
  if (keep_alive_ && !context_.stopping) {
    await_request();
  } else {
    close_gently();
  }
}

void HttpConnection::watch() {
  watch_.expires_after(context_.limits.watch);
  watch_.async_wait([self = shared_from_this(), serial = serial_](error_code ec) {
    HttpConnection& c = *self;
    if (ec || serial != c.serial_ || !c.answering_) return;
    // Closed for sending counts as gone; a response that is being written is completed all the same.
    pollfd state{c.stream_.socket().native_handle(), POLLRDHUP, 0};
    const bool left = ::poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    if (left && !c.response_ && !c.stream_ended_) return c.client_gone();
    if (c.streaming_ && !c.stream_ended_ && !c.writing_ && !c.heartbeat_.empty() &&
        std::chrono::steady_clock::now() - c.last_write_ > c.context_.limits.heartbeat) {
      c.append(c.heartbeat_);
    }
    if (c.answering_) c.watch();
  });
}

void HttpConnection::client_gone() {
  if (answering_) {
    answering_ = false;
    streaming_ = false;
    pending_.clear();
    watch_.cancel();
    context_.handler.on_answered(head_, kClientGone);
    if (const auto exchange = std::move(exchange_)) exchange->client_left();
  }
  stream_.close();
}

void HttpConnection::stop_when_idle() {
  if (answering_) {
    keep_alive_ = false;
  } else {
    stream_.close();
  }
}

void HttpConnection::abort() { client_gone(); }

// Says that nothing more comes, then reads what the client still sends for a while: closing with unread data would
// reset the connection, and the client might never see the response.
void HttpConnection::close_gently() {
  error_code ignored;
  stream_.socket().shutdown(net::ip::tcp::socket::shutdown_send, ignored);
  buffer_.clear();
  drained_bytes_ = 0;
  scratch_.resize(kDrainPiece);
  stream_.expires_after(context_.stopping ? kDrainTimeStopping : std::chrono::milliseconds(kDrainTime));
  drain();
}

void HttpConnection::drain() { stream_.async_read_some(net::buffer(scratch_), bind(&HttpConnection::on_drained)); }

void HttpConnection::on_drained(error_code ec, size_t bytes) {
  drained_bytes_ += bytes;
  if (ec || drained_bytes_ > 2 * context_.limits.max_request_bytes) return stream_.close();
  drain();
}

}  // namespace tierpack::server

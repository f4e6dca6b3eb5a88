// One client connection of an HttpServer: reading, answering, streaming, watching and closing. Internal to the HTTP
// layer; lives on the HTTP thread. Kept alive by the operations in flight, hence shared.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>

#include "runtime/server/http_message.h"
#include "runtime/server/server_options.h"

namespace tierpack::server {

class HttpConnection;

// What all connections of a server share.
struct ConnectionContext {
  const HttpLimits& limits;
  HttpHandler& handler;
  uint64_t body_bytes = 0;  // being received now, by all connections
  bool stopping = false;
  std::function<void(HttpConnection*)> on_closed;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(boost::asio::ip::tcp::socket socket, ConnectionContext& context);
  ~HttpConnection();

  void start();
  void refuse_and_close(HttpResponse response);  // instead of start(), when there are too many
  void stop_when_idle();
  void abort();

 private:
  friend class ConnectionExchange;
  using Handler = void (HttpConnection::*)(boost::beast::error_code, size_t);
  auto bind(Handler handler) {
    return [self = shared_from_this(), handler](boost::beast::error_code ec, size_t bytes) {
      ((*self).*handler)(ec, bytes);
    };
  }

  // Reading.
  void await_request();
  void on_first_bytes(boost::beast::error_code ec, size_t bytes);
  void read_head();
  void on_head(boost::beast::error_code ec, size_t bytes);
  std::optional<HttpResponse> unacceptable_framing() const;
  void read_body();
  void on_continue_sent(boost::beast::error_code ec, size_t bytes);
  void receive_body();
  void on_body(boost::beast::error_code ec, size_t bytes);
  void release_body_budget();

  // Answering; `serial` names the request, so that a late answer cannot reach the next one.
  void respond(uint64_t serial, HttpResponse response);
  void begin_stream(uint64_t serial, std::string content_type, std::string heartbeat);
  void send(uint64_t serial, std::string data);
  void end_stream(uint64_t serial);
  void write_response(HttpResponse response);
  void on_response_written(boost::beast::error_code ec, size_t bytes);
  void append(std::string data);
  void flush();
  void on_flushed(boost::beast::error_code ec, size_t bytes);
  void answered();

  // Watching and closing.
  void watch();
  void client_gone();
  void close_gently();
  void drain();
  void on_drained(boost::beast::error_code ec, size_t bytes);

  ConnectionContext& context_;
  boost::beast::tcp_stream stream_;
  boost::asio::steady_timer watch_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  std::optional<boost::beast::http::response<boost::beast::http::string_body>> response_;

  HttpHead head_;
  bool head_known_ = false;
  unsigned version_ = 11;
  bool keep_alive_ = false;
  uint64_t body_budget_ = 0;

  uint64_t serial_ = 0;
  bool answering_ = false;
  std::shared_ptr<class ConnectionExchange> exchange_;
  unsigned status_ = 0;

  bool streaming_ = false;
  bool stream_ended_ = false;
  bool chunked_ = false;
  bool writing_ = false;
  std::string pending_;
  std::string in_flight_;
  std::string heartbeat_;
  std::chrono::steady_clock::time_point last_write_;
  std::string scratch_;
  uint64_t drained_bytes_ = 0;
};

}  // namespace tierpack::server

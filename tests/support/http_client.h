// A plain socket HTTP client for server tests: sends exact bytes, reads responses with their framing checked, and can
// do everything a bad client does. Every wait is bounded.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tierpack::testing_support {

struct ClientResponse {
  unsigned status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool chunked = false;
  bool complete = false;  // the body ended as its framing says

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

class HttpClient {
 public:
  // `receive_buffer_bytes` of the socket, 0 = the system's choice.
  explicit HttpClient(uint16_t port, int receive_buffer_bytes = 0);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void send(std::string_view bytes);
  // False when the server has closed the connection.
  bool try_send(std::string_view bytes);
  // The next response; for a HEAD request without body. Throws std::runtime_error after `timeout` or a broken
  // connection.
  ClientResponse read(bool head_only = false);
  // More bytes of a stream into the buffer; false when the server closed.
  bool read_some();
  // Reads until the buffer contains `text`; false when the server closed first.
  bool read_until(std::string_view text);
  // Whether the server closes the connection within `wait`, discarding what it sends.
  bool closed_within(std::chrono::milliseconds wait);
  void shutdown_send();
  void reset();  // closes with RST
  void close();

  std::string buffer;  // received and not yet used
  std::chrono::milliseconds timeout{20'000};

 private:
  int fd_ = -1;
};

// "POST /path HTTP/1.1" with Host, Content-Length and `headers` ("Name: value\r\n" each).
std::string http_post(std::string_view path, std::string_view body, std::string_view headers = "");
std::string http_get(std::string_view path, std::string_view headers = "");

// One request on a connection of its own.
ClientResponse fetch_once(uint16_t port, std::string_view request, bool head_only = false);

// The data of server-sent events, comments left out; throws std::runtime_error on anything malformed.
std::vector<std::string> parse_events(std::string_view body);

}  // namespace tierpack::testing_support

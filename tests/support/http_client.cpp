#include "tests/support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>

namespace tierpack::testing_support {

using Clock = std::chrono::steady_clock;

HttpClient::HttpClient(uint16_t port, int receive_buffer_bytes) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (receive_buffer_bytes > 0) {
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
  }
  if (fd_ < 0 || ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    close();
    throw std::runtime_error("cannot connect to port " + std::to_string(port));
  }
}

HttpClient::~HttpClient() { close(); }

void HttpClient::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void HttpClient::reset() {
  const linger hard{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  close();
}

void HttpClient::shutdown_send() { ::shutdown(fd_, SHUT_WR); }

bool HttpClient::try_send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

void HttpClient::send(std::string_view bytes) {
  if (!try_send(bytes)) throw std::runtime_error("the server closed the connection while a request was sent");
}

bool HttpClient::read_some() {
  pollfd wait{fd_, POLLIN, 0};
  if (::poll(&wait, 1, static_cast<int>(timeout.count())) <= 0)
    throw std::runtime_error("timed out waiting for the server");
  char piece[64 << 10];
  const ssize_t n = ::recv(fd_, piece, sizeof piece, 0);
  if (n <= 0) return false;
  buffer.append(piece, static_cast<size_t>(n));
  return true;
}

bool HttpClient::read_until(std::string_view text) {
  while (buffer.find(text) == std::string::npos) {
    if (!read_some()) return false;
  }
  return true;
}

bool HttpClient::closed_within(std::chrono::milliseconds wait) {
  const auto end = Clock::now() + wait;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    pollfd state{fd_, POLLIN, 0};
    if (::poll(&state, 1, static_cast<int>(left)) <= 0) return false;
    char piece[64 << 10];
    const ssize_t n = ::recv(fd_, piece, sizeof piece, 0);
    if (n <= 0) return true;
    buffer.append(piece, static_cast<size_t>(n));
  }
}

ClientResponse HttpClient::read(bool head_only) {
  ClientResponse response;
  if (!read_until("\r\n\r\n")) throw std::runtime_error("the connection closed before a response: '" + buffer + "'");
  const size_t head_end = buffer.find("\r\n\r\n");
  const std::string head = buffer.substr(0, head_end + 2);
  buffer.erase(0, head_end + 4);
  if (!head.starts_with("HTTP/1.")) throw std::runtime_error("not a response: " + head);
  response.status = static_cast<unsigned>(std::stoul(head.substr(9, 3)));
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t end = head.find("\r\n", at);
    const std::string line = head.substr(at, end - at);
    at = end + 2;
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) throw std::runtime_error("not a header: " + line);
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (!response.headers.emplace(name, line.substr(colon + 2)).second) throw std::runtime_error("twice: " + line);
  }
  if (head_only || response.status == 204 || response.status < 200) {
    response.complete = true;
    return response;
  }
  if (response.header("transfer-encoding") == "chunked") {
    response.chunked = true;
    for (;;) {
      if (!read_until("\r\n")) return response;
      const size_t size = std::stoul(buffer, nullptr, 16);
      const size_t start = buffer.find("\r\n") + 2;
      while (buffer.size() < start + size + 2) {
        if (!read_some()) return response;
      }
      if (buffer.compare(start + size, 2, "\r\n") != 0) throw std::runtime_error("a chunk does not end where it says");
      response.body += buffer.substr(start, size);
      buffer.erase(0, start + size + 2);
      if (size == 0) break;
    }
    response.complete = true;
  } else if (const std::string length = response.header("content-length"); !length.empty()) {
    const size_t size = std::stoul(length);
    while (buffer.size() < size) {
      if (!read_some()) return response;
    }
    response.body = buffer.substr(0, size);
    buffer.erase(0, size);
    response.complete = true;
  } else {
    while (read_some()) {
    }
    response.body.swap(buffer);
    response.complete = true;
  }
  return response;
}

std::string http_post(std::string_view path, std::string_view body, std::string_view headers) {
  std::string request =
      "POST " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  request += headers;
  request += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
  return request += body;
}

std::string http_get(std::string_view path, std::string_view headers) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) + "\r\n";
}

ClientResponse fetch_once(uint16_t port, std::string_view request, bool head_only) {
  HttpClient client(port);
  client.try_send(request);  // a refusal may arrive, and the connection close, before all is sent
  return client.read(head_only);
}

std::vector<std::string> parse_events(std::string_view body) {
  std::vector<std::string> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string_view::npos)
      throw std::runtime_error("an event without its end: " + std::string(body.substr(at)));
    std::string data;
    bool any = false;
    for (size_t line_at = at; line_at < end;) {
      const size_t line_end = std::min(body.find('\n', line_at), end);
      const std::string_view line = body.substr(line_at, line_end - line_at);
      line_at = line_end + 1;
      if (line.starts_with(":")) continue;
      if (!line.starts_with("data: ")) throw std::runtime_error("not an event line: " + std::string(line));
      if (any) data += '\n';
      data += line.substr(6);
      any = true;
    }
    if (any) events.push_back(std::move(data));
    at = end + 2;
  }
  return events;
}

}  // namespace tierpack::testing_support

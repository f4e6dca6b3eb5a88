#include "tests/support/tunnel_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace tierpack::support {

namespace {

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Moves what has arrived from one socket to the other; false at the end.
bool move_some(int from, int to) {
  char buffer[65536];
  const ssize_t got = ::recv(from, buffer, sizeof buffer, 0);
  for (ssize_t done = 0; done < got;) {
    const ssize_t put = ::send(to, buffer + done, static_cast<size_t>(got - done), MSG_NOSIGNAL);
    if (put <= 0) return false;
    done += put;
  }
  return got > 0;
}

}  // namespace

TunnelProxy::TunnelProxy(int to_port, bool refuse) : to_port_(to_port), refuse_(refuse) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("TunnelProxy: cannot listen");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_loop(); });
}

TunnelProxy::~TunnelProxy() {
  stopping_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  ::close(listener_);
  for (std::thread& worker : workers_) worker.join();
}

std::vector<std::string> TunnelProxy::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void TunnelProxy::accept_loop() {
  while (!stopping_) {
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket >= 0) workers_.emplace_back([this, socket] { serve(socket); });
  }
}

void TunnelProxy::serve(int socket) {
  std::string head;
  char c = 0;
  while (!head.ends_with("\r\n\r\n") && head.size() < 65536 && ::recv(socket, &c, 1, 0) == 1) head += c;
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(head);
  }
  const int target = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(to_port_);
  const bool tunnel = !refuse_ && head.starts_with("CONNECT ") &&
                      ::connect(target, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const std::string answer = tunnel ? "HTTP/1.1 200 Connection established\r\n\r\n"
                                    : "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  ::send(socket, answer.data(), answer.size(), MSG_NOSIGNAL);
  while (tunnel && !stopping_) {
    pollfd both[2] = {{socket, POLLIN, 0}, {target, POLLIN, 0}};
    if (::poll(both, 2, 50) < 0) break;
    if (both[0].revents != 0 && !move_some(socket, target)) break;
    if (both[1].revents != 0 && !move_some(target, socket)) break;
  }
  ::close(target);
  ::close(socket);
}

}  // namespace tierpack::support

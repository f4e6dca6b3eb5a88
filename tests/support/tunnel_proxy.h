// An HTTP proxy on 127.0.0.1 that only builds tunnels (CONNECT), whatever host is asked for, to one port of this machine.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tierpack::support {

class TunnelProxy {
 public:
  // Tunnels lead to 127.0.0.1:`to_port`; with `refuse`, every request is answered with 403.
  explicit TunnelProxy(int to_port, bool refuse = false);
  ~TunnelProxy();
  TunnelProxy(const TunnelProxy&) = delete;
  TunnelProxy& operator=(const TunnelProxy&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  // The heads of the requests, as they arrived.
  std::vector<std::string> requests() const;

 private:
  void accept_loop();
  void serve(int socket);

  const int to_port_;
  const bool refuse_;
  int port_ = 0;
  int listener_ = -1;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::vector<std::thread> workers_;
  std::thread acceptor_;
};

}  // namespace tierpack::support

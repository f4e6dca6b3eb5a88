// What a server is told once: where it listens, whom it believes, and every limit it keeps.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/text/sampler.h"

namespace tierpack::server {

// Limits of the HTTP layer. Times are upper bounds for one step.
struct HttpLimits {
  uint64_t max_request_bytes = uint64_t{16} << 20;  // of one body
  uint32_t max_header_bytes = 16 << 10;
  uint64_t max_backlog_bytes = uint64_t{8} << 20;  // of a stream whose client does not read
  size_t max_connections = 256;
  std::chrono::milliseconds idle{75'000};       // between two requests
  std::chrono::milliseconds head{15'000};       // from a request's first byte to the end of its head
  std::chrono::milliseconds body{30'000};       // plus a second for each 64 KiB
  std::chrono::milliseconds write{30'000};      // plus a second for each 16 KiB
  std::chrono::milliseconds watch{100};         // how often a waiting client's presence is checked
  std::chrono::milliseconds heartbeat{10'000};  // of a stream with nothing to say
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;                      // 0 = any free one
  std::string model;                         // name that requests use
  std::vector<std::string> api_keys;         // empty = everyone
  std::vector<std::string> allowed_hosts;    // Host names besides the usual ones
  std::vector<std::string> allowed_origins;  // browser origins besides our own; "*" = all
  size_t queue = 16;                         // requests that may wait
  std::chrono::milliseconds grace{10'000};   // for the running answer at shutdown
  text::SamplerOptions sampling;             // for what a request leaves open
  HttpLimits http;
};

}  // namespace tierpack::server

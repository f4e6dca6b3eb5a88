// How to reach a source: the options that every command with a network shares, declared once.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tierpack::fetch {

struct NetworkOptions {
  std::string endpoint;
  std::vector<std::string> mirrors;
  std::string connections = "auto";
  std::string limit_rate;
  std::string range_size;
  double stall_timeout_s = 30;
  double connect_timeout_s = 15;
  int retries = 8;
  double retry_wait_s = 1;
  std::string ca_file;
  bool ipv4 = false;
  bool ipv6 = false;
  std::string token_file;
  bool send_token = false;
  bool allow_private = false;
  bool insecure = false;
};

// Declares them in two groups of help, which may be the command itself.
void add_network_options(CLI::App& network, CLI::App& trust, NetworkOptions& options);

}  // namespace tierpack::fetch

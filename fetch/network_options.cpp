#include "fetch/network_options.h"

#include <CLI/CLI.hpp>

namespace tierpack::fetch {

void add_network_options(CLI::App& network, CLI::App& trust, NetworkOptions& o) {
  network.add_option("--endpoint", o.endpoint, "Base URL of the hub (default: HF_ENDPOINT or the hub's own)");
  network.add_option("--mirror", o.mirrors, "Another place with the same files: a base URL, hf:ORG/NAME or ms:ORG/NAME; repeatable")
      ->allow_extra_args(false);
  network.add_option("--connections", o.connections, "Connections over all files: a number, or auto")->capture_default_str();
  network.add_option("--limit-rate", o.limit_rate, "Bytes per second over all connections, such as 20M");
  network.add_option("--range-size", o.range_size, "Bytes asked for in one request (default: by file size)");
  network.add_option("--stall-timeout", o.stall_timeout_s, "Seconds with hardly a byte before a connection is given up")
      ->check(CLI::Range(1.0, 86400.0))->capture_default_str();
  network.add_option("--connect-timeout", o.connect_timeout_s, "Seconds to wait for a connection")
      ->check(CLI::Range(0.1, 3600.0))->capture_default_str();
  network.add_option("--retries", o.retries, "Failures in a row before a source is given up")
      ->check(CLI::Range(0, 1000))->capture_default_str();
  network.add_option("--retry-wait", o.retry_wait_s, "Longest wait in seconds after the first failure; doubles with each")
      ->check(CLI::Range(0.001, 3600.0))->capture_default_str();
  network.add_option("--cacert", o.ca_file, "Certificates to trust (default: SSL_CERT_FILE or the system's)")->check(CLI::ExistingFile);
  network.add_flag("-4,--ipv4", o.ipv4, "IPv4 only");
  network.add_flag("-6,--ipv6", o.ipv6, "IPv6 only");
  trust.add_option("--token-file", o.token_file, "File with an access token for the endpoint (default: HF_TOKEN for the hub itself)")
      ->check(CLI::ExistingFile);
  trust.add_flag("--send-token-to-endpoint", o.send_token, "Send HF_TOKEN also to an endpoint other than the hub itself");
  trust.add_flag("--allow-private-redirects", o.allow_private, "Let redirects lead to private addresses");
  trust.add_flag("--insecure", o.insecure, "Do not verify certificates");
}

}  // namespace tierpack::fetch

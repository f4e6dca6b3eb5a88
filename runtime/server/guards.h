// Who may talk to the server: the Host header (DNS rebinding), the Origin header (other web sites in the user's
// browser) and the API key. Pure decisions on strings.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"

namespace tierpack::server {

// "[::1]:8080" -> "::1", "LocalHost:80" -> "localhost"; nullopt if it is not a host with an optional port.
std::optional<std::string> host_name(std::string_view host_header);

class HostGuard {
 public:
  // `bound` is what the server listens on. Addresses cannot be rebound by a DNS server: a server that listens on every
  // interface accepts them all, one on loopback only the loopback ones. Names are accepted if they are localhost, the
  // bound name or in `allowed`.
  HostGuard(std::string_view bound, const std::vector<std::string>& allowed);
  bool accepts(std::string_view host_header) const;
  // Whether this machine alone can reach `host`.
  static bool is_local(std::string_view host);

 private:
  std::vector<std::string> names_;
  bool any_address_ = false;
};

class OriginGuard {
 public:
  explicit OriginGuard(std::vector<std::string> allowed) : allowed_(std::move(allowed)) {}
  // A page may call the server if it was served by it (its origin is http://HOST) or is allowed by name.
  bool accepts(std::string_view origin, std::string_view host_header) const;
  bool is_cross_origin(std::string_view origin, std::string_view host_header) const;

 private:
  std::vector<std::string> allowed_;
};

class KeyGuard {
 public:
  explicit KeyGuard(const std::vector<std::string>& keys);
  bool open() const { return digests_.empty(); }
  // `authorization` is the header's value, "Bearer KEY". Takes the same time whatever the key.
  bool accepts(std::string_view authorization) const;

 private:
  std::vector<Sha256Digest> digests_;
};

}  // namespace tierpack::server

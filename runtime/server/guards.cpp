#include "runtime/server/guards.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>

namespace tierpack::server {

namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool is_address(const std::string& host) {
  unsigned char buffer[16];
  return inet_pton(AF_INET, host.c_str(), buffer) == 1 || inet_pton(AF_INET6, host.c_str(), buffer) == 1;
}

bool is_loopback(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace

std::optional<std::string> host_name(std::string_view header) {
  std::string_view host = header;
  std::string_view port;
  if (host.starts_with('[')) {
    const size_t close = host.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    port = host.substr(close + 1);
    host = host.substr(1, close - 1);
    if (!port.empty()) {
      if (!port.starts_with(':')) return std::nullopt;
      port.remove_prefix(1);
    }
  } else if (const size_t colon = host.find(':'); colon != std::string_view::npos) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (host.empty() || port.size() > 5 || !std::all_of(port.begin(), port.end(), is_digit)) return std::nullopt;
  if (host.ends_with('.')) host.remove_suffix(1);
  return lower(host);
}

HostGuard::HostGuard(std::string_view bound, const std::vector<std::string>& allowed) : names_{"localhost"} {
  const std::string own = lower(bound);
  names_.push_back(own);
  any_address_ = !is_local(own);
  for (const std::string& name : allowed) names_.push_back(lower(name));
}

bool HostGuard::is_local(std::string_view host) {
  const std::string name = lower(host);
  return name == "localhost" || is_loopback(name);
}

bool HostGuard::accepts(std::string_view header) const {
  const std::optional<std::string> host = host_name(header);
  if (!host) return false;
  if (std::find(names_.begin(), names_.end(), *host) != names_.end()) return true;
  return any_address_ ? is_address(*host) : is_loopback(*host);
}

bool OriginGuard::is_cross_origin(std::string_view origin, std::string_view host_header) const {
  return lower(origin) != "http://" + lower(host_header) && lower(origin) != "https://" + lower(host_header);
}

bool OriginGuard::accepts(std::string_view origin, std::string_view host_header) const {
  if (!is_cross_origin(origin, host_header)) return true;
  return std::any_of(allowed_.begin(), allowed_.end(),
                     [&](const std::string& one) { return one == "*" || lower(one) == lower(origin); });
}

KeyGuard::KeyGuard(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) digests_.push_back(Sha256::of(as_bytes(key)));
}

bool KeyGuard::accepts(std::string_view authorization) const {
  if (open()) return true;
  constexpr std::string_view kScheme = "bearer ";
  std::string_view key;
  if (authorization.size() >= kScheme.size() && lower(authorization.substr(0, kScheme.size())) == kScheme) {
    key = authorization.substr(kScheme.size());
    while (key.starts_with(' ')) key.remove_prefix(1);
  }
  // Digests have one length and are compared to the end, all of them.
  const Sha256Digest given = Sha256::of(as_bytes(key));
  unsigned matches = 0;
  for (const Sha256Digest& digest : digests_) {
    unsigned difference = 0;
    for (size_t i = 0; i < digest.bytes.size(); ++i) {
      difference |= static_cast<unsigned>(digest.bytes[i] ^ given.bytes[i]);
    }
    matches |= static_cast<unsigned>(difference == 0);
  }
  return matches != 0 && !key.empty();
}

}  // namespace tierpack::server

// Which part of the network an address belongs to, and whether a redirect may lead there. A server on the Internet must
// not be able to point us at machines that only we can reach.
#pragma once

#include <optional>
#include <string>
#include <string_view>

struct sockaddr;

namespace tierpack::fetch {

enum class AddressClass {
  kPublic,
  kPrivate,    // RFC 1918, carrier-grade NAT, unique local IPv6, benchmarking and other special ranges
  kLoopback,   // 127/8, ::1 and 0/8, which Linux connects to itself
  kLinkLocal,  // 169.254/16 (cloud metadata lives there), fe80::/10
  kReserved,   // multicast, broadcast, future use: never a server
};

const char* address_class_name(AddressClass kind);
AddressClass classify_address(const sockaddr* address);
// For literal addresses ("10.0.0.1", "[fe80::1]"); nullopt for a name.
std::optional<AddressClass> classify_literal(std::string_view host);

// A redirect that began at a server of class `from` may go to a public address or stay within its own class, except
// that link-local and reserved addresses are never followed into.
bool redirect_may_reach(AddressClass from, AddressClass to);

}  // namespace tierpack::fetch

#include "fetch/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>

namespace tierpack::fetch {

namespace {

struct Block {
  uint32_t network;
  int bits;
  AddressClass kind;
};

constexpr uint32_t ip(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return a << 24 | b << 16 | c << 8 | d; }

// IANA's special-purpose registry, as far as it is not public.
constexpr Block kBlocks[] = {
    {ip(0, 0, 0, 0), 8, AddressClass::kLoopback},      {ip(10, 0, 0, 0), 8, AddressClass::kPrivate},
    {ip(100, 64, 0, 0), 10, AddressClass::kPrivate},   {ip(127, 0, 0, 0), 8, AddressClass::kLoopback},
    {ip(169, 254, 0, 0), 16, AddressClass::kLinkLocal}, {ip(172, 16, 0, 0), 12, AddressClass::kPrivate},
    {ip(192, 0, 0, 0), 24, AddressClass::kPrivate},    {ip(192, 168, 0, 0), 16, AddressClass::kPrivate},
    {ip(198, 18, 0, 0), 15, AddressClass::kPrivate},   {ip(224, 0, 0, 0), 4, AddressClass::kReserved},
    {ip(240, 0, 0, 0), 4, AddressClass::kReserved},
};

AddressClass classify_v4(uint32_t address) {
  for (const Block& block : kBlocks) {
    if ((address ^ block.network) >> (32 - block.bits) == 0) return block.kind;
  }
  return AddressClass::kPublic;
}

AddressClass classify_v6(const uint8_t (&a)[16]) {
  const auto embedded = [&](int at) { return ip(a[at], a[at + 1], a[at + 2], a[at + 3]); };
  static constexpr uint8_t kZeros[12] = {};
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  static constexpr uint8_t kNat64[12] = {0x00, 0x64, 0xff, 0x9b};
  if (std::memcmp(a, kZeros, 12) == 0 && embedded(12) <= 1) return AddressClass::kLoopback;  // :: and ::1
  if (std::memcmp(a, kZeros, 12) == 0 || std::memcmp(a, kMapped, 12) == 0 || std::memcmp(a, kNat64, 12) == 0) {
    return classify_v4(embedded(12));
  }
  if (a[0] == 0x20 && a[1] == 0x02) return classify_v4(embedded(2));  // 6to4
  if ((a[0] & 0xfe) == 0xfc) return AddressClass::kPrivate;
  if (a[0] == 0xfe && (a[1] & 0xc0) == 0x80) return AddressClass::kLinkLocal;
  if (a[0] == 0xfe && (a[1] & 0xc0) == 0xc0) return AddressClass::kPrivate;  // site-local, deprecated
  if (a[0] == 0xff) return AddressClass::kReserved;
  return AddressClass::kPublic;
}

}  // namespace

const char* address_class_name(AddressClass kind) {
  switch (kind) {
    case AddressClass::kPublic: return "public";
    case AddressClass::kPrivate: return "private";
    case AddressClass::kLoopback: return "loopback";
    case AddressClass::kLinkLocal: return "link-local";
    case AddressClass::kReserved: return "reserved";
  }
  return "reserved";
}

AddressClass classify_address(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    return classify_v4(ntohl(v4.sin_addr.s_addr));
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof v6);
    return classify_v6(v6.sin6_addr.s6_addr);
  }
  return AddressClass::kReserved;
}

std::optional<AddressClass> classify_literal(std::string_view host) {
  std::string text(host);
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  if (const size_t zone = text.find('%'); zone != std::string::npos) text.resize(zone);
  in_addr v4{};
  if (::inet_pton(AF_INET, text.c_str(), &v4) == 1) return classify_v4(ntohl(v4.s_addr));
  in6_addr v6{};
  if (::inet_pton(AF_INET6, text.c_str(), &v6) == 1) return classify_v6(v6.s6_addr);
  if (text == "localhost") return AddressClass::kLoopback;
  return std::nullopt;
}

bool redirect_may_reach(AddressClass from, AddressClass to) {
  if (to == AddressClass::kPublic) return true;
  if (to == AddressClass::kLinkLocal || to == AddressClass::kReserved) return false;
  return from == to;
}

}  // namespace tierpack::fetch

#include "fetch/credentials.h"

#include <algorithm>

#include "base/error.h"

namespace tierpack::fetch {

void Credentials::add(const Origin& origin, std::string token, std::string cookie) {
  if (token.empty()) return;
  for (const char c : token) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) {
      fail(ErrorKind::kUsage, "the token for {} contains white space or control characters", origin.text());
    }
  }
  // A newer token for the same origin replaces the older one.
  std::erase_if(entries_, [&](const Entry& entry) { return entry.origin == origin; });
  entries_.push_back({origin, std::move(token), std::move(cookie)});
}

std::vector<std::string> Credentials::headers_for(const Url& url) const {
  for (const Entry& entry : entries_) {
    if (!(entry.origin == url.origin())) continue;
    std::vector<std::string> out{"Authorization: Bearer " + entry.token};
    if (!entry.cookie.empty()) out.push_back("Cookie: " + entry.cookie + "=" + entry.token);
    return out;
  }
  return {};
}

bool Credentials::has(const Origin& origin) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.origin == origin; });
}

std::string Credentials::redact(std::string text) const {
  for (const Entry& entry : entries_) {
    for (size_t at = text.find(entry.token); at != std::string::npos; at = text.find(entry.token, at)) {
      text.replace(at, entry.token.size(), "***");
      at += 3;
    }
  }
  return text;
}

}  // namespace tierpack::fetch

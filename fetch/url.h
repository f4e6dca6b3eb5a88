// URLs as values, and what decides who may see a credential: the origin (scheme, host and port, compared exactly).
//
// Parsing is libcurl's own, so that what is checked here is what is connected to ("http://127.1/" is 127.0.0.1 for both).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tierpack::fetch {

struct Origin {
  std::string scheme;  // lower case
  std::string host;    // lower case, IPv6 in brackets
  uint16_t port = 0;   // the scheme's default if the URL names none
  bool operator==(const Origin&) const = default;
  std::string text() const;  // "https://host" or "https://host:8443"
};

// An absolute http, https or file URL without fragment.
class Url {
 public:
  // nullopt for anything that is not such a URL.
  static std::optional<Url> parse(std::string_view text);
  // As parse; throws kUsage naming `what` (an option or argument).
  static Url require(std::string_view text, const std::string& what);

  // A Location or Link value seen from this URL; nullopt if it is not a URL at all. The result may have any scheme
  // that Url holds; whether it may be followed is decided by redirect_rules.h.
  std::optional<Url> resolve(std::string_view reference) const;
  // This URL with `suffix` (already encoded) appended to its path, the query dropped.
  Url with_path_suffix(std::string_view suffix) const;

  const std::string& text() const { return text_; }
  const Origin& origin() const { return origin_; }
  const std::string& path() const { return path_; }    // encoded, begins with '/'
  const std::string& query() const { return query_; }  // encoded, without '?'
  bool has_credentials() const { return has_credentials_; }
  bool is_file() const { return origin_.scheme == "file"; }

  // Decoded last path segment; empty for ".../".
  std::string file_name() const;
  // Decoded path.
  std::string decoded_path() const;
  // Value of a query parameter (decoded), if present.
  std::optional<std::string> parameter(std::string_view name) const;
  // For messages and logs: credentials and the query, where signatures live, are left out.
  std::string redacted() const;
  // For files that are kept and passed on: user and password are left out, and so are query parameters whose names say that they are
  // secret (token, key, signature, password and the like).
  std::string without_secrets() const;

 private:
  Url() = default;
  static std::optional<Url> from_handle(void* handle);  // a CURLU
  std::string text_;
  Origin origin_;
  std::string path_;
  std::string query_;
  bool has_credentials_ = false;
};

// How locks name a source: a URL without its secrets, anything else as it is.
std::string recorded_source(const std::string& source);

// RFC 3986: everything but unreserved characters and those in `keep` becomes %XX.
std::string percent_encode(std::string_view text, std::string_view keep = "");
std::string percent_decode(std::string_view text);

// When a signed URL stops working, as seconds since 1970, read from the parameters that object stores use (X-Amz-Date
// with X-Amz-Expires, X-Goog-Date with X-Goog-Expires, Expires, se); nullopt if it carries none.
std::optional<int64_t> signed_until(const Url& url);

}  // namespace tierpack::fetch

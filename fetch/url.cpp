#include "fetch/url.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <memory>

#include "base/error.h"

namespace tierpack::fetch {

namespace {

struct CurlUrlFree {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using CurlUrl = std::unique_ptr<CURLU, CurlUrlFree>;

std::string part(CURLU* url, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, which, &text, flags) != CURLUE_OK || text == nullptr) return {};
  std::string out = text;
  curl_free(text);
  return out;
}

void to_lower(std::string& text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
}

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

std::optional<int64_t> decimal(std::string_view text) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// "20260930T120000Z" or "2026-09-30T12:00:00Z".
std::optional<int64_t> iso_time(const std::string& text) {
  for (const char* format : {"%Y%m%dT%H%M%SZ", "%Y-%m-%dT%H:%M:%SZ"}) {
    std::tm parts{};
    const char* end = ::strptime(text.c_str(), format, &parts);
    if (end != nullptr && *end == '\0') return static_cast<int64_t>(::timegm(&parts));
  }
  return std::nullopt;
}

}  // namespace

std::string Origin::text() const {
  const bool plain = (scheme == "https" && port == 443) || (scheme == "http" && port == 80) || scheme == "file";
  return plain ? scheme + "://" + host : fmt::format("{}://{}:{}", scheme, host, port);
}

std::optional<Url> Url::from_handle(void* handle) {
  auto* const from = static_cast<CURLU*>(handle);
  curl_url_set(from, CURLUPART_FRAGMENT, nullptr, 0);
  Url url;
  Origin& origin = url.origin_;
  origin.scheme = part(from, CURLUPART_SCHEME);
  to_lower(origin.scheme);
  if (origin.scheme != "http" && origin.scheme != "https" && origin.scheme != "file") return std::nullopt;
  origin.host = part(from, CURLUPART_HOST);
  to_lower(origin.host);
  if (origin.host.empty() && origin.scheme != "file") return std::nullopt;
  origin.port = static_cast<uint16_t>(decimal(part(from, CURLUPART_PORT, CURLU_DEFAULT_PORT)).value_or(0));
  url.path_ = part(from, CURLUPART_PATH);
  url.query_ = part(from, CURLUPART_QUERY);
  url.has_credentials_ = !part(from, CURLUPART_USER).empty() || !part(from, CURLUPART_PASSWORD).empty();
  url.text_ = part(from, CURLUPART_URL);
  if (url.text_.empty()) return std::nullopt;
  return url;
}

std::optional<Url> Url::parse(std::string_view text) {
  const CurlUrl handle(curl_url());
  TIERPACK_CHECK(handle != nullptr);
  if (text.find('\0') != std::string_view::npos || text.find("://") == std::string_view::npos) return std::nullopt;
  if (curl_url_set(handle.get(), CURLUPART_URL, std::string(text).c_str(), CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK) {
    return std::nullopt;
  }
  return from_handle(handle.get());
}

Url Url::require(std::string_view text, const std::string& what) {
  auto url = parse(text);
  if (!url) fail(ErrorKind::kUsage, "{}: '{}' is not an http, https or file URL", what, text);
  return *std::move(url);
}

std::optional<Url> Url::resolve(std::string_view reference) const {
  const CurlUrl handle(curl_url());
  TIERPACK_CHECK(handle != nullptr);
  if (reference.empty() || reference.find('\0') != std::string_view::npos) return std::nullopt;
  if (curl_url_set(handle.get(), CURLUPART_URL, text_.c_str(), CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK) {
    return std::nullopt;
  }
  if (curl_url_set(handle.get(), CURLUPART_URL, std::string(reference).c_str(),
                   CURLU_NON_SUPPORT_SCHEME | CURLU_URLENCODE) != CURLUE_OK) {
    return std::nullopt;
  }
  return from_handle(handle.get());
}

Url Url::with_path_suffix(std::string_view suffix) const {
  std::string base = origin_.text() + path_;
  while (!base.empty() && base.back() == '/' && !suffix.empty() && suffix.front() == '/') base.pop_back();
  auto url = parse(base + std::string(suffix));
  if (!url) fail(ErrorKind::kUsage, "'{}{}' is not a URL", base, suffix);
  return *std::move(url);
}

std::string Url::decoded_path() const { return percent_decode(path_); }

std::string Url::file_name() const {
  const size_t slash = path_.rfind('/');
  return percent_decode(slash == std::string::npos ? path_ : std::string_view(path_).substr(slash + 1));
}

std::optional<std::string> Url::parameter(std::string_view name) const {
  std::string_view rest = query_;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t equals = std::min(pair.find('='), pair.size());
    if (percent_decode(pair.substr(0, equals)) != name) continue;
    return percent_decode(pair.substr(std::min(equals + 1, pair.size())));
  }
  return std::nullopt;
}

std::string Url::redacted() const { return origin_.text() + path_ + (query_.empty() ? "" : "?..."); }

std::string Url::without_secrets() const {
  const auto is_secret = [](std::string name) {
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    for (const char* word : {"token", "key", "secret", "passw", "auth", "credential", "signature"}) {
      if (name.find(word) != std::string::npos) return true;
    }
    return name == "sig" || name == "pwd";
  };
  std::string kept;
  std::string_view rest = query_;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (is_secret(percent_decode(pair.substr(0, std::min(pair.find('='), pair.size()))))) continue;
    kept += (kept.empty() ? "?" : "&") + std::string(pair);
  }
  return origin_.text() + path_ + kept;
}

std::string recorded_source(const std::string& source) {
  const std::optional<Url> url = Url::parse(source);
  return url ? url->without_secrets() : source;
}

std::string percent_encode(std::string_view text, std::string_view keep) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const bool unreserved = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                            c == '.' || c == '_' || c == '~';
    if (unreserved || keep.find(c) != std::string_view::npos) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out;
}

std::string percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) && hex_digit(text[i + 2])) {
      out += static_cast<char>(*hex_digit(text[i + 1]) * 16 + *hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::optional<int64_t> signed_until(const Url& url) {
  for (const char* vendor : {"X-Amz-", "X-Goog-"}) {
    const auto date = url.parameter(std::string(vendor) + "Date");
    const auto seconds = url.parameter(std::string(vendor) + "Expires");
    if (!date || !seconds) continue;
    const auto from = iso_time(*date);
    const auto span = decimal(*seconds);
    if (from && span && *span < (int64_t{1} << 40)) return *from + *span;
  }
  if (const auto expires = url.parameter("Expires")) {
    if (const auto at = decimal(*expires)) return at;
  }
  if (const auto se = url.parameter("se")) return iso_time(*se);
  return std::nullopt;
}

}  // namespace tierpack::fetch

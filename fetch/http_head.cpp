#include "fetch/http_head.h"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace tierpack::fetch {

namespace {

constexpr uint64_t kMaxHeadBytes = uint64_t{256} << 10;
constexpr size_t kMaxFields = 512;

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r' || text.back() == '\n')) {
    text.remove_suffix(1);
  }
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool starts_with_no_case(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && lower(text.substr(0, prefix.size())) == prefix;
}

// "HTTP/1.1 206 Partial Content" -> 206.
int parse_status(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return 0;
  const std::string_view digits = trim(line.substr(space)).substr(0, 3);
  const auto status = parse_decimal(digits);
  return status && digits.size() == 3 ? static_cast<int>(*status) : 0;
}

std::optional<std::vector<std::byte>> decode_base64(std::string_view text) {
  std::vector<std::byte> out;
  uint32_t bits = 0;
  int count = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    int v = 0;
    if (c >= 'A' && c <= 'Z') v = c - 'A';
    else if (c >= 'a' && c <= 'z') v = c - 'a' + 26;
    else if (c >= '0' && c <= '9') v = c - '0' + 52;
    else if (c == '+') v = 62;
    else if (c == '/') v = 63;
    else return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(v);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.push_back(static_cast<std::byte>(bits >> count & 0xff));
    }
  }
  return out;
}

}  // namespace

const std::string* ResponseHead::find(std::string_view name) const {
  for (const HeaderField& field : fields) {
    if (field.name == name) return &field.value;
  }
  return nullptr;
}

std::string ResponseHead::value(std::string_view name) const {
  const std::string* found = find(name);
  return found != nullptr ? *found : std::string();
}

size_t ResponseHead::count(std::string_view name) const {
  return static_cast<size_t>(
      std::count_if(fields.begin(), fields.end(), [&](const HeaderField& field) { return field.name == name; }));
}

void HeadCollector::reset() { *this = HeadCollector(); }

HeadCollector::State HeadCollector::line(std::string_view text) {
  bytes_ += text.size();
  if (bytes_ > kMaxHeadBytes) return State::kTooLarge;
  if (complete_) return State::kReading;  // a trailer, whatever it looks like
  if (starts_with_no_case(text, "http/")) {
    head_ = ResponseHead();
    head_.status = parse_status(trim(text));
    return State::kReading;
  }
  if (trim(text).empty()) {
    if (head_.status >= 100 && head_.status < 200) return State::kReading;
    complete_ = true;
    return State::kComplete;
  }
  if (text.front() == ' ' || text.front() == '\t') {  // obsolete folding continues the last value
    if (!head_.fields.empty()) head_.fields.back().value += " " + std::string(trim(text));
    return State::kReading;
  }
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return State::kReading;
  if (head_.fields.size() >= kMaxFields) return State::kTooLarge;
  head_.fields.push_back({lower(trim(text.substr(0, colon))), std::string(trim(text.substr(colon + 1)))});
  return State::kReading;
}

std::optional<uint64_t> parse_decimal(std::string_view text) {
  if (text.empty() || text.size() > 19) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  if (value >> 63 != 0) return std::nullopt;
  return value;
}

std::optional<ContentRange> parse_content_range(std::string_view value) {
  value = trim(value);
  if (!starts_with_no_case(value, "bytes")) return std::nullopt;
  value.remove_prefix(5);
  if (value.empty() || (value.front() != ' ' && value.front() != '\t')) return std::nullopt;
  value = trim(value);
  const size_t slash = value.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string_view range = trim(value.substr(0, slash));
  const std::string_view total = trim(value.substr(slash + 1));
  ContentRange out;
  if (total != "*") {
    out.total = parse_decimal(total);
    if (!out.total) return std::nullopt;
  }
  if (range == "*") {
    out.satisfied = false;
    return out.total ? std::optional(out) : std::nullopt;
  }
  const size_t dash = range.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = parse_decimal(range.substr(0, dash));
  const auto last = parse_decimal(range.substr(dash + 1));
  if (!first || !last || *first > *last || (out.total && *last >= *out.total)) return std::nullopt;
  out.first = *first;
  out.last = *last;
  return out;
}

bool has_conflicting_lengths(const ResponseHead& head) {
  const std::string* length = nullptr;
  for (const HeaderField& field : head.fields) {
    if (field.name != "content-length") continue;
    // "400, 400" is one field with a list; anything that is not one number conflicts with itself.
    if (!parse_decimal(field.value) || (length != nullptr && *length != field.value)) return true;
    length = &field.value;
  }
  return length != nullptr && head.find("transfer-encoding") != nullptr;
}

std::optional<uint64_t> content_length(const ResponseHead& head) {
  if (has_conflicting_lengths(head)) return std::nullopt;
  const std::string* value = head.find("content-length");
  return value != nullptr ? parse_decimal(*value) : std::nullopt;
}

std::optional<std::string> strong_etag(const ResponseHead& head) {
  const std::string* value = head.find("etag");
  if (value == nullptr || head.count("etag") != 1 || value->size() < 3 || value->size() > 1024) return std::nullopt;
  if (value->front() != '"' || value->back() != '"') return std::nullopt;
  for (const char c : std::string_view(*value).substr(1, value->size() - 2)) {
    if (c == '"' || static_cast<unsigned char>(c) < 0x21 || c == 0x7f) return std::nullopt;
  }
  return *value;
}

std::string bare_etag(std::string_view value) {
  value = trim(value);
  if (value.substr(0, 2) == "W/") value.remove_prefix(2);
  if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
  return std::string(value);
}

std::optional<double> server_wait(const ResponseHead& head, int64_t now) {
  if (const std::string* after = head.find("retry-after")) {
    if (const auto seconds = parse_decimal(*after)) return static_cast<double>(*seconds);
    const std::time_t at = curl_getdate(after->c_str(), nullptr);
    // Our clock may be wrong; the server's two times agree with each other.
    const std::string* date = head.find("date");
    const std::time_t sent = date != nullptr ? curl_getdate(date->c_str(), nullptr) : -1;
    if (at != -1) return std::max(0.0, static_cast<double>(at - (sent != -1 ? sent : now)));
  }
  return exhausted_limit(head);
}

std::optional<double> exhausted_limit(const ResponseHead& head) {
  // RateLimit: "resolvers";r=0;t=55
  if (const std::string* limit = head.find("ratelimit")) {
    std::optional<uint64_t> remaining;
    std::optional<uint64_t> reset;
    std::string_view rest = *limit;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find_first_of(";,"), rest.size());
      const std::string_view item = trim(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (item.substr(0, 2) == "r=") remaining = parse_decimal(item.substr(2));
      if (item.substr(0, 2) == "t=") reset = parse_decimal(item.substr(2));
    }
    if (remaining && *remaining == 0 && reset) return static_cast<double>(*reset) + 1;
  }
  return std::nullopt;
}

std::optional<std::string> next_link(const ResponseHead& head) {
  for (const HeaderField& field : head.fields) {
    if (field.name != "link") continue;
    std::string_view rest = field.value;
    for (;;) {
      const size_t open = rest.find('<');
      const size_t close = open == std::string_view::npos ? open : rest.find('>', open);
      if (close == std::string_view::npos) break;
      const std::string_view target = rest.substr(open + 1, close - open - 1);
      const size_t next = std::min(rest.find('<', close), rest.size());
      const std::string parameters = lower(rest.substr(close + 1, next - close - 1));
      if (parameters.find("rel=\"next\"") != std::string::npos || parameters.find("rel=next") != std::string::npos) {
        return std::string(target);
      }
      rest.remove_prefix(next);
    }
  }
  return std::nullopt;
}

std::optional<Sha256Digest> representation_sha256(const ResponseHead& head) {
  for (const char* name : {"repr-digest", "digest"}) {
    const std::string* value = head.find(name);
    if (value == nullptr) continue;
    const size_t at = lower(*value).find("sha-256=");
    if (at == std::string::npos) continue;
    std::string_view text = std::string_view(*value).substr(at + 8);
    text = trim(text.substr(0, text.find_first_of(",;")));
    if (text.size() >= 2 && text.front() == ':' && text.back() == ':') text = text.substr(1, text.size() - 2);
    const auto bytes = decode_base64(text);
    if (!bytes || bytes->size() != 32) continue;
    Sha256Digest digest;
    std::copy(bytes->begin(), bytes->end(), digest.bytes.begin());
    return digest;
  }
  return std::nullopt;
}

}  // namespace tierpack::fetch

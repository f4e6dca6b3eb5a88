// The head of an HTTP response as data, and the header fields that fetch understands, parsed strictly: a value that is
// not exactly what the RFC allows is "not there" (nullopt), never a guess.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"

namespace tierpack::fetch {

struct HeaderField {
  std::string name;  // lower case
  std::string value;  // without surrounding white space
};

struct ResponseHead {
  int status = 0;
  std::vector<HeaderField> fields;

  // First value of a field, nullptr if absent. `name` in lower case.
  const std::string* find(std::string_view name) const;
  std::string value(std::string_view name) const;  // "" if absent
  size_t count(std::string_view name) const;
};

// Assembles heads from the lines that libcurl hands over: interim (1xx) heads are skipped, trailers ignored.
class HeadCollector {
 public:
  enum class State { kReading, kComplete, kTooLarge };
  State line(std::string_view text);
  const ResponseHead& head() const { return head_; }
  // The empty line after a head that is not interim has been seen.
  bool is_complete() const { return complete_; }
  void reset();

 private:
  ResponseHead head_;
  uint64_t bytes_ = 0;
  bool complete_ = false;
};

// "bytes 0-99/1000", "bytes 0-99/*", "bytes */1000".
struct ContentRange {
  bool satisfied = true;  // false for the "*/N" form; first and last are then 0
  uint64_t first = 0;
  uint64_t last = 0;  // inclusive
  std::optional<uint64_t> total;
};
// nullopt unless unit, digits and order are right and everything fits in 63 bits.
std::optional<ContentRange> parse_content_range(std::string_view value);

// Decimal digits only, below 2^63.
std::optional<uint64_t> parse_decimal(std::string_view text);

// Content-Length if there is exactly one distinct, valid value.
std::optional<uint64_t> content_length(const ResponseHead& head);
bool has_conflicting_lengths(const ResponseHead& head);  // two different values, or with Transfer-Encoding

// An ETag usable as If-Range: quoted, not weak, no line breaks.
std::optional<std::string> strong_etag(const ResponseHead& head);
// ETag text without W/ and quotes ("" if absent): hub ids compare equal in this form.
std::string bare_etag(std::string_view value);

// Seconds to wait that the server asked for: Retry-After in seconds or as a date (relative to the answer's own Date, else
// to `now`, seconds since 1970), or the RateLimit field when it says that nothing remains. nullopt if it says nothing.
std::optional<double> server_wait(const ResponseHead& head, int64_t now);

// Seconds until a RateLimit field that says nothing remains says otherwise; on any answer, refusals or not.
std::optional<double> exhausted_limit(const ResponseHead& head);

// The target of Link: <...>; rel="next".
std::optional<std::string> next_link(const ResponseHead& head);

// Repr-Digest / Digest with sha-256, which cover the whole object whatever range was asked for.
std::optional<Sha256Digest> representation_sha256(const ResponseHead& head);

}  // namespace tierpack::fetch

// What one response to one payload request permits. This is the core of the downloader: a pure function from what was
// asked, what is known of the file, and the response's head, to what may be done with the body. A byte is accepted only
// when the response proves where it belongs; everything else is a reason to discard the body unread.
//
// The rows are those of docs/howto-fetch.md, "What a response may do". RFC 9110 sections 13-15, RFC 9112 section 6.3.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fetch/http_head.h"

namespace tierpack::fetch {

struct PayloadRequest {
  uint64_t first = 0;
  std::optional<uint64_t> last;   // inclusive; nullopt: to the end
  std::optional<uint64_t> total;  // size of the file from the listing or an earlier proof
  bool on_hub = true;             // the answering hop is the hub itself, not a delivery network it redirected to
  // Strong validators that earlier accepted bytes of this file came with on this kind of hop.
  std::optional<std::string> etag;
  std::optional<std::string> last_modified;
  bool sent_if_range = false;
};

enum class Verdict {
  kWrite,        // body bytes belong at `offset`
  kAtEnd,        // the file ends where the request begins; `total` is its size
  kRedirect,     // follow Location
  kRangeBroken,  // the server does not answer ranges as it must: discard, try elsewhere, else one stream from 0
  kNoRange,      // the server sent the whole file to a request for its middle: discard, else one stream from 0
  kWrongObject,  // not this file: discard
  kEncoded,      // compressed on the way: discard, ask again for the plain bytes
  kChanged,      // another size than promised: not the file that was begun
  kOtherVersion,  // the validator changed: what was received before must not be joined with this
  kProbe,        // ask for one byte, then decide
  kBackOff,      // the server asks for time (429, 503, ...)
  kExpired,      // a signed URL ran out: resolve again
  kDenied,       // the hub says no: no retry
  kGone,         // permanent for this source
};

struct Decision {
  Verdict verdict = Verdict::kGone;
  int row = 0;                     // of the table, for tests and -v
  uint64_t offset = 0;             // kWrite: where the body begins
  std::optional<uint64_t> length;  // kWrite: how many bytes may be written; nullopt: until the end of the body
  std::optional<uint64_t> total;   // size of the whole file, when the response proves one
  bool whole_body = false;         // kWrite: the body is the whole file although less was asked for
  std::string reason;              // for people; never read by code
};

Decision judge_response(const PayloadRequest& request, const ResponseHead& head);

}  // namespace tierpack::fetch

#include "fetch/response_rules.h"

#include <fmt/core.h>

#include <cctype>

#include "base/printable.h"
#include "fetch/redirect_rules.h"

namespace tierpack::fetch {

namespace {

Decision discard(Verdict verdict, int row, std::string reason) {
  Decision decision;
  decision.verdict = verdict;
  decision.row = row;
  decision.reason = std::move(reason);
  return decision;
}

Decision accept(int row, uint64_t offset, std::optional<uint64_t> length, std::optional<uint64_t> total) {
  Decision decision;
  decision.verdict = Verdict::kWrite;
  decision.row = row;
  decision.offset = offset;
  decision.length = length;
  decision.total = total;
  return decision;
}

Decision at_end(int row, uint64_t total) {
  Decision decision = discard(Verdict::kAtEnd, row, "the file ends here");
  decision.total = total;
  return decision;
}

bool contains_no_case(std::string text, std::string_view what) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text.find(what) != std::string::npos;
}

bool is_plain_encoding(const ResponseHead& head) {
  for (const HeaderField& field : head.fields) {
    if (field.name == "content-encoding" && field.value != "identity" && !field.value.empty()) return false;
  }
  return true;
}

std::string asked(const PayloadRequest& request) {
  return request.last ? fmt::format("bytes {}-{}", request.first, *request.last) : fmt::format("bytes {}-", request.first);
}

// The validator of accepted bytes differs from this response's.
bool validator_differs(const PayloadRequest& request, const ResponseHead& head) {
  const auto etag = strong_etag(head);
  if (request.etag && etag) return *request.etag != *etag;
  if (request.etag || etag) return false;  // one without the other proves nothing
  const std::string* modified = head.find("last-modified");
  return request.last_modified && modified != nullptr && *request.last_modified != *modified;
}

Decision judge_partial(const PayloadRequest& request, const ResponseHead& head) {
  if (contains_no_case(head.value("content-type"), "multipart/byteranges")) {
    return discard(Verdict::kRangeBroken, 5, "answers one range with multipart/byteranges");
  }
  if (head.count("content-range") == 0) return discard(Verdict::kRangeBroken, 4, "answers 206 without Content-Range");
  if (head.count("content-range") > 1) return discard(Verdict::kRangeBroken, 3, "sends more than one Content-Range");
  const std::string text = printable(head.value("content-range"), 80);
  const auto range = parse_content_range(head.value("content-range"));
  if (!range || !range->satisfied) {
    return discard(Verdict::kRangeBroken, 3, fmt::format("sends an invalid Content-Range '{}'", text));
  }
  if (request.total && range->total && *request.total != *range->total) {
    return discard(Verdict::kChanged, 6,
                   fmt::format("says the file has {} bytes, expected {}", *range->total, *request.total));
  }
  if (range->first != request.first) {
    return discard(Verdict::kRangeBroken, 2, fmt::format("sends '{}' to a request for {}", text, asked(request)));
  }
  const uint64_t limit = request.last.value_or(UINT64_MAX);
  if (range->last > limit || (request.total && range->last >= *request.total)) {
    return discard(Verdict::kRangeBroken, 3, fmt::format("sends '{}' to a request for {}", text, asked(request)));
  }
  const uint64_t length = range->last - range->first + 1;
  const auto promised = content_length(head);
  if (promised && *promised != length) {
    return discard(Verdict::kRangeBroken, 7,
                   fmt::format("sends Content-Length {} with '{}' ({} bytes)", *promised, text, length));
  }
  if (validator_differs(request, head)) {
    return discard(Verdict::kOtherVersion, 6, "sends another ETag or Last-Modified than for the bytes before");
  }
  return accept(1, range->first, length, range->total ? range->total : request.total);
}

Decision judge_whole(const PayloadRequest& request, const ResponseHead& head) {
  const auto promised = content_length(head);
  if (head.count("content-range") == 1) {
    // A tail under status 200 is believed only when its length proves that it cannot be the whole file.
    const auto range = parse_content_range(head.value("content-range"));
    if (range && range->satisfied && promised && range->first == request.first) {
      const uint64_t length = range->last - range->first + 1;
      const bool total_fits = !request.total || !range->total || *request.total == *range->total;
      const auto total = range->total ? range->total : request.total;
      if (*promised == length && total && length != *total && range->last < *total && total_fits &&
          (!request.last || range->last <= *request.last)) {
        return accept(9, range->first, length, total);
      }
    }
    if (!(promised && request.total && *promised == *request.total)) {
      return discard(Verdict::kRangeBroken, 9,
                     fmt::format("sends 200 with Content-Range '{}' to a request for {}",
                                 printable(head.value("content-range"), 80), asked(request)));
    }
  }
  if (promised && request.total && *promised != *request.total) {
    return discard(Verdict::kWrongObject, 11,
                   fmt::format("sends {} bytes{} where the file has {}", *promised,
                               contains_no_case(head.value("content-type"), "text/html") ? " of HTML" : "",
                               *request.total));
  }
  if (!promised && request.total && contains_no_case(head.value("content-type"), "text/html")) {
    return discard(Verdict::kWrongObject, 11, "sends an HTML page of unknown length instead of the file");
  }
  if (validator_differs(request, head)) {
    return discard(Verdict::kOtherVersion, request.sent_if_range ? 14 : 6,
                   "sends the whole file with another ETag or Last-Modified than before");
  }
  if (request.first > 0) {
    return discard(Verdict::kNoRange, 8, fmt::format("ignores the range and sends the whole file to a request for {}",
                                                     asked(request)));
  }
  const auto total = request.total ? request.total : promised;
  if (total && *total == 0) return at_end(10, 0);
  Decision decision = accept(total ? 10 : 23, 0, total, total);
  decision.whole_body = request.last && (!total || *request.last + 1 < *total);
  return decision;
}

Decision judge_unsatisfied(const PayloadRequest& request, const ResponseHead& head) {
  const auto range = parse_content_range(head.value("content-range"));
  if (!range || range->satisfied || head.count("content-range") != 1) {
    return discard(Verdict::kProbe, 13, fmt::format("answers 416 without a size to a request for {}", asked(request)));
  }
  if (!request.total && *range->total == request.first) return at_end(12, request.first);
  if (request.total && *range->total != *request.total) {
    return discard(Verdict::kChanged, 12,
                   fmt::format("says the file has {} bytes, expected {}", *range->total, *request.total));
  }
  return discard(Verdict::kBackOff, 12, fmt::format("refuses {} of a file of {} bytes", asked(request), *range->total));
}

}  // namespace

Decision judge_response(const PayloadRequest& request, const ResponseHead& head) {
  const int status = head.status;
  if (is_redirect(status)) return discard(Verdict::kRedirect, 15, fmt::format("redirects ({})", status));
  switch (status) {
    case 200:
    case 206:
      if (has_conflicting_lengths(head)) {
        return discard(Verdict::kRangeBroken, 24, "sends contradictory message lengths");
      }
      if (!is_plain_encoding(head)) {
        return discard(Verdict::kEncoded, 25,
                       fmt::format("sends Content-Encoding '{}'", printable(head.value("content-encoding"), 40)));
      }
      return status == 206 ? judge_partial(request, head) : judge_whole(request, head);
    case 412: return discard(Verdict::kOtherVersion, 14, "says the file changed (412)");
    case 416: return judge_unsatisfied(request, head);
    case 401:
    case 403:
      return request.on_hub ? discard(Verdict::kDenied, 17, fmt::format("denies access ({})", status))
                            : discard(Verdict::kExpired, 18, fmt::format("no longer accepts the signed URL ({})", status));
    case 400:
    case 410:
      if (!request.on_hub) {
        return discard(Verdict::kExpired, 18, fmt::format("no longer accepts the signed URL ({})", status));
      }
      break;
    case 408:
    case 425:
    case 429: return discard(Verdict::kBackOff, 19, fmt::format("answers {}", status));
    default: break;
  }
  if (status >= 500) return discard(Verdict::kBackOff, 19, fmt::format("answers {}", status));
  if (status < 400) return discard(Verdict::kWrongObject, 16, fmt::format("answers {} to a request for a file", status));
  return discard(Verdict::kGone, 20, fmt::format("answers {}", status));
}

}  // namespace tierpack::fetch

#include "base/printable.h"
#include "fetch/range_transfer.h"

#include <algorithm>
#include <ctime>


namespace tierpack::fetch {

namespace {

// Redirect texts are read to keep the connection, but not for ever.
constexpr uint64_t kMaxIgnoredBytes = uint64_t{64} << 10;
// A signed URL with less life than this is not used for a further range.
constexpr int64_t kExpiryMarginSeconds = 60;

bool is_sha256_hex(std::string_view text) {
  std::array<std::byte, 32> bytes;
  return from_hex(text, bytes);
}

}  // namespace

void RangeTransfer::begin(FileDownload& file, size_t source, Extent range, bool open_ended, bool probe) {
  file_ = &file;
  source_index_ = source;
  probe_ = probe;
  abandoned_ = false;
  paused_ = false;
  first_ = range.begin;
  asked_end_ = open_ended ? kOpen : probe ? range.begin + 1 : range.end;
  at_ = range.begin;
  end_ = probe ? range.begin : asked_end_;  // a probe brings nothing
  received_ = 0;
  local_error_ = nullptr;
  refusal_.clear();

  Source& from = file.sources[source];
  if (from.located) {
    const auto until = signed_until(from.located->url);
    if (until && *until - std::time(nullptr) < kExpiryMarginSeconds) from.located.reset();
  }
  // Until it is known where the file really is, one request finds out for all.
  resolver_ = !from.located;
  if (resolver_) from.resolving = true;
  prepare(from.located ? *from.located : first_hop(from.url));
}

bool RangeTransfer::was_crumb() const {
  constexpr uint64_t kCrumb = 256;
  constexpr uint64_t kMuch = uint64_t{64} << 10;
  return asked_end_ != kOpen && asked_end_ - first_ >= kMuch && decision_.length && *decision_.length < kCrumb;
}

bool RangeTransfer::follow() {
  RedirectDecision next = follow_redirect(exchange_.hop(), head_, options_.http.allow_private_redirects);
  if (!next.next) {
    refusal_ = next.refusal;
    return false;
  }
  prepare(*next.next);
  return true;
}

void RangeTransfer::prepare(const Hop& hop) {
  judged_ = false;
  ignored_bytes_ = 0;
  decision_ = Decision();
  head_ = ResponseHead();
  std::vector<std::string> headers = credentials_.headers_for(hop.url);
  headers.push_back(asked_end_ == kOpen ? fmt::format("Range: bytes={}-", first_)
                                        : fmt::format("Range: bytes={}-{}", first_, asked_end_ - 1));
  const Source& from = source();
  // A validator goes only to the hop that it came from.
  sent_if_range_ = from.is_origin && hop.number == 0 && !file_->remote.validator.empty() && first_ > 0 && !probe_;
  if (sent_if_range_) headers.push_back("If-Range: " + file_->remote.validator);
  if (from.ask_untransformed) headers.push_back("Cache-Control: no-transform");
  exchange_.prepare(hop, headers, *this);
}

PayloadRequest RangeTransfer::payload_request() const {
  const bool on_hub = exchange_.hop().on_hub;
  const Source& from = source();
  PayloadRequest request;
  request.first = first_;
  if (asked_end_ != kOpen) request.last = asked_end_ - 1;
  request.total = file_->total;
  request.on_hub = on_hub;
  request.sent_if_range = sent_if_range_;
  if (!from.ignore_validators) {
    request.etag = from.etag[on_hub ? 1 : 0];
    request.last_modified = from.last_modified[on_hub ? 1 : 0];
  }
  return request;
}

// What a hub says beside its redirect or answer about commit, size and hash.
std::string RangeTransfer::contradicts_listing(const ResponseHead& head) const {
  if (!options_.has_hub_headers || !exchange_.hop().on_hub || !source().is_origin) return {};
  if (const std::string* commit = head.find("x-repo-commit")) {
    if (!options_.expected_commit.empty() && *commit != options_.expected_commit) {
      return fmt::format("serves commit {} where {} was asked for", printable(*commit, 64), options_.expected_commit);
    }
  }
  if (const std::string* size = head.find("x-linked-size")) {
    const auto bytes = parse_decimal(*size);
    if (bytes && file_->total && *bytes != *file_->total) {
      return fmt::format("now says {} bytes where the listing said {}", *bytes, *file_->total);
    }
  }
  if (const std::string* etag = head.find("x-linked-etag")) {
    const std::string bare = bare_etag(*etag);
    if (is_sha256_hex(bare) && file_->remote.sha256 && bare != file_->remote.sha256->hex()) {
      return fmt::format("now says SHA-256 {} where the listing said {}", bare, file_->remote.sha256->hex());
    }
  }
  return {};
}

bool RangeTransfer::on_head(const ResponseHead& head) {
  head_ = head;
  judged_ = true;
  decision_ = judge_response(payload_request(), head);
  if (std::string problem = contradicts_listing(head); !problem.empty() && head.status < 400) {
    decision_ = Decision();
    decision_.verdict = Verdict::kChanged;
    decision_.row = 6;
    decision_.reason = std::move(problem);
    return false;
  }
  if (decision_.verdict == Verdict::kRedirect) return true;
  Source& from = source();
  from.resolving = false;
  if (decision_.verdict != Verdict::kWrite) return false;
  if (exchange_.hop().number > 0) {
    if (!from.located) from.ready_at = {};  // whatever the hub asked for: it is not asked any more
    from.located = exchange_.hop();
  }
  if (probe_) {
    at_ = end_;
    return false;
  }
  try {
    return accept(head);
  } catch (...) {
    local_error_ = std::current_exception();
    return false;
  }
}

bool RangeTransfer::accept(const ResponseHead& head) {
  Source& from = source();
  const int kind = exchange_.hop().on_hub ? 1 : 0;
  if (const auto etag = strong_etag(head)) from.etag[kind] = etag;
  if (const std::string* modified = head.find("last-modified")) from.last_modified[kind] = *modified;
  if (decision_.total && !file_->total) {
    file_->total = decision_.total;
    file_->part->set_size(*decision_.total);
  }
  if (decision_.whole_body) {
    // The source sends everything from the start. Without a promised hash it alone may fill a part, and only a fresh one.
    from.ranges = false;
    if (!file_->is_promised() && !file_->part->extents().extents().empty()) {
      decision_.verdict = Verdict::kNoRange;
      decision_.reason = "ignores the range and sends the whole file";
      return false;
    }
    file_->one_stream = true;
    for (RangeTransfer* other : file_->transfers) {
      if (other != this) other->abandon();
    }
    end_ = decision_.length ? *decision_.length : kOpen;
  } else {
    // Answers may be joined only if they are of one version (RFC 9110, 15.3.7.3) or a hash decides in the end.
    if (!file_->is_promised() && !strong_etag(head) && head.find("last-modified") == nullptr) {
      from.ranges = false;
      file_->one_stream = true;
      for (RangeTransfer* other : file_->transfers) {
        if (other != this) other->abandon();
      }
      const bool is_all = first_ == 0 && (asked_end_ == kOpen || (file_->total && asked_end_ >= *file_->total));
      if (!is_all) {
        decision_.verdict = Verdict::kNoRange;
        decision_.reason = "does not say which version its ranges are of";
        return false;
      }
    }
    const uint64_t promised = decision_.length ? decision_.offset + *decision_.length : kOpen;
    end_ = std::min(end_, promised);
  }
  at_ = decision_.offset;
  return true;
}

BodyStep RangeTransfer::on_body(Bytes data) {
  if (abandoned_) return BodyStep::kStop;
  if (decision_.verdict == Verdict::kRedirect) {
    ignored_bytes_ += data.size();
    return ignored_bytes_ <= kMaxIgnoredBytes ? BodyStep::kTaken : BodyStep::kStop;
  }
  if (decision_.verdict != Verdict::kWrite) return BodyStep::kStop;
  if (!limit_.has_room()) {
    paused_ = true;
    return BodyStep::kLater;
  }
  limit_.take(data.size());
  const uint64_t room = end_ - at_;
  const Bytes wanted = data.subspan(0, std::min<uint64_t>(room, data.size()));
  try {
    if (!wanted.empty()) {
      file_->part->write(at_, wanted);
      source().wrote.add({at_, at_ + wanted.size()});
    }
  } catch (...) {
    local_error_ = std::current_exception();
    return BodyStep::kStop;
  }
  at_ += wanted.size();
  received_ += wanted.size();
  file_->unsaved_bytes += wanted.size();
  return wanted.size() == data.size() ? BodyStep::kTaken : BodyStep::kStop;
}

}  // namespace tierpack::fetch

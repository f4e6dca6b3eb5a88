// One range of one file from one source, over however many redirects it takes. It writes what the response proves and
// remembers how it ended; what that means is decided by the engine. Internal to the download engine.
#pragma once

#include <exception>
#include <memory>
#include <optional>

#include "fetch/credentials.h"
#include "fetch/file_download.h"
#include "fetch/http_exchange.h"
#include "fetch/rate_limit.h"

namespace tierpack::fetch {

class RangeTransfer final : public ExchangeReceiver {
 public:
  RangeTransfer(const DownloadOptions& options, const Credentials& credentials, RateLimit& limit)
      : options_(options), credentials_(credentials), limit_(limit), exchange_(options.http) {}

  // Asks `source` of `file` for [range.begin, range.end), or to the end of the file if `open_ended`. A probe asks for
  // the first byte of the range and writes nothing.
  void begin(FileDownload& file, size_t source, Extent range, bool open_ended, bool probe);
  // After a redirect: prepares the next hop. False if it may not be followed; refusal() says why.
  bool follow();

  // Gives up everything from `end` on, for another connection to take.
  void shorten(uint64_t end) { end_ = std::min(end_, end); }
  // The body is no longer wanted.
  void abandon() { abandoned_ = true; }

  FileDownload& file() const { return *file_; }
  Source& source() const { return file_->sources[source_index_]; }
  size_t source_index() const { return source_index_; }
  HttpExchange& exchange() { return exchange_; }
  const ResponseHead& head() const { return head_; }
  // The answer was judged (a head arrived); otherwise decision() says nothing.
  bool judged() const { return judged_; }
  const Decision& decision() const { return decision_; }
  bool is_probe() const { return probe_; }
  // This transfer began at the hub's URL, to find out where the file is.
  bool is_resolver() const { return resolver_; }
  // Waiting for the rate limit; resume() goes on.
  bool is_paused() const { return paused_; }
  void resume() {
    paused_ = false;
    exchange_.resume();
  }
  bool is_abandoned() const { return abandoned_; }
  const std::string& refusal() const { return refusal_; }
  std::exception_ptr local_error() const { return local_error_; }
  // What has not arrived yet of what this transfer is to bring. Empty end for an open-ended one: all that follows.
  Extent remaining() const { return {at_, end_}; }
  bool is_open_ended() const { return end_ == kOpen; }
  uint64_t received() const { return received_; }
  // The answer brought next to nothing of what was asked for, and that was all it promised.
  bool was_crumb() const;
  // All bytes that the response and the range promised have been written.
  bool wrote_all() const { return judged_ && decision_.verdict == Verdict::kWrite && at_ >= end_; }

  bool on_head(const ResponseHead& head) override;
  BodyStep on_body(Bytes data) override;

  static constexpr uint64_t kOpen = UINT64_MAX;

 private:
  void prepare(const Hop& hop);
  PayloadRequest payload_request() const;
  std::string contradicts_listing(const ResponseHead& head) const;
  bool accept(const ResponseHead& head);

  const DownloadOptions& options_;
  const Credentials& credentials_;
  RateLimit& limit_;  // shared by all transfers
  HttpExchange exchange_;
  FileDownload* file_ = nullptr;
  size_t source_index_ = 0;
  bool probe_ = false;
  bool abandoned_ = false;
  bool resolver_ = false;
  bool paused_ = false;
  bool sent_if_range_ = false;
  uint64_t first_ = 0;
  uint64_t asked_end_ = 0;  // exclusive, kOpen if to the end
  uint64_t at_ = 0;
  uint64_t end_ = 0;
  uint64_t received_ = 0;
  uint64_t ignored_bytes_ = 0;  // body of a redirect
  bool judged_ = false;
  ResponseHead head_;
  Decision decision_;
  std::string refusal_;
  std::exception_ptr local_error_;
};

}  // namespace tierpack::fetch

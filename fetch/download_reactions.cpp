// What the end of a transfer means for its source and its file: the policy half of the download engine.
#include <ctime>

#include "base/interrupt.h"
#include "base/printable.h"
#include "fetch/download_engine.h"

namespace tierpack::fetch {

namespace {

constexpr int kMaxBrokenRanges = 2;  // then a source is asked for whole bodies only
constexpr int kMaxExpiries = 4;      // refusals of signed URLs in a row
constexpr int kMaxRestarts = 2;      // because a validator changed
constexpr int kMaxChanges = 2;       // then a source that speaks of another file is believed
constexpr int kMaxCrumbs = 8;        // in a row, then a source is asked for whole bodies only

std::string name_of(const RangeTransfer& transfer) {
  return transfer.file().sources[transfer.source_index()].url.origin().text();
}

}  // namespace

void DownloadEngine::note_failure(FileDownload& file, Source& source, ErrorKind kind, const std::string& problem,
                                  std::optional<double> asked_wait) {
  const RetryPolicy& retry = options_.retry;
  // What came since the budget was last whole counts together: a server that cuts every answer short still gets somewhere.
  if (file.progress_of(source) >= retry.progress_bytes) {
    source.failures = 0;
    source.best_at_failure = file.best_bytes;
  }
  ++source.failures;
  // A delivery network that keeps failing may be left for another by asking the hub again.
  if (source.failures >= 2) source.located.reset();
  if (source.failures > retry.attempts) {
    return bury_source(file, source, kind, fmt::format("{}; given up after {} attempts", problem, source.failures));
  }
  if (asked_wait && *asked_wait > retry.longest_server_wait_s) {
    return bury_source(file, source, kind, fmt::format("{} and asks to wait {:.0f} s", problem, *asked_wait));
  }
  const double wait = wait_seconds(retry, source.failures, std::generate_canonical<double, 24>(random_), asked_wait);
  source.ready_at = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait));
  observer_.on_trouble(file.remote, redacted(problem), wait);
}

void DownloadEngine::bury_source(FileDownload& file, Source& source, ErrorKind kind, const std::string& problem) {
  if (source.dead) return;
  source.dead = true;
  source.dead_kind = kind;
  source.dead_reason = problem;
  if (file.sources.size() > 1) observer_.on_trouble(file.remote, redacted(problem) + "; this source is not asked again", 0);
}

void DownloadEngine::fail_if_hopeless(FileDownload& file) {
  if (file.phase != FilePhase::kDownloading || !file.all_sources_dead() || file.has_all_bytes()) return;
  if (file.sources.empty()) {
    return fail_file(file, ErrorKind::kIo, fmt::format("{}: no usable copy was found", file.remote.path));
  }
  std::string reasons;
  for (const Source& source : file.sources) reasons += (reasons.empty() ? "" : "; ") + source.dead_reason;
  fail_file(file, file.sources.front().dead_kind, reasons);
}

void DownloadEngine::on_transfer_end(RangeTransfer& transfer, int curl_code) {
  FileDownload& file = transfer.file();
  Source& source = transfer.source();
  throw_if_interrupted();  // which also ends transfers
  if (transfer.local_error()) std::rethrow_exception(transfer.local_error());
  if (transfer.is_resolver()) source.resolving = false;
  if (file.phase != FilePhase::kDownloading) return;
  note_progress(file);

  const ExchangeResult result = transfer.exchange().finished(curl_code);
  if (transfer.is_abandoned()) {
    // Another transfer has taken over.
  } else if (!transfer.refusal().empty()) {
    bury_source(file, source, ErrorKind::kRefused, transfer.refusal());
  } else if (!transfer.judged() || transfer.decision().verdict == Verdict::kRedirect) {
    if (result.kind == ExchangeResult::Kind::kPermanent) {
      bury_source(file, source, ErrorKind::kNetwork, result.message);
    } else {
      note_failure(file, source, ErrorKind::kNetwork, result.message);
    }
  } else if (transfer.decision().verdict == Verdict::kWrite) {
    on_body_end(transfer, result);
  } else {
    on_verdict(transfer);
  }
  maybe_complete(file);
  fail_if_hopeless(file);
}

void DownloadEngine::on_body_end(RangeTransfer& transfer, const ExchangeResult& result) {
  if (transfer.is_probe()) return;  // the server does have the range: the refusal before was a mistake
  FileDownload& file = transfer.file();
  Source& source = transfer.source();
  const bool ended = transfer.is_open_ended() && result.kind == ExchangeResult::Kind::kComplete;
  if (!transfer.wrote_all() && !ended) {
    const Extent left = transfer.remaining();
    const std::string cut = transfer.is_open_ended() ? fmt::format("at byte {}", left.begin)
                                                     : fmt::format("{} bytes short", left.size());
    if (result.kind == ExchangeResult::Kind::kTransient) control_.on_throttled();
    return note_failure(file, source, ErrorKind::kNetwork,
                        fmt::format("{} ended the transfer {}{}{}", name_of(transfer), cut,
                                    result.message.empty() ? "" : ": ", result.message));
  }
  if (ended && !file.total) {
    const bool framed = transfer.head().find("transfer-encoding") != nullptr || content_length(transfer.head());
    if (!framed && !file.remote.sha256 && !options_.accept_unknown_size) {
      return bury_source(file, source, ErrorKind::kCorrupt,
                         fmt::format("{} does not say where the file ends, so a cut would go unnoticed; give --sha256, or "
                                     "--accept-unknown-size to believe it", name_of(transfer)));
    }
    file.total = transfer.remaining().begin;
    file.part->set_size(*file.total);
    // A git blob id needs the size first; such files come from listings, which know it.
  }
  source.short_answers = transfer.was_crumb() ? source.short_answers + 1 : 0;
  if (source.short_answers > kMaxCrumbs) {
    source.ranges = false;
    observer_.on_trouble(file.remote, name_of(transfer) + " answers ranges in crumbs; asking it for the whole file", 0);
    return;
  }
  if (file.one_stream && file.total && !file.has_all_bytes()) {
    return note_failure(file, source, ErrorKind::kNetwork, name_of(transfer) + " sends less than the whole file");
  }
  source.renewed = false;
  source.broken_ranges = 0;
  source.failures = 0;
  source.expiries = 0;
  source.best_at_failure = file.best_bytes;
}

void DownloadEngine::on_verdict(RangeTransfer& transfer) {
  FileDownload& file = transfer.file();
  Source& source = transfer.source();
  const Decision& decision = transfer.decision();
  const std::string problem = fmt::format("{} {}", name_of(transfer), decision.reason);
  switch (decision.verdict) {
    case Verdict::kNoRange:
    case Verdict::kRangeBroken: return on_range_broken(transfer, problem);
    case Verdict::kWrongObject: return note_failure(file, source, ErrorKind::kNetwork, problem);
    case Verdict::kEncoded:
      source.ask_untransformed = true;
      return note_failure(file, source, ErrorKind::kNetwork, problem);
    case Verdict::kChanged: return on_changed(transfer);
    case Verdict::kOtherVersion: return on_other_version(transfer);
    case Verdict::kProbe:
      source.probe_next = true;
      return note_failure(file, source, ErrorKind::kNetwork, problem);
    case Verdict::kBackOff: return on_busy(transfer);
    case Verdict::kExpired: return on_expired(transfer);
    case Verdict::kDenied: return on_denied(transfer);
    case Verdict::kGone: return bury_source(file, source, ErrorKind::kRefused, denial_text(transfer));
    case Verdict::kAtEnd:
      file.total = decision.total;
      file.part->set_size(*decision.total);
      return;
    case Verdict::kWrite:
    case Verdict::kRedirect: return;
  }
}

void DownloadEngine::on_busy(RangeTransfer& transfer) {
  Source& source = transfer.source();
  const Origin server = transfer.exchange().hop().url.origin();
  const int status = transfer.head().status;
  const auto asked = server_wait(transfer.head(), std::time(nullptr));
  if (status == 429 || status == 503) control_.on_throttled();
  // Answers to requests that were under way when this server asked for time say the same once more.
  if (asked && source.failures > 0 && source.ready_at > Clock::now()) return;
  note_failure(transfer.file(), source, ErrorKind::kNetwork, fmt::format("{} {}", name_of(transfer), transfer.decision().reason),
               asked);
  if (!source.dead && (status == 429 || (status == 503 && asked))) hold_server(server, source.ready_at);
}

bool DownloadEngine::hold_server(const Origin& server, Clock::time_point until) {
  bool longer = false;
  for (const auto& file : files_) {
    for (Source& source : file->sources) {
      const Url& next = source.located ? source.located->url : source.url;
      if (file->is_finished() || !(next.origin() == server) || source.ready_at >= until) continue;
      source.ready_at = until;
      longer = true;
    }
  }
  return longer;
}

// A hub that says it will answer no further request of this kind is not asked before it will.
void DownloadEngine::note_rate_limit(RangeTransfer& transfer) {
  if (!transfer.judged() || transfer.head().status >= 400) return;
  const auto wait = exhausted_limit(transfer.head());
  if (!wait) return;
  const double seconds = std::min(*wait, options_.retry.longest_server_wait_s);
  const Origin server = transfer.exchange().hop().url.origin();
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  if (hold_server(server, until)) {
    observer_.on_trouble(transfer.file().remote, server.text() + " permits no further request for now", seconds);
  }
}

void DownloadEngine::note_progress(FileDownload& file) {
  if (file.part) file.best_bytes = std::max(file.best_bytes, file.part->extents().bytes());
}

// The file was wrong with the bytes of these mirrors and right without them: other files ask them last.
void DownloadEngine::demote_suspects(FileDownload& proved) {
  if (!proved.is_promised()) return;
  for (const Origin& suspect : std::exchange(proved.suspects, {})) {
    observer_.on_trouble(proved.remote, suspect.text() + " served wrong bytes; other files ask it last", 0);
    for (const auto& file : files_) {
      if (file.get() == &proved || !file->transfers.empty()) continue;
      std::stable_partition(file->sources.begin(), file->sources.end(),
                            [&](const Source& source) { return source.is_origin || !(source.url.origin() == suspect); });
    }
  }
}

// No file of a pinned commit changes, and a delivery network may err: asked again a few times, then believed.
void DownloadEngine::on_changed(RangeTransfer& transfer) {
  FileDownload& file = transfer.file();
  Source& source = transfer.source();
  const std::string problem = fmt::format("{} {}", name_of(transfer), transfer.decision().reason);
  source.located.reset();
  if (++source.changes > kMaxChanges) return bury_source(file, source, ErrorKind::kCorrupt, problem);
  note_failure(file, source, ErrorKind::kCorrupt, problem);
}

void DownloadEngine::on_range_broken(RangeTransfer& transfer, const std::string& problem) {
  FileDownload& file = transfer.file();
  Source& source = transfer.source();
  if (!source.ranges) return note_failure(file, source, ErrorKind::kNetwork, problem);
  if (++source.broken_ranges < kMaxBrokenRanges) return note_failure(file, source, ErrorKind::kNetwork, problem);
  source.ranges = false;
  observer_.on_trouble(file.remote, problem + "; asking it for the whole file in one stream", 0);
}

void DownloadEngine::on_other_version(RangeTransfer& transfer) {
  FileDownload& file = transfer.file();
  Source& source = transfer.source();
  const std::string problem = fmt::format("{} {}", name_of(transfer), transfer.decision().reason);
  if (++file.restarts <= kMaxRestarts) {
    observer_.on_trouble(file.remote, problem + "; starting it again, so that no two versions are mixed", 0);
    return restart_part(file);
  }
  if (file.remote.sha256) {
    // A network of servers that disagree about their tags; the promised hash decides.
    for (Source& each : file.sources) each.ignore_validators = true;
    return note_failure(file, source, ErrorKind::kNetwork, problem);
  }
  bury_source(file, source, ErrorKind::kCorrupt, problem + " again and again");
}

void DownloadEngine::on_expired(RangeTransfer& transfer) {
  static constexpr double kCoolDown[kMaxExpiries] = {0, 1, 5, 30};  // in units of the first wait
  FileDownload& file = transfer.file();
  Source& source = transfer.source();
  const std::string problem = fmt::format("{} {}", transfer.exchange().hop().url.origin().text(),
                                          transfer.decision().reason);
  source.located.reset();
  if (file.progress_of(source) >= options_.retry.progress_bytes) source.expiries = 0;
  source.best_at_failure = file.best_bytes;
  if (++source.expiries > kMaxExpiries) {
    return bury_source(file, source, ErrorKind::kNetwork, problem + ", however often it is renewed");
  }
  const double wait = kCoolDown[source.expiries - 1] * options_.retry.first_wait_s;
  source.ready_at = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait));
  if (source.expiries > 1) observer_.on_trouble(file.remote, problem, wait);
}

void DownloadEngine::on_denied(RangeTransfer& transfer) {
  if (transfer.head().status == 401 && options_.renew_token && transfer.exchange().hop().number == 0 &&
      !transfer.source().renewed) {
    transfer.source().renewed = true;  // until it works again
    const Url& url = transfer.source().url;
    try {
      if (auto token = options_.renew_token(url, transfer.head())) {
        credentials_.add(url.origin(), std::move(*token));
        return;
      }
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kInterrupted) throw;
      return bury_source(transfer.file(), transfer.source(), e.kind(), e.what());
    }
  }
  const std::string problem = denial_text(transfer);
  const Origin origin = transfer.source().url.origin();
  const bool about_the_file = transfer.head().status == 403 && transfer.head().value("x-error-code") != "GatedRepo";
  if (about_the_file) return bury_source(transfer.file(), transfer.source(), ErrorKind::kRefused, problem);
  // What the hub refuses for want of a token it refuses for all files: do not ask a thousand times.
  for (const auto& file : files_) {
    for (Source& source : file->sources) {
      if (source.url.origin() == origin) bury_source(*file, source, ErrorKind::kRefused, problem);
    }
  }
  for (FileDownload* file : active_) {
    if (file != &transfer.file()) fail_if_hopeless(*file);
  }
}

std::string DownloadEngine::denial_text(const RangeTransfer& transfer) const {
  const ResponseHead& head = transfer.head();
  std::string text = fmt::format("{} answers {} for {}", name_of(transfer), head.status, transfer.file().remote.path);
  if (const std::string* code = head.find("x-error-code")) text += fmt::format(" ({})", printable(*code, 80));
  if (const std::string* message = head.find("x-error-message")) text += ": " + printable(*message, 300);
  if (head.value("x-error-code") == "GatedRepo") {
    text += "; accept the terms on the repository's page and give a token of that account (HF_TOKEN or --token-file)";
  } else if (head.status == 401 || head.status == 403) {
    text += credentials_.has(transfer.source().url.origin())
                ? "; the token given does not permit it"
                : "; the repository may be private or gated: give a token (HF_TOKEN or --token-file)";
  }
  if (const std::string* id = head.find("x-request-id")) text += fmt::format(" [request {}]", printable(*id, 80));
  return credentials_.redact(text);
}

}  // namespace tierpack::fetch

#include "fetch/fetch_view.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"

namespace tierpack::fetch {

namespace {

constexpr double kRateWindow = 5;     // seconds that a shown rate covers
constexpr double kLineSeconds = 5;    // between plain progress lines
constexpr double kEventSeconds = 0.5;  // between progress events

void print_event(const Json& event) {
  std::printf("%s\n", event.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  std::fflush(stdout);
}

std::string file_line(const FileProgress& file) {
  const uint64_t size = file.size.value_or(0);
  // While bytes arrive the interesting number is how many; afterwards it is how far the proof has come.
  const bool proving = file.phase != FilePhase::kDownloading && file.phase != FilePhase::kCopying;
  const uint64_t done = proving ? file.hashed_bytes : file.have_bytes;
  const int percent = size > 0 ? static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(size)) : 0;
  return fmt::format("  {:<11} {:>3} %  {:>10} of {:<10} {}{}", phase_name(file.phase), percent, format_size(done),
                     file.size ? format_size(size) : "?", *file.path,
                     file.connections > 1 ? fmt::format("  ({} connections)", file.connections) : "");
}

}  // namespace

FetchView::FetchView(bool json) : json_(json) {}

double FetchView::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

double FetchView::rate(uint64_t received) {
  const double now = seconds();
  history_.push_back({now, received});
  while (history_.size() > 2 && history_[1].at < now - kRateWindow) history_.erase(history_.begin());
  const Rate& first = history_.front();
  return now > first.at ? static_cast<double>(received - first.bytes) / (now - first.at) : 0;
}

void FetchView::listing(const Listing& listing, uint64_t total_bytes) {
  if (json_) {
    print_event({{"event", "listing"},
                 {"source", listing.source},
                 {"endpoint", listing.endpoint},
                 {"revision", listing.revision},
                 {"files", listing.files.size()},
                 {"bytes", total_bytes}});
    return;
  }
  log_info(fmt::format("{}{}: {} file{}, {}", listing.source,
                       listing.revision.empty() ? "" : " at " + listing.revision.substr(0, 12), listing.files.size(),
                       listing.files.size() == 1 ? "" : "s", format_size(total_bytes)));
}

void FetchView::note(const std::string& line) {
  if (json_) {
    print_event({{"event", "note"}, {"message", line}});
  } else {
    log_info(line);
  }
}

void FetchView::clear() { show_status({}); }

void FetchView::on_file_start(const RemoteFile& file, uint64_t resumed_bytes) {
  if (json_) {
    Json event = {{"event", "file_start"}, {"path", file.path}, {"resumed_bytes", resumed_bytes}};
    event["size"] = file.size ? Json(*file.size) : Json();
    print_event(event);
  } else if (resumed_bytes > 0) {
    log_detail(fmt::format("{}: {} are there already", file.path, format_size(resumed_bytes)));
  }
}

void FetchView::on_trouble(const RemoteFile& file, const std::string& message, double wait_s) {
  if (json_) {
    print_event({{"event", "trouble"}, {"path", file.path}, {"message", message}, {"retry_after_s", wait_s}});
  }
  log_warning(fmt::format("{}: {}{}", file.path, message,
                          wait_s > 0 ? fmt::format("; trying again in {:.1f} s", wait_s) : ""));
}

void FetchView::on_file_end(const RemoteFile& file, const FileOutcome& outcome) {
  const bool failed = outcome.status == FileOutcome::Status::kFailed;
  const bool there = outcome.status == FileOutcome::Status::kAlreadyThere;
  if (json_) {
    Json event = {{"event", "file_end"}, {"path", file.path}, {"status", failed ? "failed" : there ? "present" : "fetched"}};
    if (failed) {
      event["kind"] = kind_name(outcome.kind);
      event["message"] = outcome.message;
    } else {
      event["size"] = outcome.size;
      event["sha256"] = outcome.sha256.hex();
      event["hash_origin"] = file.hash_origin;
    }
    event["downloaded_bytes"] = outcome.downloaded_bytes;
    event["resumed_bytes"] = outcome.resumed_bytes;
    print_event(event);
  }
  if (failed) {
    log_error(fmt::format("{}: {}", file.path, outcome.message));
  } else if (!json_) {
    log_info(fmt::format("  {} {:>10}  {}  sha256 {} ({})", there ? "present" : "fetched", format_size(outcome.size),
                         file.path, outcome.sha256.hex().substr(0, 16),
                         file.sha256 ? (file.hash_origin == "observed" ? "as observed before" : "as promised by " + file.hash_origin)
                                     : file.git_sha1 ? "git blob id as promised" : "observed, nobody promised one"));
  }
}

void FetchView::on_progress(const DownloadProgress& progress) {
  const double now = seconds();
  const double bytes_per_s = rate(progress.received_bytes);
  const uint64_t left = progress.total_bytes - std::min(progress.total_bytes, progress.have_bytes);
  if (json_) {
    if (now < next_line_) return;
    next_line_ = now + kEventSeconds;
    Json files = Json::array();
    for (const FileProgress& file : progress.active) {
      files.push_back({{"path", *file.path},
                       {"phase", phase_name(file.phase)},
                       {"size", file.size ? Json(*file.size) : Json()},
                       {"have_bytes", file.have_bytes},
                       {"verified_bytes", file.hashed_bytes},
                       {"connections", file.connections}});
    }
    print_event({{"event", "progress"},
                 {"done_bytes", progress.have_bytes},
                 {"total_bytes", progress.total_bytes},
                 {"received_bytes", progress.received_bytes},
                 {"rate_bytes_per_s", static_cast<uint64_t>(bytes_per_s)},
                 {"connections", progress.connections},
                 {"files", std::move(files)}});
    return;
  }
  std::string total = fmt::format(
      "{} of {} ({} %)  {}/s{}  {} connection{}, file {} of {}", format_size(progress.have_bytes),
      format_size(progress.total_bytes),
      progress.total_bytes > 0 ? progress.have_bytes * 100 / progress.total_bytes : 100,
      format_size(static_cast<uint64_t>(bytes_per_s)),
      bytes_per_s > 0 && left > 0 ? "  ETA " + format_duration(static_cast<double>(left) / bytes_per_s) : "",
      progress.connections, progress.connections == 1 ? "" : "s", std::min(progress.files_done + 1, progress.files),
      progress.files);
  if (::isatty(STDERR_FILENO) != 0) {
    std::vector<std::string> lines;
    for (const FileProgress& file : progress.active) {
      if (lines.size() >= 6) break;
      lines.push_back(file_line(file));
    }
    lines.push_back("  " + total);
    if (now > 0.2) show_status(lines);
  } else if (now >= next_line_) {
    if (next_line_ > 0) log_info("  " + total);
    next_line_ = now + kLineSeconds;
  }
}

void FetchView::failure(const Error& error) {
  clear();
  if (!json_) return;
  print_event({{"event", "error"},
               {"kind", kind_name(error.kind())},
               {"message", error.what()},
               {"exit_code", exit_code(error.kind())}});
}

void FetchView::summary(const std::vector<FileOutcome>& outcomes, const std::string& where, int exit_code) {
  size_t fetched = 0;
  size_t present = 0;
  size_t failed = 0;
  uint64_t downloaded = 0;
  uint64_t resumed = 0;
  for (const FileOutcome& outcome : outcomes) {
    fetched += outcome.status == FileOutcome::Status::kFetched;
    present += outcome.status == FileOutcome::Status::kAlreadyThere;
    failed += outcome.status == FileOutcome::Status::kFailed;
    downloaded += outcome.downloaded_bytes;
    resumed += outcome.resumed_bytes;
  }
  show_status({});
  const double took = seconds();
  if (json_) {
    print_event({{"event", "summary"},
                 {"fetched", fetched},
                 {"present", present},
                 {"failed", failed},
                 {"downloaded_bytes", downloaded},
                 {"resumed_bytes", resumed},
                 {"seconds", took},
                 {"exit_code", exit_code},
                 {"where", where}});
    return;
  }
  if (log_level() == LogLevel::kQuiet) return;
  fmt::print("{} fetched, {} already there{}; {} downloaded{} in {} ({}/s); {}\n", fetched, present,
             failed > 0 ? fmt::format(", {} FAILED", failed) : "", format_size(downloaded),
             resumed > 0 ? fmt::format(" and {} resumed", format_size(resumed)) : "", format_duration(took),
             format_size(static_cast<uint64_t>(static_cast<double>(downloaded) / std::max(took, 1e-3))), where);
  if (exit_code == tierpack::exit_code(ErrorKind::kNetwork)) {
    log_warning("what has arrived is kept; the same command continues");
  }
}

}  // namespace tierpack::fetch

// The loop behind download_files: one libcurl multi handle, the files in progress, and the threads that hash, flush and
// copy. Internal to fetch/; download.h is the face.
//
// Invariants: all state is touched on the thread that calls run(). A file in phase kDownloading has a part and a hash
// task that follows its prefix. At most one checkpoint per file is under way. A FileDownload is never destroyed before
// the engine, so that letters from other threads may name it.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "fetch/background.h"
#include "fetch/connection_control.h"
#include "fetch/download.h"
#include "fetch/file_download.h"
#include "fetch/prefix_hasher.h"
#include "fetch/range_transfer.h"

namespace tierpack::fetch {

class DownloadEngine {
 public:
  DownloadEngine(const Directory& target, const std::vector<DownloadTask>& tasks, const DownloadOptions& options,
                 const Credentials& credentials, DownloadObserver& observer);
  ~DownloadEngine();
  std::vector<FileOutcome> run();

 private:
  // The loop (download_engine.cpp).
  void step();
  void activate_files();
  void start_transfers();
  bool start_transfer(FileDownload& file);
  int resolves_under_way() const;
  bool split_transfer();
  void launch(FileDownload& file, size_t source, Extent range, bool open_ended, bool probe);
  void collect_finished();
  void feed_hashers();
  void save_journals(bool all);
  void measure();
  void report(bool now);
  int poll_timeout_ms() const;
  void resume_paused();
  void stop_all_transfers();
  void cancel_transfers(FileDownload& file);
  uint64_t range_bytes(const FileDownload& file) const;

  // How files begin and end (download_files.cpp).
  void begin_file(FileDownload& file);
  void check_existing(FileDownload& file, File existing);
  void begin_download(FileDownload& file);
  bool try_local_copy(FileDownload& file);
  void on_copy_failed(FileDownload& file, const std::string& problem);
  void start_hash(FileDownload& file);
  void restart_part(FileDownload& file);
  void maybe_complete(FileDownload& file);
  void check_structure(FileDownload& file);
  void on_hashed(FileDownload& file, uint64_t generation, HashResult result);
  void on_content_proved(FileDownload& file);
  void on_mismatch(FileDownload& file, const std::string& problem);
  void reread(FileDownload& file);
  void publish(FileDownload& file);
  void on_published(FileDownload& file, bool renamed);
  void finish_file(FileDownload& file, FileOutcome::Status status);
  void fail_file(FileDownload& file, ErrorKind kind, const std::string& message);
  std::string mismatch_text(const FileDownload& file, const HashResult& result) const;
  // Runs `work` on `where`; its exception, if any, ends the run.
  void in_background(Background& where, std::function<void()> work, std::function<void()> then);

  // What a finished transfer means (download_reactions.cpp).
  void on_transfer_end(RangeTransfer& transfer, int curl_code);
  void on_verdict(RangeTransfer& transfer);
  void on_body_end(RangeTransfer& transfer, const ExchangeResult& result);
  void on_other_version(RangeTransfer& transfer);
  void on_denied(RangeTransfer& transfer);
  void on_expired(RangeTransfer& transfer);
  void on_range_broken(RangeTransfer& transfer, const std::string& problem);
  void on_changed(RangeTransfer& transfer);
  void on_busy(RangeTransfer& transfer);
  void note_progress(FileDownload& file);
  // Nothing is asked of a server before `until`, for whatever file.
  // True if that makes somebody wait longer.
  bool hold_server(const Origin& server, Clock::time_point until);
  void note_rate_limit(RangeTransfer& transfer);
  void demote_suspects(FileDownload& proved);
  void note_failure(FileDownload& file, Source& source, ErrorKind kind, const std::string& problem,
                    std::optional<double> asked_wait = std::nullopt);
  void bury_source(FileDownload& file, Source& source, ErrorKind kind, const std::string& problem);
  void fail_if_hopeless(FileDownload& file);
  std::string denial_text(const RangeTransfer& transfer) const;

  std::string redacted(const std::string& text) const { return credentials_.redact(text); }

  const Directory& target_;
  const DownloadOptions& options_;
  Credentials credentials_;  // a copy: tokens are renewed
  DownloadObserver& observer_;
  Directory state_;

  struct MultiHandle;
  std::unique_ptr<MultiHandle> multi_;
  std::vector<std::unique_ptr<FileDownload>> files_;
  std::vector<FileDownload*> active_;
  size_t next_file_ = 0;
  size_t files_done_ = 0;
  std::vector<std::unique_ptr<RangeTransfer>> transfers_;  // in use
  std::vector<std::unique_ptr<RangeTransfer>> idle_;       // kept for their handles

  ConnectionControl control_;
  RateLimit limit_;
  size_t resume_turn_ = 0;
  Clock::time_point start_ = Clock::now();
  uint64_t received_bytes_ = 0;
  uint64_t window_bytes_ = 0;
  Clock::time_point window_start_;
  bool window_was_full_ = true;
  Clock::time_point last_report_{};
  std::minstd_rand random_;
  std::exception_ptr background_error_;
  std::atomic<bool> stop_copying_{false};

  // Last, so that their threads end before what they refer to.
  Mailbox mailbox_;
  PrefixHasher hasher_;
  Background flusher_;
  Background copier_;
};

}  // namespace tierpack::fetch

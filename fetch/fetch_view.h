// What the user sees of a fetch: bars with rates on a terminal, plain lines otherwise, NDJSON events with --json. Used
// on the thread that downloads.
//
// Events, one JSON object a line on stdout: {"event": "listing", ...}, "file_start", "progress", "trouble", "file_end",
// "summary" or "error". docs/howto-fetch.md lists their members.
#pragma once

#include <chrono>
#include <string>

#include "fetch/download.h"

namespace tierpack::fetch {

class FetchView final : public DownloadObserver {
 public:
  explicit FetchView(bool json);

  void listing(const Listing& listing, uint64_t total_bytes);
  void note(const std::string& line);  // a remark before or after the download
  void clear();                        // removes the bars
  void on_file_start(const RemoteFile& file, uint64_t resumed_bytes) override;
  void on_trouble(const RemoteFile& file, const std::string& message, double wait_s) override;
  void on_file_end(const RemoteFile& file, const FileOutcome& outcome) override;
  void on_progress(const DownloadProgress& progress) override;
  // The last word. `where` names the directory and the lock.
  void summary(const std::vector<FileOutcome>& outcomes, const std::string& where, int exit_code);
  // Instead of a summary: what ended the run. The sentence itself is printed by whoever catches it.
  void failure(const Error& error);

 private:
  using Clock = std::chrono::steady_clock;
  struct Rate {
    double at = 0;
    uint64_t bytes = 0;
  };

  double seconds() const;
  double rate(uint64_t received);

  bool json_;
  Clock::time_point start_ = Clock::now();
  double next_line_ = 0;
  std::vector<Rate> history_;  // of the last seconds
};

}  // namespace tierpack::fetch

// Downloads a list of files into a directory, so that each final name holds exactly the promised bytes or nothing.
//
// States of a file:  absent -> part + journal -> all bytes there and hashed equal -> flushed, renamed.
// One thread (the caller's) runs the network and owns all state; hashing, flushing and copying have threads of their
// own and report back. Bytes are written only where a response proved that they belong (response_rules.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/error.h"
#include "fetch/credentials.h"
#include "fetch/directory.h"
#include "fetch/http_exchange.h"
#include "fetch/listing.h"
#include "fetch/retry.h"

namespace tierpack::fetch {

struct DownloadTask {
  RemoteFile file;
  std::string final_path;  // below the target; usually file.path
  // Complete copies on this machine that may hold the same content; used after hashing, never modified.
  std::vector<std::filesystem::path> local_copies = {};
  // What an earlier run observed for this path (from the lock), to recognise an existing file nobody promised a hash for.
  std::optional<Sha256Digest> observed_before = {};
};

struct DownloadOptions {
  HttpSettings http;
  RetryPolicy retry;
  std::string expected_commit;      // compared with X-Repo-Commit where a hub sends it
  bool has_hub_headers = false;
  int files_at_once = 4;
  int connections = 0;              // 0: adapt
  int first_connections = 4;        // where adapting begins
  int most_connections = 16;
  uint64_t range_bytes = 0;         // asked for in one request; 0: by file size
  uint64_t limit_bytes_per_s = 0;   // over all connections; 0: none
  uint64_t journal_bytes = uint64_t{256} << 20;  // a checkpoint after this many bytes ...
  double journal_s = 2;                          // ... or this long
  int hash_threads = 1;
  unsigned file_mode = 0644;
  bool replace = false;             // --force: an existing file with other content is replaced
  bool reread = false;              // hash once more, from the device, before publishing
  bool accept_unknown_size = false; // believe a body whose end nothing proves
  bool check_structure = true;      // refuse a GGUF as soon as its header contradicts the promised size
  bool offline = false;             // only judge what is there: missing and differing files fail, nothing is written
  // Called on the downloading thread when a hub answers 401: a new token for that origin, or nullopt to give up.
  std::function<std::optional<std::string>(const Url& url, const ResponseHead& denied)> renew_token;
};

enum class FilePhase { kWaiting, kChecking, kCopying, kDownloading, kHashing, kRereading, kComparing, kPublishing, kDone, kFailed };
const char* phase_name(FilePhase phase);

struct FileOutcome {
  enum class Status { kFetched, kAlreadyThere, kFailed };
  Status status = Status::kFailed;
  ErrorKind kind = ErrorKind::kNetwork;  // of a failure
  std::string message;                   // of a failure
  uint64_t size = 0;
  Sha256Digest sha256;
  uint64_t downloaded_bytes = 0;  // received and written by this run
  uint64_t resumed_bytes = 0;     // taken over from an earlier run
};

struct FileProgress {
  const std::string* path = nullptr;
  FilePhase phase = FilePhase::kWaiting;
  std::optional<uint64_t> size = {};
  uint64_t have_bytes = 0;
  uint64_t hashed_bytes = 0;
  int connections = 0;
};

struct DownloadProgress {
  std::span<const FileProgress> active;
  uint64_t total_bytes = 0;     // of all files whose size is known
  uint64_t have_bytes = 0;      // there, by whatever way
  uint64_t received_bytes = 0;  // over the network in this run
  int connections = 0;
  size_t files_done = 0;
  size_t files = 0;
};

// Told on the caller's thread.
class DownloadObserver {
 public:
  virtual ~DownloadObserver() = default;
  virtual void on_file_start(const RemoteFile& file, uint64_t resumed_bytes) = 0;
  // Something went wrong and is being tried again, or deserves to be known.
  virtual void on_trouble(const RemoteFile& file, const std::string& message, double wait_s) = 0;
  virtual void on_file_end(const RemoteFile& file, const FileOutcome& outcome) = 0;
  virtual void on_progress(const DownloadProgress& progress) = 0;  // about ten times a second
};

// One outcome per task, in order. Failures of single files are outcomes; what ends the whole run is thrown: kCapacity
// (disk full), kIo, kInterrupted. Whatever was received stays and is continued by the next run.
std::vector<FileOutcome> download_files(const Directory& target, const std::vector<DownloadTask>& tasks,
                                        const DownloadOptions& options, const Credentials& credentials,
                                        DownloadObserver& observer);

}  // namespace tierpack::fetch

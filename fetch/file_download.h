// One file on its way: its sources with what is known of each, its part, and the ranges being asked for. Internal to the
// download engine; used on its thread only.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fetch/download.h"
#include "fetch/extents.h"
#include "fetch/part_file.h"
#include "fetch/prefix_hasher.h"
#include "fetch/redirect_rules.h"
#include "fetch/response_rules.h"

namespace tierpack::fetch {

using Clock = std::chrono::steady_clock;

// A place that a file may come from, and how it has behaved.
struct Source {
  explicit Source(Url from) : url(std::move(from)) {}

  Url url;
  bool is_origin = false;  // the hub that the listing came from, not a mirror
  // Where redirects from `url` led, to be used again until it expires: each resolve costs the hub's patience.
  std::optional<Hop> located;
  bool resolving = false;   // a request is finding that out; others wait for it
  bool ranges = true;       // false: sends only whole bodies
  bool probe_next = false;  // ask for one byte before deciding what a 416 meant
  bool ask_untransformed = false;
  bool renewed = false;     // its token was renewed and has not worked since
  bool dead = false;
  ErrorKind dead_kind = ErrorKind::kNetwork;
  std::string dead_reason;
  int failures = 0;          // in a row
  int broken_ranges = 0;
  int changes = 0;           // answers that speak of another file
  int short_answers = 0;     // in a row: crumbs of what was asked for
  int expiries = 0;          // in a row
  uint64_t best_at_failure = 0;  // FileDownload::best_bytes at the last failure
  ExtentSet wrote;           // what of the part came from here, in this process
  Clock::time_point ready_at{};
  // Validators of accepted bytes, by kind of hop: [0] delivery network, [1] hub. Never compared across kinds.
  std::optional<std::string> etag[2];
  std::optional<std::string> last_modified[2];
  bool ignore_validators = false;
};

class RangeTransfer;

struct FileDownload {
  FileDownload(size_t number, const DownloadTask& wanted);

  const size_t index;
  const DownloadTask& task;
  const RemoteFile& remote;
  FilePhase phase = FilePhase::kWaiting;
  std::vector<Source> sources;
  std::optional<uint64_t> total;
  std::shared_ptr<PartFile> part;  // shared with the thread that flushes it
  std::vector<RangeTransfer*> transfers;  // owned by the engine
  bool one_source = false;  // bytes of several sources together were wrong: only the first live one is asked
  bool one_stream = false;  // no ranges: a single body from byte 0

  std::shared_ptr<PrefixHasher::Task> hash;
  uint64_t hash_generation = 0;  // results of older tasks are ignored
  HashResult hash_result;

  bool checkpoint_running = false;
  uint64_t unsaved_bytes = 0;
  Clock::time_point saved_at{};

  bool structure_pending = false;  // a GGUF header that has not been checked yet
  bool structure_running = false;
  uint64_t structure_next = 0;     // prefix length worth the next attempt

  std::string final_directory;  // of task.final_path, and its last component
  std::string final_name;
  size_t local_copies_tried = 0;
  std::atomic<uint64_t> copied_bytes{0};
  int mismatches = 0;
  int restarts = 0;
  uint64_t best_bytes = 0;  // the most that was ever there: only what exceeds it is progress
  std::vector<Origin> suspects;  // mirrors whose bytes were dropped after a mismatch
  FileOutcome outcome;

  bool is_finished() const { return phase == FilePhase::kDone || phase == FilePhase::kFailed; }
  uint64_t have_bytes() const;
  std::vector<Extent> in_flight() const;
  // A promised hash decides about the whole in the end: bytes of several answers may be joined.
  bool is_promised() const { return remote.sha256 || remote.git_sha1; }
  bool has_all_bytes() const { return total && part && part->extents().covers({0, *total}); }
  // Index of the source to ask next, or nullopt when none may be asked now. Ranged sources come before whole-body ones.
  std::optional<size_t> pick_source(Clock::time_point now) const;
  bool all_sources_dead() const;
  // Bytes that are new since `source` last failed.
  uint64_t progress_of(const Source& source) const { return best_bytes - std::min(best_bytes, source.best_at_failure); }
  // Removes what mirrors brought, if the origin brought something and lives; from then on it alone is asked.
  bool drop_foreign_bytes();
  // The first time at which some source may be asked again; nullopt if one may be asked now or all are dead.
  std::optional<Clock::time_point> next_ready(Clock::time_point now) const;
};

// nullopt if the file whose first `available` bytes are in `file` is not a GGUF, or its header fits `promised` bytes;
// otherwise what is wrong. `undecided` is set when the header does not end within the available bytes.
std::optional<std::string> check_gguf_prefix(const File& file, uint64_t available, uint64_t promised, bool& undecided);

}  // namespace tierpack::fetch

// Decisions before and after a download, as values: what is selected, whether it fits, what the lock says.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fetch/download.h"
#include "fetch/glob.h"
#include "fetch/listing.h"
#include "formats/lock.h"

namespace tierpack::fetch {

// Keeps what is selected. Throws kUsage, with the nearest names, when an include pattern matches nothing or when nothing
// is left.
void select_files(const Selection& selection, Listing& listing);

// Warns when only some shards of a set ("x-00001-of-00003.gguf") are selected.
void warn_incomplete_sets(const Listing& listing);
// Warns of file types that can run code in the tools that load them.
void warn_of_pickles(const Listing& listing);

// One task per file, in order. `earlier` is the lock of an earlier fetch into the same directory.
std::vector<DownloadTask> make_tasks(const Listing& listing, const std::optional<Lock>& earlier);

struct SpaceNeed {
  uint64_t total = 0;      // of all files
  uint64_t missing = 0;    // not on the disk yet: allocated bytes of unfinished parts count, apparent sizes do not
  uint64_t margin = 0;     // for directories, journals, and a disk that others use too
  uint64_t available = 0;
  size_t unknown = 0;      // files nobody told the size of
  bool fits() const { return missing == 0 || missing + margin <= available; }
};

SpaceNeed space_need(const std::filesystem::path& target, const std::vector<DownloadTask>& tasks);
std::string space_text(const SpaceNeed& need, const std::filesystem::path& target);

// For --dry-run, on stdout.
void print_plan(const Listing& listing, const std::vector<DownloadTask>& tasks, const std::filesystem::path& target,
                const SpaceNeed& need, bool json);

// All outcomes must be successes. Files of `earlier` that are not in the listing stay if source and revision are the same.
Lock make_lock(const Listing& listing, const std::function<const FileOutcome&(const RemoteFile&)>& outcome_of,
               const std::optional<Lock>& earlier);

}  // namespace tierpack::fetch

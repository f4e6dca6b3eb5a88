#include "fetch/fetch_offline.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/threads.h"
#include "fetch/download.h"
#include "fetch/fetch_plan.h"
#include "fetch/fetch_settings.h"
#include "fetch/hubs.h"
#include "fetch/url.h"

namespace tierpack::fetch {

namespace fs = std::filesystem;

namespace {

// The commit that a revision stood for when it was last fetched into the cache.
std::string cached_commit(const TargetLayout& layout, const Reference& reference) {
  if (!layout.is_cache || reference.revision.size() == 40) return reference.revision;
  const fs::path ref = layout.target / "refs" / (reference.revision.empty() ? "main" : reference.revision);
  std::error_code code;
  return fs::is_regular_file(ref, code) ? read_text_file(ref, 4096).substr(0, 40) : std::string();
}

}  // namespace

int check_offline(const FetchOptions& options, const Reference& reference, const TargetLayout& layout, FetchView& view) {
  const fs::path& target = layout.target;
  const fs::path lock_path = reference.kind == ReferenceKind::kLock ? fs::path(reference.path)
                             : !options.lock.empty()                ? fs::path(options.lock)
                                                                    : target / layout.lock_name(cached_commit(layout, reference));
  std::error_code code;
  if (!fs::exists(lock_path, code)) {
    fail(ErrorKind::kCorrupt, "offline: there is no {} to check {} against", lock_path.string(), target.string());
  }
  const Lock lock = read_lock(lock_path);
  Listing listing = list_lock(lock, std::nullopt);
  if (reference.kind != ReferenceKind::kLock && lock.source != recorded_source(reference.text)) {
    fail(ErrorKind::kCorrupt, "offline: {} holds {}, not {}", target.string(), lock.source, recorded_source(reference.text));
  }
  if (!reference.revision.empty() && lock.revision != reference.revision && reference.revision.size() == 40) {
    fail(ErrorKind::kCorrupt, "offline: {} holds revision {}, not {}", target.string(), lock.revision, reference.revision);
  }
  select_files(options.selection, listing);
  check_listing(listing);
  std::vector<DownloadTask> tasks;
  for (const RemoteFile& file : listing.files) {
    tasks.push_back({.file = file, .final_path = layout.final_path(file), .local_copies = {}, .observed_before = {}});
  }
  DownloadOptions download = download_options(options, {});
  download.offline = true;
  download.replace = false;
  download.hash_threads = usable_cores();
  download.files_at_once = std::max(options.jobs, download.hash_threads);
  const auto outcomes = download_files(Directory::open(target, false), tasks, download, {}, view);
  view.summary(outcomes, fmt::format("checked offline against {}", lock_path.string()), exit_code_of(outcomes));
  return exit_code_of(outcomes);
}

}  // namespace tierpack::fetch

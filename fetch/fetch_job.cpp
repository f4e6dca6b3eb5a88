#include "fetch/fetch_job.h"

#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "fetch/download.h"
#include "fetch/fetch_offline.h"
#include "fetch/fetch_plan.h"
#include "fetch/fetch_settings.h"
#include "fetch/fetch_state.h"
#include "fetch/fetch_view.h"
#include "fetch/registry_auth.h"
#include "fetch/sources.h"
#include "fetch/target_layout.h"

namespace tierpack::fetch {

namespace fs = std::filesystem;

namespace {

Reference read_reference(const FetchOptions& options) {
  Reference reference = parse_reference(options.reference);
  if (options.revision.empty()) return reference;
  if (reference.kind == ReferenceKind::kUrl || reference.kind == ReferenceKind::kLock) {
    fail(ErrorKind::kUsage, "--revision is for hub references");
  }
  const bool is_tag = reference.kind == ReferenceKind::kOci && !options.revision.starts_with("sha256:");
  return parse_reference(reference.text + (is_tag ? ":" : "@") + options.revision);
}

TargetLayout choose_layout(const FetchOptions& options, const Reference& reference, const Environment& environment) {
  if (options.use_hf_cache) {
    if (!options.to.empty()) fail(ErrorKind::kUsage, "--to and --hf-cache are two places for the same files; give one");
    return cache_layout(options.hf_cache.empty() ? environment.hf_cache : fs::path(options.hf_cache), reference);
  }
  if (!options.to.empty()) return plain_layout(options.to);
  if (reference.kind != ReferenceKind::kLock) fail(ErrorKind::kUsage, "--to DIR is missing: where should the files go?");
  return plain_layout(fs::absolute(reference.path).parent_path());
}

std::optional<Lock> read_earlier_lock(const fs::path& path, bool warn) {
  std::error_code code;
  if (!fs::is_regular_file(path, code)) return std::nullopt;
  try {
    return read_lock(path);
  } catch (const Error& e) {
    if (warn) log_warning(fmt::format("{}; it will be replaced", e.what()));
    return std::nullopt;
  }
}

// An unfinished fetch goes on with the commit it began with, while there is one.
Listing list_pinned(HttpClient& client, const Reference& reference, const std::optional<Url>& endpoint,
                    const SourceOptions& sources, bool pinned, const TargetLayout& layout) {
  try {
    return list_source(client, reference, endpoint, sources);
  } catch (const Error& e) {
    if (!pinned || e.kind() != ErrorKind::kRefused) throw;
    fail(ErrorKind::kRefused, "{}; an unfinished fetch began with that commit: to begin anew with what the revision is now, "
         "remove {}", e.what(), (layout.target / kStateDirectory).string());
  }
}

// One task per final path: in a cache, equal files are one blob.
std::vector<DownloadTask> plan_tasks(const Listing& listing, const TargetLayout& layout, const std::optional<Lock>& earlier,
                                     const FetchOptions& options, const Reference& reference, const Environment& environment) {
  std::vector<DownloadTask> tasks = make_tasks(listing, earlier);
  std::set<std::string> places;
  std::vector<DownloadTask> out;
  for (DownloadTask& task : tasks) {
    task.final_path = layout.final_path(task.file);
    if (!places.insert(task.final_path).second) continue;
    if (!layout.is_cache && !options.no_cache) {
      for (fs::path& copy : cached_copies(environment.hf_cache, reference, task.file)) {
        task.local_copies.push_back(std::move(copy));
      }
    }
    out.push_back(std::move(task));
  }
  return out;
}

std::vector<FileOutcome> download_resumably(const Directory& target, const LockedState& locked, const std::vector<DownloadTask>& tasks,
                                            const DownloadOptions& download, const Credentials& credentials, FetchView& view) {
  try {
    return download_files(target, tasks, download, credentials, view);
  } catch (const Error& e) {
    view.clear();
    if (e.kind() != ErrorKind::kInterrupted) throw;
    fail(ErrorKind::kInterrupted, "interrupted; what has arrived is kept in {}, the same command continues",
         locked.state.path());
  }
}

// All files are there: the lock says so. An earlier lock is read again, because the fetch that was waited for may have
// written it.
void write_lock_of(const Listing& listing, const std::vector<DownloadTask>& tasks, const std::vector<FileOutcome>& outcomes,
                   const TargetLayout& layout, const Directory& target, const LockedState& locked, const fs::path& lock_path,
                   bool beside_files) {
  std::map<std::string, const FileOutcome*> by_place;
  for (size_t i = 0; i < tasks.size(); ++i) by_place[tasks[i].final_path] = &outcomes[i];
  const Lock lock = make_lock(
      listing, [&](const RemoteFile& file) -> const FileOutcome& { return *by_place.at(layout.final_path(file)); },
      read_earlier_lock(lock_path, false));
  if (beside_files) {
    write_by_state(target, locked.state, lock_path.filename().string(), encode_lock(lock));
  } else {
    write_lock(lock_path, lock);
  }
}

int fetch_with(const FetchOptions& options, FetchView& view) {
  const Environment environment = read_environment();
  const Reference asked = read_reference(options);
  const TargetLayout layout = choose_layout(options, asked, environment);
  if (options.offline || environment.offline) return check_offline(options, asked, layout, view);

  // What there is.
  const HttpSettings http = http_settings(options, environment);
  const SourceOptions sources = source_options(options, http);
  DownloadOptions download = download_options(options, http);  // mistakes come out before anything is asked
  const auto endpoint = endpoint_for(asked, sources, environment);
  HttpClient client(http, gather_credentials(asked, endpoint, sources, environment), sources.retry);
  client.set_on_retry([](const std::string& line) { log_warning(line); });
  Reference reference = asked;
  const auto pin = asked.kind == ReferenceKind::kHuggingFace ? read_pin(layout.target, asked) : std::nullopt;
  if (pin) {
    view.note(fmt::format("continuing at commit {}", pin->substr(0, 12)));
    reference.revision = *pin;
  }
  Listing listing = list_pinned(client, reference, endpoint, sources, pin.has_value(), layout);
  select_files(options.selection, listing);
  check_listing(listing);
  warn_incomplete_sets(listing);
  warn_of_pickles(listing);
  add_mirrors(client, reference, sources, environment, listing);

  // What is to be done, and whether it can be.
  const fs::path lock_path = options.lock.empty() ? layout.target / layout.lock_name(listing.revision) : fs::path(options.lock);
  const auto earlier = read_earlier_lock(lock_path, true);
  if (earlier && earlier->source != recorded_source(listing.source)) {
    log_warning(fmt::format("{} speaks of {}; it will speak of {} alone: a directory of its own keeps both reproducible",
                            lock_path.string(), earlier->source, recorded_source(listing.source)));
  }
  const std::vector<DownloadTask> tasks = plan_tasks(listing, layout, earlier, options, asked, environment);
  const SpaceNeed need = space_need(layout.target, tasks);
  if (options.dry_run) {
    print_plan(listing, tasks, layout.target, need, options.json);
    return need.fits() ? 0 : exit_code(ErrorKind::kCapacity);
  }
  view.listing(listing, need.total);
  if (!need.fits() && !options.no_space_check) {
    fail(ErrorKind::kCapacity, "{}: {}; nothing was written (--no-space-check begins anyway)", listing.source,
         space_text(need, layout.target));
  }

  // Do it.
  const Directory target = Directory::open(layout.target, true);
  if (target.is_open_to_strangers()) {
    log_warning(fmt::format("{} can be written by everybody; others may replace files there at any time", target.path()));
  }
  LockedState locked = acquire_state(target, options.wait);
  if (asked.kind == ReferenceKind::kHuggingFace) write_pin(locked.state, asked, listing.revision);
  download.has_hub_headers = listing.has_hub_headers;
  if (listing.has_hub_headers) download.expected_commit = listing.revision;
  download.renew_token = [&client](const Url& url, const ResponseHead& denied) { return registry_token(client, url, denied); };
  const std::vector<FileOutcome> outcomes = download_resumably(target, locked, tasks, download, client.credentials(), view);

  // Say what it is now.
  const int code = exit_code_of(outcomes);
  if (code != 0) {
    view.summary(outcomes, "no lock was written; the same command tries again", code);
    return code;
  }
  if (layout.is_cache) link_snapshot(target, listing, asked.revision);
  write_lock_of(listing, tasks, outcomes, layout, target, locked, lock_path, options.lock.empty());
  clear_state(target, locked, tasks);
  view.summary(outcomes, fmt::format("{}, locked in {}", layout.visible_path(listing.revision).string(), lock_path.string()), code);
  return code;
}

}  // namespace

int run_fetch(const FetchOptions& options) {
  FetchView view(options.json);
  try {
    return fetch_with(options, view);
  } catch (const Error& e) {
    view.failure(e);
    throw;
  }
}

}  // namespace tierpack::fetch

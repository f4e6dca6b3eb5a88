#include "fetch/refetch.h"

#include <algorithm>
#include <map>

#include "base/log.h"
#include "fetch/download.h"
#include "fetch/fetch_job.h"
#include "fetch/fetch_plan.h"
#include "fetch/fetch_settings.h"
#include "fetch/fetch_state.h"
#include "fetch/fetch_view.h"
#include "fetch/part_file.h"
#include "fetch/registry_auth.h"
#include "fetch/sources.h"
#include "fetch/target_layout.h"

namespace tierpack::fetch {

namespace fs = std::filesystem;

namespace {

// A client for one source and what it lists.
struct OpenSource {
  FetchOptions options;
  Environment environment;
  HttpSettings http;
  SourceOptions sources;
  Reference reference;
  HttpClient client;
  Listing listing;
};

OpenSource open_source(const std::string& text, const std::string& endpoint, const NetworkOptions& network) {
  FetchOptions options;
  static_cast<NetworkOptions&>(options) = network;
  const Environment environment = read_environment();
  if (environment.offline) {
    fail(ErrorKind::kUsage, "{} cannot be asked: HF_HUB_OFFLINE forbids the network", text);
  }
  const Reference reference = parse_reference(text);
  const bool moved = !network.endpoint.empty() || !environment.hf_endpoint.empty();
  if (!moved && (reference.kind == ReferenceKind::kHuggingFace || reference.kind == ReferenceKind::kModelScope)) {
    options.endpoint = endpoint;
  }
  const HttpSettings http = http_settings(options, environment);
  const SourceOptions sources = source_options(options, http);
  const auto base = endpoint_for(reference, sources, environment);
  HttpClient client(http, gather_credentials(reference, base, sources, environment), sources.retry);
  client.set_on_retry([](const std::string& line) { log_warning(line); });
  Listing listing = list_source(client, reference, base, sources);
  return {options, environment, http, sources, reference, std::move(client), std::move(listing)};
}

// The listed files with these paths, in the order of `paths`.
void keep_named(const std::vector<std::string>& paths, Listing& listing) {
  std::map<std::string, RemoteFile*> by_path;
  for (RemoteFile& file : listing.files) by_path[file.path] = &file;
  std::vector<RemoteFile> kept;
  for (const std::string& path : paths) {
    const auto at = by_path.find(path);
    if (at == by_path.end()) fail(ErrorKind::kUsage, "{} lists no file '{}'", listing.source, path);
    kept.push_back(*at->second);
  }
  listing.files = std::move(kept);
}

std::string kept_name(const RemoteFile& file) { return state_name(file.path) + ".damaged"; }

// All of these are downloaded whole: what has their names now is no help, only what parts hold.
void require_space(const Directory& target, std::vector<DownloadTask> tasks) {
  for (DownloadTask& task : tasks) task.final_path = std::string(kStateDirectory) + "/" + kept_name(task.file) + ".none";
  const SpaceNeed need = space_need(target.path(), tasks);
  if (!need.fits()) {
    fail(ErrorKind::kCapacity, "{}: {}; a damaged file is kept until its replacement is proved; nothing was changed",
         target.path(), space_text(need, target.path()));
  }
}

// Moves the damaged file out of the way. Links and the like are left to the download, which refuses them by name.
void set_aside(const Directory& target, const Directory& state, const DownloadTask& task) {
  const auto [folder, name] = split_path(task.final_path);
  const auto directory = target.find_below(folder);
  if (!directory || directory->kind(name) != EntryKind::kRegular) return;
  directory->rename_into(name, state, kept_name(task.file), true);
}

}  // namespace

PromisedList list_promises(const std::string& reference, const std::string& endpoint, const Selection& selection,
                           const NetworkOptions& options) {
  OpenSource source = open_source(reference, endpoint, options);
  Listing& listing = source.listing;
  select_files(selection, listing);
  check_listing(listing);
  PromisedList out{.source = listing.source, .revision = listing.revision, .reference = reference, .files = {}};
  // A branch may move on; a commit does not.
  if (source.reference.kind == ReferenceKind::kHuggingFace) out.reference = source.reference.text + "@" + listing.revision;
  const std::string origin = source.reference.kind == ReferenceKind::kHuggingFace ? out.reference : reference;
  for (const RemoteFile& file : listing.files) {
    out.files.push_back({.path = file.path,
                         .bytes = file.size,
                         .sha256 = file.sha256,
                         .git_sha1 = file.git_sha1,
                         .hash_origin = file.hash_origin,
                         .origin = origin});
  }
  return out;
}

std::vector<RefetchedFile> refetch(const RefetchRequest& request, const NetworkOptions& options) {
  OpenSource source = open_source(request.reference, request.endpoint, options);
  Listing& listing = source.listing;
  keep_named(request.paths, listing);
  check_listing(listing);
  add_mirrors(source.client, source.reference, source.sources, source.environment, listing);
  const TargetLayout layout{.target = request.directory, .is_cache = request.is_cache};
  std::vector<DownloadTask> tasks = make_tasks(listing, std::nullopt);
  for (DownloadTask& task : tasks) task.final_path = layout.final_path(task.file);

  const Directory target = Directory::open(layout.target, false);
  LockedState locked = acquire_state(target, false);
  require_space(target, tasks);
  for (const DownloadTask& task : tasks) set_aside(target, locked.state, task);
  DownloadOptions download = download_options(source.options, source.http);
  download.has_hub_headers = listing.has_hub_headers;
  if (listing.has_hub_headers) download.expected_commit = listing.revision;
  download.renew_token = [&](const Url& url, const ResponseHead& denied) {
    return registry_token(source.client, url, denied);
  };
  FetchView view(false);
  std::vector<FileOutcome> outcomes;
  try {
    outcomes = download_files(target, tasks, download, source.client.credentials(), view);
  } catch (const Error& e) {
    view.clear();
    if (e.kind() != ErrorKind::kInterrupted) throw;
    fail(ErrorKind::kInterrupted, "interrupted; damaged files and what has arrived are kept in {}, the same command continues",
         locked.state.path());
  }
  view.clear();

  std::vector<RefetchedFile> out;
  bool complete = true;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const FileOutcome& outcome = outcomes[i];
    RefetchedFile file{.path = tasks[i].file.path,
                       .bytes = outcome.size,
                       .downloaded_bytes = outcome.downloaded_bytes,
                       .failure = std::nullopt,
                       .message = outcome.message,
                       .kept_as = {}};
    if (outcome.status == FileOutcome::Status::kFailed) {
      complete = false;
      file.failure = outcome.kind;
      if (locked.state.kind(kept_name(tasks[i].file)) == EntryKind::kRegular) {
        file.kept_as = locked.state.path_of(kept_name(tasks[i].file));
      }
    } else {
      locked.state.remove(kept_name(tasks[i].file));
    }
    out.push_back(std::move(file));
  }
  if (complete) {
    if (layout.is_cache) link_snapshot(target, listing, listing.revision);
    clear_state(target, locked, tasks);
  }
  return out;
}

}  // namespace tierpack::fetch

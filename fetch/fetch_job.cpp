#include "fetch/fetch_job.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "fetch/directory_lock.h"
#include "fetch/download.h"
#include "fetch/fetch_plan.h"
#include "fetch/fetch_view.h"
#include "fetch/hubs.h"
#include "fetch/part_file.h"
#include "fetch/registry_auth.h"
#include "fetch/sources.h"

namespace tierpack::fetch {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPinName = "pinned";

HttpSettings http_settings(const FetchOptions& options, const Environment& environment) {
  HttpSettings http;
  http.user_agent = std::string("tierpack/") + TIERPACK_VERSION;
  http.connect_timeout_s = options.connect_timeout_s;
  http.stall_timeout_s = options.stall_timeout_s;
  http.ca_file = options.ca_file.empty() ? environment.ca_file : options.ca_file;
  http.ca_directory = options.ca_file.empty() ? environment.ca_directory : "";
  http.insecure = options.insecure;
  http.ip_version = options.ipv4 ? 4 : options.ipv6 ? 6 : 0;
  http.allow_private_redirects = options.allow_private;
  if (options.insecure) log_warning("--insecure: certificates are not verified; only the hashes protect what is fetched");
  return http;
}

DownloadOptions download_options(const FetchOptions& options, const HttpSettings& http) {
  DownloadOptions out;
  out.http = http;
  out.retry.attempts = options.retries;
  out.retry.first_wait_s = options.retry_wait_s;
  out.files_at_once = options.jobs;
  if (options.connections != "auto") {
    const auto number = parse_decimal(options.connections);
    if (!number || *number < 1 || *number > 256) fail(ErrorKind::kUsage, "--connections: a number up to 256, or auto");
    out.connections = static_cast<int>(*number);
  }
  if (!options.range_size.empty()) {
    out.range_bytes = parse_size(options.range_size);
    if (out.range_bytes < 4096) fail(ErrorKind::kUsage, "--range-size: at least 4K");
  }
  if (!options.limit_rate.empty()) {
    out.limit_bytes_per_s = parse_size(options.limit_rate);
    if (out.limit_bytes_per_s == 0) fail(ErrorKind::kUsage, "--limit-rate: at least 1 byte per second");
    // A slow link is not a stalled one.
    out.http.stall_bytes_per_s = std::clamp<uint64_t>(out.limit_bytes_per_s / 64, 1, out.http.stall_bytes_per_s);
    out.http.receive_buffer_bytes = std::clamp<uint64_t>(out.limit_bytes_per_s / 16, 16 << 10, 512 << 10);
  }
  out.hash_threads = std::clamp(usable_cores(), 1, options.jobs);
  const mode_t mask = ::umask(022);
  ::umask(mask);
  out.file_mode = 0644 & ~mask;
  out.replace = options.force;
  out.reread = options.reread;
  out.accept_unknown_size = options.accept_unknown_size;
  out.check_structure = !options.no_structure_check;
  return out;
}

// The most telling failure decides: wrong bytes, then no room, then a refusal, then the network.
int exit_code_of(const std::vector<FileOutcome>& outcomes) {
  static constexpr ErrorKind kOrder[] = {ErrorKind::kCorrupt, ErrorKind::kCapacity, ErrorKind::kIo, ErrorKind::kRefused,
                                         ErrorKind::kNetwork};
  for (const ErrorKind kind : kOrder) {
    for (const FileOutcome& outcome : outcomes) {
      if (outcome.status == FileOutcome::Status::kFailed && outcome.kind == kind) return exit_code(kind);
    }
  }
  const bool any = std::any_of(outcomes.begin(), outcomes.end(),
                               [](const FileOutcome& o) { return o.status == FileOutcome::Status::kFailed; });
  return any ? 1 : 0;
}

std::optional<Lock> read_earlier_lock(const fs::path& path) {
  std::error_code code;
  if (!fs::is_regular_file(path, code)) return std::nullopt;
  try {
    return read_lock(path);
  } catch (const Error& e) {
    log_warning(fmt::format("{}; it will be replaced", e.what()));
    return std::nullopt;
  }
}

// An unfinished fetch of a moving revision is continued at the commit it began with.
struct Pin {
  static std::string encode(const std::string& source, const std::string& asked, const std::string& commit) {
    return source + "\n" + asked + "\n" + commit + "\n";
  }
  static std::optional<std::string> read(const fs::path& target, const Reference& reference) {
    try {
      const auto state = Directory::open(target, false).find_below(kStateDirectory);
      const auto text = state ? state->read_small(kPinName, 4096) : std::nullopt;
      const std::string head = reference.text + "\n" + reference.revision + "\n";
      if (!text || !text->starts_with(head) || !text->ends_with("\n")) return std::nullopt;
      const std::string commit = text->substr(head.size(), text->size() - head.size() - 1);
      const bool is_commit = commit.size() == 40 && commit.find_first_not_of("0123456789abcdef") == std::string::npos;
      return is_commit ? std::optional(commit) : std::nullopt;
    } catch (const Error&) {
      return std::nullopt;  // no such directory yet
    }
  }
};

struct LockedState {
  Directory state;
  DirectoryLock lock;
};

LockedState acquire(const Directory& directory, bool wait) {
  std::string holder;
  for (bool told = false;; told = true) {
    Directory state = directory.below(kStateDirectory, true);
    if (auto lock = DirectoryLock::try_acquire(state, holder)) return {std::move(state), std::move(*lock)};
    if (holder.empty()) continue;
    if (!wait) {
      fail(ErrorKind::kIo, "another fetch is working in {} ({}); wait for it, or give --wait", state.path(), holder);
    }
    if (!told) log_info(fmt::format("waiting for another fetch in {} ({})", state.path(), holder));
    sleep_interruptibly(0.5);
  }
}

// After a complete fetch: what killed runs left of the files that are now there.
void sweep(const Directory& state, const std::vector<DownloadTask>& tasks) {
  for (const DownloadTask& task : tasks) {
    for (const char* kind : {".part", ".journal", ".corrupt"}) state.remove(state_name(task.file.path) + kind);
  }
  for (const std::string& name : state.names()) {
    if (name.find(".tmp-") != std::string::npos) state.remove(name);
  }
}

// The default place is written by way of the state directory, so that a kill leaves nothing beside the files.
void save_lock(const Lock& lock, const std::string& path, const Directory& directory, const Directory& state) {
  if (!path.empty()) return write_lock(path, lock);
  state.write_atomically(kLockFileName, encode_lock(lock), 0644);
  state.rename_into(kLockFileName, directory, kLockFileName, true);
}

int check_offline(const FetchOptions& options, const Reference& reference, const fs::path& target, FetchView& view) {
  const fs::path lock_path = reference.kind == ReferenceKind::kLock ? fs::path(reference.path)
                             : !options.lock.empty()                ? fs::path(options.lock)
                                                                    : target / kLockFileName;
  std::error_code code;
  if (!fs::exists(lock_path, code)) {
    fail(ErrorKind::kCorrupt, "offline: there is no {} to check {} against", lock_path.string(), target.string());
  }
  const Lock lock = read_lock(lock_path);
  Listing listing = list_lock(lock, std::nullopt);
  if (reference.kind != ReferenceKind::kLock && lock.source != reference.text) {
    fail(ErrorKind::kCorrupt, "offline: {} holds {}, not {}", target.string(), lock.source, reference.text);
  }
  if (!reference.revision.empty() && lock.revision != reference.revision && reference.revision.size() == 40) {
    fail(ErrorKind::kCorrupt, "offline: {} holds revision {}, not {}", target.string(), lock.revision, reference.revision);
  }
  select_files(options.selection, listing);
  check_listing(listing);
  std::vector<DownloadTask> tasks;
  for (const RemoteFile& file : listing.files) tasks.push_back({.file = file, .final_path = file.path, .local_copies = {}, .observed_before = {}});
  DownloadOptions download = download_options(options, {});
  download.offline = true;
  download.replace = false;
  download.hash_threads = usable_cores();
  download.files_at_once = std::max(options.jobs, download.hash_threads);
  const auto outcomes = download_files(Directory::open(target, false), tasks, download, {}, view);
  view.summary(outcomes, fmt::format("checked offline against {}", lock_path.string()));
  return exit_code_of(outcomes);
}

}  // namespace

int run_fetch(const FetchOptions& options) {
  const Environment environment = read_environment();
  Reference reference = parse_reference(options.reference);
  if (!options.revision.empty()) {
    if (reference.kind == ReferenceKind::kUrl || reference.kind == ReferenceKind::kLock) {
      fail(ErrorKind::kUsage, "--revision is for hub references");
    }
    reference = parse_reference(reference.text + (reference.kind == ReferenceKind::kOci ? ":" : "@") + options.revision);
  }
  fs::path target = options.to;
  if (target.empty()) {
    if (reference.kind != ReferenceKind::kLock) fail(ErrorKind::kUsage, "--to DIR is missing: where should the files go?");
    target = fs::absolute(reference.path).parent_path();
  }
  FetchView view(options.json);
  if (options.offline || environment.offline) return check_offline(options, reference, target, view);

  SourceOptions source_options;
  source_options.http = http_settings(options, environment);
  source_options.retry.attempts = options.retries;
  source_options.retry.first_wait_s = options.retry_wait_s;
  source_options.endpoint = options.endpoint;
  source_options.token_file = options.token_file;
  source_options.send_token = options.send_token;
  source_options.mirrors = options.mirrors;
  if (!options.sha256.empty()) {
    Sha256Digest digest;
    if (!from_hex(options.sha256, digest.bytes)) fail(ErrorKind::kUsage, "--sha256: 64 hex digits are expected");
    source_options.sha256 = digest;
  }
  const auto endpoint = endpoint_for(reference, source_options, environment);
  HttpClient client(source_options.http, gather_credentials(reference, endpoint, source_options, environment),
                    source_options.retry);
  client.set_on_retry([](const std::string& line) { log_warning(line); });

  const Reference asked = reference;
  if (const auto commit = Pin::read(target, reference); commit && reference.kind == ReferenceKind::kHuggingFace) {
    view.note(fmt::format("continuing at commit {}", commit->substr(0, 12)));
    reference.revision = *commit;
  }
  Listing listing = list_source(client, reference, endpoint, source_options);
  select_files(options.selection, listing);
  check_listing(listing);
  warn_incomplete_sets(listing);
  add_mirrors(client, reference, source_options, listing);

  const fs::path lock_path = options.lock.empty() ? target / kLockFileName : fs::path(options.lock);
  const auto earlier = read_earlier_lock(lock_path);
  const std::vector<DownloadTask> tasks = make_tasks(listing, earlier);
  if (options.dry_run) {
    const SpaceNeed need = space_need(target, tasks);
    print_plan(listing, tasks, target, need, options.json);
    return need.fits() ? 0 : exit_code(ErrorKind::kCapacity);
  }

  const SpaceNeed need = space_need(target, tasks);
  view.listing(listing, need.total);
  if (!need.fits() && !options.no_space_check) {
    fail(ErrorKind::kCapacity, "{}: {}; nothing was written (--no-space-check begins anyway)", listing.source,
         space_text(need, target));
  }

  const Directory directory = Directory::open(target, true);
  auto [state, lock] = acquire(directory, options.wait);
  if (reference.kind == ReferenceKind::kHuggingFace) {
    state.write_atomically(kPinName, Pin::encode(asked.text, asked.revision, listing.revision), 0600);
  }

  DownloadOptions download = download_options(options, source_options.http);
  download.has_hub_headers = listing.has_hub_headers;
  if (listing.has_hub_headers) download.expected_commit = listing.revision;
  download.renew_token = [&client](const Url& url, const ResponseHead& denied) {
    return registry_token(client, url, denied);
  };
  std::vector<FileOutcome> outcomes;
  try {
    outcomes = download_files(directory, tasks, download, client.credentials(), view);
  } catch (const Error& e) {
    view.note("");
    if (e.kind() != ErrorKind::kInterrupted) throw;
    fail(ErrorKind::kInterrupted, "interrupted; what has arrived is kept in {}, the same command continues",
         directory.path_of(kStateDirectory));
  }
  const int code = exit_code_of(outcomes);
  if (code == 0) {
    save_lock(make_lock(listing, tasks, outcomes, earlier), options.lock, directory, state);
    state.remove(kPinName);
    sweep(state, tasks);
    lock.release_and_remove(state);
    directory.remove_directory(kStateDirectory);
    view.summary(outcomes, fmt::format("locked in {}", lock_path.string()));
  } else {
    view.summary(outcomes, "no lock was written; the same command tries again");
  }
  return code;
}

}  // namespace tierpack::fetch

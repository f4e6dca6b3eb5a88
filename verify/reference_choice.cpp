#include "verify/reference_choice.h"

#include <algorithm>

#include "base/error.h"
#include "formats/lock.h"

namespace tierpack::verify {

namespace fs = std::filesystem;

namespace {

PromisedList ask(const VerifyOptions& options, const std::string& reference, const std::string& endpoint) {
  if (!options.remote.list) fail(ErrorKind::kUsage, "{} cannot be asked without a network", reference);
  return options.remote.list(reference, endpoint, options.selection);
}

// What to ask for the list that a lock pinned.
std::string reference_of_lock(const Lock& lock, const fs::path& path) {
  if (!is_remote_reference(lock.source)) {
    fail(ErrorKind::kUsage, "{}: its source '{}' cannot be asked again; give --against a reference", path.string(), lock.source);
  }
  const bool is_url = lock.source.find("://") != std::string::npos;
  return is_url || lock.revision.empty() ? lock.source : lock.source + "@" + lock.revision;
}

std::optional<Lock> find_lock(const fs::path& directory) {
  const fs::path path = directory / kLockFileName;
  return fs::is_regular_file(path) ? std::optional(read_lock(path)) : std::nullopt;
}

void keep_only(const std::vector<LockFile>& locked, Reference& reference) {
  std::set<std::string> paths;
  for (const LockFile& file : locked) paths.insert(file.path);
  std::erase_if(reference.files, [&](const PromisedFile& file) { return paths.count(file.path) == 0; });
}

void take_lock_as_source(const fs::path& path, const Lock& lock, ChosenReference& out) {
  out.repair_from = path.string();
  for (const LockFile& file : lock.files) out.repairable.insert(file.path);
}

void take_list_as_source(const PromisedList& list, const std::string& endpoint, ChosenReference& out) {
  out.repair_from = list.reference;
  out.repair_endpoint = endpoint;
  for (const PromisedFile& file : list.files) out.repairable.insert(file.path);
}

// The lock says which files, the hub says what they must be.
void choose_hub(const VerifyOptions& options, const fs::path& directory, ChosenReference& out) {
  const fs::path path = directory / kLockFileName;
  const std::optional<Lock> lock = find_lock(directory);
  if (!lock) {
    fail(ErrorKind::kUsage, "--against hub: there is no {} to say which hub; give a reference such as hf:ORG/NAME", path.string());
  }
  const PromisedList list = ask(options, reference_of_lock(*lock, path), lock->endpoint);
  const Reference listed = reference_of(list);
  out.reference.emplace();
  out.reference->origins = listed.origins;
  bool agrees = true;
  for (const LockFile& file : lock->files) {
    if (!options.selects(file.path)) continue;
    const PromisedFile* at = listed.find(file.path);
    if (at == nullptr) {  // a registry names its blobs after the tag that was asked for
      const auto same = std::find_if(listed.files.begin(), listed.files.end(),
                                     [&](const PromisedFile& item) { return item.sha256 == file.sha256; });
      if (same != listed.files.end()) at = &*same;
    }
    if (at == nullptr) {
      agrees = false;
      out.findings.push_back({Finding::Kind::kStructure, kLockFileName,
                              fmt::format("names '{}', which {} does not list", file.path, list.reference)});
      continue;
    }
    PromisedFile promise = *at;
    promise.path = file.path;
    const bool other = (promise.sha256 && *promise.sha256 != file.sha256) || (promise.bytes && *promise.bytes != file.size) ||
                       (promise.git_sha1 && file.git_sha1 && *promise.git_sha1 != *file.git_sha1);
    if (other) {
      agrees = false;
      out.findings.push_back({Finding::Kind::kStructure, kLockFileName,
                              fmt::format("says of '{}' {} bytes with SHA-256 {}, but {} lists {}", file.path, file.size,
                                          file.sha256.hex(), list.reference,
                                          promise.sha256 ? "SHA-256 " + promise.sha256->hex() : "other content")});
    }
    if (!promise.sha256 && !promise.git_sha1) {  // the source publishes nothing: what was observed is all there is
      promise.sha256 = file.sha256;
      promise.hash_origin = file.hash_origin;
      promise.origin = path.string();
    }
    out.reference->files.push_back(std::move(promise));
  }
  agrees ? take_lock_as_source(path, *lock, out) : take_list_as_source(list, lock->endpoint, out);
}

void choose_remote(const VerifyOptions& options, const fs::path& directory, ChosenReference& out) {
  const PromisedList list = ask(options, options.against, "");
  out.reference = reference_of(list);
  // Whoever fetched one quantisation of twenty does not miss the others: a lock of the same source says what was wanted.
  const std::optional<Lock> lock = find_lock(directory);
  if (lock && lock->source == list.source && options.selection.is_everything()) keep_only(lock->files, *out.reference);
  const bool other_revision = lock && lock->source == list.source && lock->revision != list.revision;
  if (options.repair && other_revision) {
    fail(ErrorKind::kUsage, "{} pins revision {}, {} is {}: that is an update, not a repair; use tierpack fetch {} --to {} --force",
         (directory / kLockFileName).string(), lock->revision, options.against, list.revision, options.against,
         directory.string());
  }
  take_list_as_source(list, "", out);
}

void choose_file(const fs::path& path, ChosenReference& out) {
  if (fs::is_directory(path)) {
    out.reference = find_reference(path);
    if (!out.reference) fail(ErrorKind::kUsage, "--against {}: there is no {} or {} in it", path.string(), kLockFileName, kSumsFileName);
    if (const auto lock = find_lock(path)) take_lock_as_source(path / kLockFileName, *lock, out);
    return;
  }
  if (!fs::exists(path)) {
    fail(ErrorKind::kUsage, "--against {}: there is no such file, and it is not \"hub\" or a reference such as hf:ORG/NAME", path.string());
  }
  out.reference = read_reference(path);
  if (std::any_of(out.reference->files.begin(), out.reference->files.end(), [](const PromisedFile& f) { return f.bytes.has_value(); })) {
    take_lock_as_source(path, read_lock(path), out);
  }
}

}  // namespace

ChosenReference choose_reference(const VerifyOptions& options, const fs::path& directory) {
  ChosenReference out;
  out.cache = find_hub_cache(options.path);
  if (out.cache && !options.against.empty()) {
    fail(ErrorKind::kUsage, "{}: a repository in the hub's cache is held against the names of its blobs, which are their hashes; leave "
         "out --against", options.path.string());
  }
  if (options.against == "hub") {
    choose_hub(options, directory, out);
  } else if (is_remote_reference(options.against)) {
    choose_remote(options, directory, out);
  } else if (!options.against.empty()) {
    choose_file(options.against, out);
  } else if (out.cache) {
    out.reference = hub_cache_reference(*out.cache);
  } else if ((out.reference = find_reference(directory))) {
    if (const auto lock = find_lock(directory)) take_lock_as_source(directory / kLockFileName, *lock, out);
  }
  if (out.reference && !options.selection.is_everything()) {
    std::erase_if(out.reference->files, [&](const PromisedFile& file) { return !options.selects(file.path); });
    if (out.reference->files.empty()) fail(ErrorKind::kUsage, "{}: --include and --exclude leave no file", options.path.string());
  }
  return out;
}

Reference read_against(const VerifyOptions& options) {
  if (is_remote_reference(options.against)) return reference_of(ask(options, options.against, ""));
  if (options.against == "hub") {
    fail(ErrorKind::kUsage, "--against hub: a pack does not record where its source came from; give hf:ORG/NAME or a lock");
  }
  return read_reference(options.against);
}

}  // namespace tierpack::verify

#include "fetch/target_layout.h"

#include <algorithm>

#include "base/error.h"
#include "formats/lock.h"

namespace tierpack::fetch {

namespace fs = std::filesystem;

namespace {

std::string repository_folder(const Reference& reference) {
  const char* type = reference.type == RepoType::kDataset ? "datasets" : reference.type == RepoType::kSpace ? "spaces" : "models";
  std::string name = reference.repo;
  for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/')) name.replace(slash, 1, "--");
  return std::string(type) + "--" + name;
}

std::string etag_of(const RemoteFile& file) {
  return file.sha256 && file.hash_origin == "hub" ? file.sha256->hex() : file.git_sha1.value_or("");
}

}  // namespace

std::string TargetLayout::final_path(const RemoteFile& file) const {
  if (!is_cache) return file.path;
  const std::string etag = etag_of(file);
  if (etag.empty()) fail(ErrorKind::kUnsupported, "{}: the hub gives no hash that could name it in its cache", file.path);
  return "blobs/" + etag;
}

std::string TargetLayout::lock_name(const std::string& revision) const {
  return is_cache ? fmt::format("tierpack-{}.lock.json", revision) : kLockFileName;
}

fs::path TargetLayout::visible_path(const std::string& revision) const {
  return is_cache ? target / "snapshots" / revision : target;
}

TargetLayout plain_layout(const fs::path& target) { return {.target = target, .is_cache = false}; }

TargetLayout cache_layout(const fs::path& cache, const Reference& reference) {
  if (reference.kind != ReferenceKind::kHuggingFace) {
    fail(ErrorKind::kUsage, "--hf-cache is for hf: references; other sources have no place in that cache");
  }
  return {.target = cache / repository_folder(reference), .is_cache = true};
}

void link_snapshot(const Directory& repository, const Listing& listing, const std::string& asked_revision) {
  const Directory snapshot = repository.below("snapshots/" + listing.revision, true);
  for (const RemoteFile& file : listing.files) {
    const auto [folder, name] = split_path(file.path);
    std::string up = "../../";
    for (const char c : file.path) up += c == '/' ? "../" : "";
    snapshot.below(folder, true).make_link(name, up + "blobs/" + etag_of(file));
  }
  const std::string revision = asked_revision.empty() ? "main" : asked_revision;
  if (revision == listing.revision || !is_safe_relative_path(revision)) return;
  const auto [folder, name] = split_path(revision);
  repository.below(folder.empty() ? "refs" : "refs/" + folder, true).write_atomically(name, listing.revision, 0644);
}

std::vector<fs::path> cached_copies(const fs::path& cache, const Reference& reference, const RemoteFile& file) {
  if (reference.kind != ReferenceKind::kHuggingFace || etag_of(file).empty()) return {};
  const fs::path blob = cache / repository_folder(reference) / "blobs" / etag_of(file);
  std::error_code code;
  if (!fs::is_regular_file(blob, code) || fs::file_size(blob, code) != file.size.value_or(UINT64_MAX)) return {};
  return {blob};
}

}  // namespace tierpack::fetch

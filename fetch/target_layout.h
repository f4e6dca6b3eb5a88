// Where files go: a plain directory that mirrors the repository, or the hub's own cache, which other tools read.
//
// The cache: ROOT/models--ORG--NAME/{blobs/ETAG, snapshots/COMMIT/PATH -> ../../blobs/ETAG, refs/REVISION}. ETAG is the
// SHA-256 of large files and the git blob id of small ones, as the hub tags them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fetch/directory.h"
#include "fetch/download.h"
#include "fetch/listing.h"
#include "fetch/source_reference.h"

namespace tierpack::fetch {

struct TargetLayout {
  std::filesystem::path target;  // what final paths are relative to, and where the state directory is
  bool is_cache = false;

  // Below `target`. Throws kUnsupported for a file without the hash that names it in a cache.
  std::string final_path(const RemoteFile& file) const;
  std::string lock_name(const std::string& revision) const;
  // For the last message: where the user finds the files.
  std::filesystem::path visible_path(const std::string& revision) const;
};

TargetLayout plain_layout(const std::filesystem::path& target);
// Throws kUsage for a reference that is not a Hugging Face repository.
TargetLayout cache_layout(const std::filesystem::path& cache, const Reference& reference);

// After a complete fetch into a cache: links of the snapshot, and the revision's ref if it is not the commit itself.
void link_snapshot(const Directory& repository, const Listing& listing, const std::string& asked_revision);

// The blob of this file in the hub's cache at `cache`, if there is one: a candidate to copy, its name proves nothing.
std::vector<std::filesystem::path> cached_copies(const std::filesystem::path& cache, const Reference& reference,
                                                 const RemoteFile& file);

}  // namespace tierpack::fetch

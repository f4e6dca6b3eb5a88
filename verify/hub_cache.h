// The hub's own cache as something to verify: REPOSITORY/{blobs/ETAG, snapshots/COMMIT/PATH -> ../../blobs/ETAG, refs/}.
// A blob's name is the SHA-256 of its content, or the git blob id of a small file, so the cache proves itself: no list is
// needed, whichever tool wrote it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "verify/promises.h"

namespace tierpack::verify {

struct HubCache {
  std::filesystem::path repository;  // .../models--ORG--NAME
  std::string reference;             // "hf:ORG/NAME", to repair from; "" when the folder's name is not of that form
  std::string revision;              // only this snapshot; "" = all
};

// Recognises a repository's folder, or one snapshot in it (.../snapshots/COMMIT).
std::optional<HubCache> find_hub_cache(const std::filesystem::path& path);

// What the names promise, paths relative to the repository: "snapshots/COMMIT/PATH" once per blob, and "blobs/ETAG" for
// blobs that no snapshot names. Links that lead out of blobs/ promise nothing and are left out.
Reference hub_cache_reference(const HubCache& cache);

}  // namespace tierpack::verify

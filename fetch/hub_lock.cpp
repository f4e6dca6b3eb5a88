// A lock as a source: everything is known, nothing is asked.
#include "base/error.h"
#include "base/printable.h"
#include "fetch/hubs.h"

namespace tierpack::fetch {

Listing list_lock(const Lock& lock, const std::optional<Url>& endpoint) {
  Listing listing;
  listing.source = lock.source;
  listing.revision = lock.revision;
  listing.has_hub_headers = lock.source.starts_with("hf:");
  listing.endpoint = endpoint ? endpoint->origin().text() + (endpoint->path() == "/" ? "" : endpoint->path())
                              : lock.endpoint;
  for (const LockFile& locked : lock.files) {
    RemoteFile file{.path = locked.path,
                    .size = locked.size,
                    .sha256 = locked.sha256,
                    .hash_origin = locked.hash_origin,
                    .git_sha1 = locked.git_sha1,
                    .urls = {},
                    .validator = {}};
    if (endpoint && lock.source.starts_with("hf:")) {
      file.urls.push_back(huggingface_file_url(*endpoint, lock.source, lock.revision, locked.path));
    } else if (endpoint && lock.source.starts_with("ms:")) {
      file.urls.push_back(modelscope_file_url(*endpoint, lock.source, lock.revision, locked.path));
    } else if (endpoint && (lock.source.starts_with("oci:") || lock.source.starts_with("ollama:"))) {
      file.urls.push_back(registry_blob_url(*endpoint, lock.source, locked.sha256));
    } else {
      if (endpoint) fail(ErrorKind::kUsage, "--endpoint is for locks of hubs and registries; {} may take a --mirror", lock.source);
      auto url = Url::parse(locked.url);
      if (!url) fail(ErrorKind::kCorrupt, "{}: the lock's URL '{}' is not one", locked.path, printable(locked.url));
      file.urls.push_back(*std::move(url));
    }
    listing.files.push_back(std::move(file));
  }
  return listing;
}

}  // namespace tierpack::fetch

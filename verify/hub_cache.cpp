#include "verify/hub_cache.h"

#include <algorithm>
#include <set>

#include "formats/lock.h"

namespace tierpack::verify {

namespace fs = std::filesystem;

namespace {

bool is_lower_hex(const std::string& text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// "models--ORG--NAME" -> "hf:ORG/NAME".
std::string reference_of_folder(const std::string& folder) {
  const size_t type_end = folder.find("--");
  if (type_end == std::string::npos) return {};
  const std::string type = folder.substr(0, type_end);
  std::string name = folder.substr(type_end + 2);
  if (const size_t at = name.find("--"); at != std::string::npos) name.replace(at, 2, "/");
  if (type == "models") return "hf:" + name;
  if (type == "datasets" || type == "spaces") return "hf:" + type + "/" + name;
  return {};
}

// The promise that a blob's name makes; nullopt for other names, such as those of unfinished downloads.
std::optional<PromisedFile> promise_of_blob(const std::string& etag, const std::string& path, const std::string& origin) {
  PromisedFile promise{.path = path, .hash_origin = "cache", .origin = origin};
  if (is_lower_hex(etag, 64)) {
    promise.sha256 = Sha256Digest::from_hex(etag);
  } else if (is_lower_hex(etag, 40)) {
    promise.git_sha1 = etag;
  } else {
    return std::nullopt;
  }
  return promise;
}

}  // namespace

std::optional<HubCache> find_hub_cache(const fs::path& path) {
  std::error_code code;
  fs::path at = fs::absolute(path).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();
  HubCache out;
  if (at.parent_path().filename() == "snapshots") {
    out.revision = at.filename().string();
    at = at.parent_path().parent_path();
  }
  if (!fs::is_directory(at / "blobs", code) || !fs::is_directory(at / "snapshots", code)) return std::nullopt;
  out.repository = at;
  out.reference = reference_of_folder(at.filename().string());
  return out;
}

Reference hub_cache_reference(const HubCache& cache) {
  Reference out;
  const std::string origin = (cache.repository / "blobs").string();
  out.origins.push_back(origin);
  std::set<std::string> named;
  const fs::path snapshots = cache.repository / "snapshots";
  const fs::path from = cache.revision.empty() ? snapshots : snapshots / cache.revision;
  std::vector<fs::path> links;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(from)) {
    if (entry.is_symlink()) links.push_back(entry.path());
  }
  std::sort(links.begin(), links.end());
  for (const fs::path& link : links) {
    const fs::path target = (link.parent_path() / fs::read_symlink(link)).lexically_normal();
    const std::string etag = target.filename().string();
    if (target.parent_path() != cache.repository / "blobs" || !named.insert(etag).second) continue;
    const std::string path = link.lexically_relative(cache.repository).generic_string();
    if (auto promise = promise_of_blob(etag, path, origin)) out.files.push_back(std::move(*promise));
  }
  if (cache.revision.empty()) {
    for (const fs::directory_entry& entry : fs::directory_iterator(cache.repository / "blobs")) {
      const std::string etag = entry.path().filename().string();
      if (named.count(etag) > 0) continue;
      if (auto promise = promise_of_blob(etag, "blobs/" + etag, origin)) out.files.push_back(std::move(*promise));
    }
  }
  std::sort(out.files.begin(), out.files.end(), [](const PromisedFile& a, const PromisedFile& b) { return a.path < b.path; });
  return out;
}

}  // namespace tierpack::verify

// What a source holds: the answer of every kind of hub, in one form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/digest.h"
#include "fetch/url.h"

namespace tierpack::fetch {

struct RemoteFile {
  std::string path;                    // safe relative path (check_listing has seen it)
  std::optional<uint64_t> size;        // nullopt: nobody said
  std::optional<Sha256Digest> sha256;  // promised by hash_origin
  std::string hash_origin = "observed";  // as in formats/lock.h
  std::optional<std::string> git_sha1;   // 40 hex digits
  // Where it can be had, best first. The first is what the lock records.
  std::vector<Url> urls;
  std::string validator;  // strong ETag of the first URL, when a probe saw one
};

struct Listing {
  std::string source;    // "hf:org/name", without revision
  std::string endpoint;  // base URL of the hub; "" for plain URLs
  std::string revision;  // pinned commit, "" if the source has none
  std::vector<RemoteFile> files;  // sorted by path
  // Hub answers (X-Repo-Commit, X-Linked-Etag, X-Linked-Size) are compared with the listing.
  bool has_hub_headers = false;
};

// Throws kCorrupt for a listing that must not be acted on: unsafe or reserved names, names that are equal or would be on
// a file system that ignores case, a file that is also a directory, too many entries.
void check_listing(const Listing& listing);

// Throws kCorrupt when there are more files than are believed; asked while pages arrive, before they fill the memory.
void check_count(const Listing& listing);

// Our own directory below the target, which no listed name may enter.
inline constexpr const char* kStateDirectory = ".tierpack";

}  // namespace tierpack::fetch

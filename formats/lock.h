// tierpack.lock.json: what exactly a source is. Written by fetch beside the files, read by fetch and verify.
//
// {"format": "tierpack-lock", "version": 1, "source": "hf:org/name", "endpoint": URL, "revision": commit or "",
//  "files": [{"path", "size", "sha256", "hash_origin", "git_sha1"?, "url"}]}
// hash_origin: "hub" (promised by the hub), "sums" (a SHA256SUMS file), "user" (--sha256), "observed" (nobody promised
// one; this is what arrived).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/digest.h"

namespace tierpack {

struct LockFile {
  std::string path;  // relative, '/'-separated, safe (see is_safe_relative_path)
  uint64_t size = 0;
  Sha256Digest sha256;
  std::string hash_origin;
  std::optional<std::string> git_sha1;  // 40 hex digits, for files the hub keeps in git
  std::string url;
};

struct Lock {
  std::string source;
  std::string endpoint;
  std::string revision;
  std::vector<LockFile> files;  // sorted by path
};

inline constexpr const char* kLockFileName = "tierpack.lock.json";

Lock parse_lock(std::string_view text, const std::string& source);
std::string encode_lock(const Lock& lock);
Lock read_lock(const std::filesystem::path& path);
void write_lock(const std::filesystem::path& path, const Lock& lock);  // atomic

// SHA256SUMS text ("<64 hex> [ *]<path>") as lock files without size (size 0 = unknown).
std::vector<LockFile> parse_sha256sums(std::string_view text, const std::string& source);

// A name from a server or a file may be used below a directory only if it is relative, has no empty, "." or ".."
// component, no NUL, backslash, control character or drive prefix, and no component longer than 255 bytes.
bool is_safe_relative_path(std::string_view path);

}  // namespace tierpack

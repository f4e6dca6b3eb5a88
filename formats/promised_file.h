// What somebody promises a file to be: the common form of locks, checksum files and the lists of hubs, so that fetch can
// ask for promises and verify can hold files against them without knowing each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/digest.h"

namespace tierpack {

struct PromisedFile {
  std::string path;  // relative, '/'-separated, safe (is_safe_relative_path)
  std::optional<uint64_t> bytes = {};
  std::optional<Sha256Digest> sha256 = {};
  std::optional<std::string> git_sha1 = {};  // 40 lower-case hex digits: the git blob id of a file that a hub keeps in git
  std::string hash_origin = {};              // of `sha256`, as in formats/lock.h
  std::string origin = {};                   // the reference that promises it, for messages
};

// The list of a source, asked anew.
struct PromisedList {
  std::string source;     // "hf:org/name"
  std::string revision;   // commit or digest, "" if the source has none
  std::string reference;  // what to ask for to get the same list again
  std::vector<PromisedFile> files;  // by path
};

}  // namespace tierpack

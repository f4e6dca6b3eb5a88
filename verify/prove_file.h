// Holds the content of one file against what is promised about it.
#pragma once

#include <functional>
#include <string>

#include "base/file.h"
#include "formats/promised_file.h"

namespace tierpack::verify {

struct FileProof {
  bool equal = false;
  std::string problem;  // when not equal: "has SHA-256 ..., ... promises ..."
  std::string proof;    // when equal: "SHA-256, promised by the hub"
};

// Hashes the whole file once, whatever its size, through a small buffer. `promise` has a SHA-256 or a git blob id; both are
// computed where the SHA-256 was only observed when the file arrived. `on_bytes` is told of progress and may throw.
FileProof prove_file(const File& file, const PromisedFile& promise, const std::function<void(uint64_t)>& on_bytes);

}  // namespace tierpack::verify

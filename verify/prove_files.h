// Holds the content of files against what is promised about them, at the speed of the machine.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/threads.h"
#include "formats/promised_file.h"

namespace tierpack::verify {

struct ProofTask {
  std::filesystem::path path;
  const PromisedFile* promise = nullptr;  // has a SHA-256 or a git blob id
};

struct FileProof {
  bool equal = false;
  std::string problem;     // when not equal: "has SHA-256 ..., ... promises ..."
  bool unreadable = false;  // `problem` is what the system said
  std::string proof;       // when equal: "SHA-256, promised by the hub"
};

// Reads every file once, whatever its size, through small buffers: a thread of `team` works on one file, or on two in step
// when there are more files than threads (base/sha256_lanes.h). `tasks` should be in order of size, largest first. Both
// hashes are computed where the SHA-256 was only observed when the file arrived. One proof per task, in order. `on_bytes`
// is told of progress on any thread and may throw, which ends everything.
std::vector<FileProof> prove_files(const std::vector<ProofTask>& tasks, ThreadTeam& team, const std::function<void(uint64_t)>& on_bytes);

}  // namespace tierpack::verify

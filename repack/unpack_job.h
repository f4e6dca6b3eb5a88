// The unpack command as a library call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/progress.h"
#include "formats/pack.h"

namespace tierpack::repack {

struct UnpackOptions {
  std::filesystem::path pack;
  std::filesystem::path directory;
  int jobs = 1;
  ProgressStyle progress = ProgressStyle::kSilent;
};

struct UnpackedShard {
  std::filesystem::path path;
  uint64_t bytes = 0;
  Sha256Digest sha256;
  bool written = false;  // false: a file with this SHA-256 was there already
};

// Restores every source shard. A shard is written as NAME.part, its SHA-256 compared with the pack's while it is
// written, synced and only then renamed. Throws kUsage before anything is written when a different file has a shard's
// name, kCapacity when the disk is too small, kCorrupt when the pack's bytes do not give the shard back.
std::vector<UnpackedShard> unpack(const UnpackOptions& options);

}  // namespace tierpack::repack

// Carries out a repack plan: one pass over the source that hashes it and copies every extent to its place, then one pass
// over what was written that proves it.
#pragma once

#include <filesystem>

#include "base/progress.h"
#include "base/threads.h"
#include "repack/repack_plan.h"
#include "repack/repack_source.h"

namespace tierpack::repack {

// Memory for copying with `threads` threads: two buffers a thread.
constexpr uint64_t copy_buffer_bytes(int threads, uint64_t extent_bytes_max) {
  return 2 * static_cast<uint64_t>(threads) * extent_bytes_max;
}

// Writes all files of the pack into `directory` (which exists and is empty), synced. The manifest returned is complete.
//
// What is proved on the way: each shard's SHA-256 is computed over the very buffers that are copied, and equals its
// promise where there is one; an XXH3-128 of every extent, taken from that buffer, equals the one of the bytes read back
// from the pack, over which record checksums and the files' SHA-256 are computed. Throws kCorrupt when a promise is
// broken or the source changes meanwhile, kCapacity when the disk is full.
//
// Extents of the plan are at most `extent_bytes_max` long; memory is copy_buffer_bytes() and nothing that grows with
// the model but the plan. `progress` is told the bytes of both passes.
PackManifest write_pack(const RepackSource& source, const RepackPlan& plan, const std::filesystem::path& directory,
                        uint64_t extent_bytes_max, ThreadTeam& team, Progress& progress);

// Only the hashes of the shards, in parallel.
std::vector<Sha256Digest> hash_shards(const RepackSource& source, ThreadTeam& team, Progress& progress);

}  // namespace tierpack::repack

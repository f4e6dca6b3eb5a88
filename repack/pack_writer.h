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
// promise where there is one. An XXH3-128 of every extent is taken from that buffer too, before rows are interleaved or packed
// into pages; it must equal the one of the bytes that are read back from the pack and put into the source's order again by
// the inverse, the same code that `unpack` uses. So a permutation is believed no more than a disk. Record checksums and the
// files' SHA-256 are computed over the bytes read back. Throws kCorrupt when a promise is broken or the source changes
// meanwhile, kCapacity when the disk is full.
//
// Block scales of quantised tensors must be finite, because every product with another is NaN or infinite: kCorrupt, unless
// `allow_nonfinite`. What is loaded later has the checksums of what was looked at here. MXFP4 and NVFP4 have no such scales.
//
// Extents of the plan are at most `extent_bytes_max` long; memory is copy_buffer_bytes() and nothing that grows with
// the model but the plan. `progress` is told the bytes of both passes.
PackManifest write_pack(const RepackSource& source, const RepackPlan& plan, const std::filesystem::path& directory,
                        uint64_t extent_bytes_max, bool allow_nonfinite, ThreadTeam& team, Progress& progress);

// Only the hashes of the shards, in parallel.
std::vector<Sha256Digest> hash_shards(const RepackSource& source, ThreadTeam& team, Progress& progress);

}  // namespace tierpack::repack

// Carries out a repack plan: one pass over the source that hashes it and copies every extent to its place, then one pass
// over what was written that proves it.
//
// What is proved on the way: each shard's SHA-256 is computed over the very buffers that are copied, and equals its promise where there is
// one. An XXH3-128 of every extent, and of every range that is gathered with others, is taken from that buffer too, before rows are
// interleaved, put together or packed into pages; it must equal the one of the bytes that are read back from the pack and put into the
// source's order again by the inverse, the same code that `unpack` uses. So a permutation is believed no more than a disk. Record checksums
// and the files' SHA-256 are computed over the bytes read back.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <mutex>

#include "base/progress.h"
#include "base/threads.h"
#include "repack/copy_journal.h"
#include "repack/extent_codec.h"
#include "repack/repack_plan.h"
#include "repack/repack_source.h"
#include "repack/transcode.h"

namespace tierpack::repack {

// Memory for copying with `threads` threads: four buffers a thread.
constexpr uint64_t copy_buffer_bytes(int threads, uint64_t extent_bytes_max) {
  return 4 * static_cast<uint64_t>(threads) * extent_bytes_max;
}

struct WriteOptions {
  uint64_t extent_bytes_max = 0;
  bool allow_nonfinite = false;
  uint32_t part = 0, parts = 1;  // this process writes share `part` of the source's bytes
  bool remove_sources = false;   // --in-place: delete each shard when its bytes have been read back from the pack
  // Called with a number of bytes after they were copied or read back, on any thread; what it throws ends the run.
  std::function<void(uint64_t)> on_bytes = {};
  const Transcoder* transcoder = nullptr;  // of plans that have transcoded tensors
};

// The files of a pack being written. Thread-safe.
class TargetFiles {
 public:
  // Opens or creates the segments in `directory`, each with its final size; disk space is reserved unless `sparse`.
  TargetFiles(const RepackPlan& plan, const std::filesystem::path& directory, bool sparse);
  bool has(Target target) const { return files_[static_cast<size_t>(target)].has_value(); }
  const File& file(Target target) const { return *files_[static_cast<size_t>(target)]; }
  // One write at a time to a file: threads that wait for the kernel's lock on it burn their processors.
  void write(Target target, uint64_t offset, Bytes bytes);
  void sync();
  void close();

 private:
  std::array<std::optional<File>, kTargets> files_;
  std::array<std::mutex, kTargets> writing_;
};

// Copies what `state` does not have yet. Block scales of quantised tensors must be finite, because every product with another is NaN or
// infinite: kCorrupt, unless allowed. Throws kCorrupt when a promise is broken or the source changes meanwhile, kCapacity when the disk is full.
void copy_source(const RepackSource& source, const RepackPlan& plan, const WriteOptions& options, TargetFiles& files, Journal& journal,
                 CopyState& state, ThreadTeam& team, Progress& progress);

// Reads everything back and writes the small files. `state` has all of the plan. The manifest returned is complete; all files are synced.
PackManifest prove_pack(const RepackPlan& plan, const CopyState& state, const WriteOptions& options, TargetFiles& files,
                        const std::filesystem::path& directory, ThreadTeam& team, Progress& progress);

// Whether the pack gives back what one shard had; the ranges are read from the files. Used before a shard is deleted.
bool shard_is_in_pack(const RepackPlan& plan, const CopyState& state, const WriteOptions& options, const TargetFiles& files, uint32_t shard,
                      ThreadTeam& team);

// Only the hashes of the shards, in parallel.
std::vector<Sha256Digest> hash_shards(const RepackSource& source, ThreadTeam& team, Progress& progress);

// Throws kCorrupt when a shard's SHA-256 is not what was promised.
void require_promised(const RepackSource& source, uint32_t shard, const Sha256Digest& digest);
// Throws kCorrupt when an input of a gather was not the same when it was read again.
void require_same_gathers(const RepackPlan& plan, const CopyState& state);

// The checksum of a gather, from those of its inputs.
Xxh128 gather_sum(std::span<const Xxh128> inputs);

}  // namespace tierpack::repack

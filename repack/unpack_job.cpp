#include "repack/unpack_job.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/threads.h"
#include "formats/packed_shard.h"
#include "repack/shard_file.h"
#include "verify/ordered_lanes.h"

namespace tierpack::repack {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;

// Hashes files that are there already; a different one is the user's.
void check_existing(std::vector<UnpackedShard>& shards, ThreadTeam& team) {
  team.for_each(shards.size(), [&](size_t i) {
    UnpackedShard& shard = shards[i];
    if (!fs::exists(shard.path)) {
      shard.written = true;
      return;
    }
    const File file = File::open(shard.path, File::Mode::kRead);
    const bool same = file.size() == shard.bytes &&
                      sha256_of(file, 0, shard.bytes, [](uint64_t) { throw_if_interrupted(); }) == shard.sha256;
    if (!same) {
      fail(ErrorKind::kUsage, "{}: exists and is not the shard of this name; move it away or choose another directory",
           shard.path.string());
    }
  });
}

}  // namespace

std::vector<UnpackedShard> unpack(const UnpackOptions& options) {
  const Pack pack = Pack::open(options.pack);
  if (!pack.manifest().reversible()) {
    fail(ErrorKind::kUnsupported, "{}: {} of its tensors were transcoded, so it does not give its source back; `tierpack gguf` writes what it holds",
         options.pack.string(), pack.manifest().transcoded.size());
  }
  ThreadTeam team(std::max(1, options.jobs));
  std::vector<UnpackedShard> shards;
  for (const SourceShard& shard : pack.manifest().sources) {
    shards.push_back({options.directory / shard.path, shard.bytes, shard.sha256, false});
  }
  fs::create_directories(options.directory);
  check_existing(shards, team);

  std::vector<size_t> todo;
  uint64_t needed = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    if (!shards[i].written) continue;
    todo.push_back(i);
    needed += shards[i].bytes;
  }
  std::vector<std::unique_ptr<PartFile>> parts;
  std::vector<std::unique_ptr<PackedShard>> readers;
  std::vector<uint64_t> counts;
  const uint64_t free = free_disk_bytes(options.directory);
  if (needed > free) {
    fail(ErrorKind::kCapacity, "{}: the shards need {}, but only {} are free there", options.directory.string(),
         format_size(needed), format_size(free));
  }
  for (const size_t i : todo) {
    parts.push_back(std::make_unique<PartFile>(shards[i].path, shards[i].bytes));
    readers.push_back(std::make_unique<PackedShard>(pack, i));
    counts.push_back(ceil_div(shards[i].bytes, kChunkBytes));
  }

  Progress progress("unpacking " + options.pack.string(), needed, options.progress);
  std::vector<Sha256> hashes(todo.size());
  std::vector<std::unique_ptr<std::byte[]>> buffers(static_cast<size_t>(team.size()));
  const auto chunk_of = [&](size_t lane, uint64_t chunk, int thread) {
    auto& buffer = buffers[static_cast<size_t>(thread)];
    if (!buffer) buffer = std::make_unique_for_overwrite<std::byte[]>(kChunkBytes);
    return MutableBytes(buffer.get(), std::min(kChunkBytes, readers[lane]->size() - chunk * kChunkBytes));
  };
  verify::run_ordered_lanes(
      team, counts,
      [&](size_t lane, uint64_t chunk, int thread) {
        const MutableBytes bytes = chunk_of(lane, chunk, thread);
        readers[lane]->read_at(chunk * kChunkBytes, bytes);
        parts[lane]->write_at(chunk * kChunkBytes, bytes);
      },
      [&](size_t lane, uint64_t chunk, int thread) {
        const MutableBytes bytes = chunk_of(lane, chunk, thread);
        hashes[lane].update(bytes);
        progress.add(bytes.size());
      });
  for (size_t lane = 0; lane < todo.size(); ++lane) {
    const UnpackedShard& shard = shards[todo[lane]];
    const Sha256Digest found = hashes[lane].finish();
    if (found != shard.sha256) {
      fail(ErrorKind::kCorrupt,
           "{}: gives back {} with SHA-256 {}, expected {}; the shard was not written. tierpack verify {} finds the damage",
           options.pack.string(), shard.path.filename().string(), found.hex(), shard.sha256.hex(), options.pack.string());
    }
  }
  for (const auto& part : parts) part->publish();
  return shards;
}

}  // namespace tierpack::repack

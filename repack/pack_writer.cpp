#include "repack/pack_writer.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/interrupt.h"
#include "formats/pack_layout.h"
#include "verify/ordered_lanes.h"
#include "verify/range_checksums.h"

namespace tierpack::repack {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kReadBackBytes = uint64_t{1} << 20;

// A run of whole extents of one shard that is read at once.
struct Chunk {
  size_t first = 0;  // extent
  size_t count = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

std::vector<Chunk> chunks_of(const std::vector<Extent>& extents, uint64_t bytes_max) {
  std::vector<Chunk> out;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (out.empty() || out.back().bytes + extents[i].source_bytes > bytes_max) {
      out.push_back({i, 0, extents[i].source_offset, 0});
    }
    ++out.back().count;
    out.back().bytes += extents[i].source_bytes;
  }
  return out;
}

// Rows as they lie in the source -> checksummed units of pages.
void fill_pages(const RowTable& table, const Extent& extent, Bytes rows, MutableBytes pages) {
  std::fill(pages.begin(), pages.end(), std::byte{0});
  const uint64_t payload = table.unit_rows() * table.row_bytes;
  uint64_t page = extent.target_offset / kPageBytes;
  for (uint64_t at = 0; at < pages.size(); at += table.unit_bytes(), page += table.pages_per_row) {
    const Bytes part = rows.first(std::min<uint64_t>(payload, rows.size()));
    std::copy(part.begin(), part.end(), pages.begin() + static_cast<ptrdiff_t>(at));
    seal_unit(pages.subspan(at, table.unit_bytes()), page);
    rows = rows.subspan(part.size());
  }
}

class PackWriter {
 public:
  PackWriter(const RepackSource& source, const RepackPlan& plan, const fs::path& directory, uint64_t extent_bytes_max,
             ThreadTeam& team, Progress& progress)
      : source_(source), plan_(plan), directory_(directory), max_(extent_bytes_max), team_(team), progress_(progress),
        manifest_(plan.manifest) {}

  PackManifest run() {
    for (int i = 0; i < kTargets; ++i) {
      const auto target = static_cast<Target>(i);
      if (plan_.target_bytes(target) == 0 && target == Target::kRows) continue;
      files_[i] = File::open(directory_ / target_file_name(target), File::Mode::kCreate);
      files_[i]->reserve(plan_.target_bytes(target));
      files_[i]->truncate(plan_.target_bytes(target));
    }
    progress_.set_phase("copying");
    copy_all();
    progress_.set_phase("reading back");
    team_.for_each(kTargets, [&](size_t i) {
      // The largest file first: it is the longest sequence.
      static constexpr std::array kOrder{Target::kExperts, Target::kRows, Target::kDense, Target::kSource};
      if (files_[static_cast<int>(kOrder[i])]) prove(kOrder[i]);
    });
    write_small_files();
    return std::move(manifest_);
  }

 private:
  void copy_all() {
    std::vector<std::vector<Chunk>> chunks;
    std::vector<uint64_t> counts;
    for (const std::vector<Extent>& extents : plan_.extents) {
      chunks.push_back(chunks_of(extents, max_));
      counts.push_back(chunks.back().size());
      checksums_.emplace_back(extents.size());
    }
    std::vector<Sha256> hashes(chunks.size());
    struct Scratch {
      std::unique_ptr<std::byte[]> source, pages;
    };
    std::vector<Scratch> scratch(static_cast<size_t>(team_.size()));
    const auto bytes_of = [&](size_t shard, const Chunk& chunk, int thread) {
      Scratch& mine = scratch[static_cast<size_t>(thread)];
      if (!mine.source) mine.source = std::make_unique_for_overwrite<std::byte[]>(max_);
      TIERPACK_CHECK(chunk.bytes <= max_ && shard < source_.shards.size());
      return MutableBytes(mine.source.get(), chunk.bytes);
    };
    verify::run_ordered_lanes(
        team_, counts,
        [&](size_t shard, uint64_t index, int thread) {
          const Chunk& chunk = chunks[shard][index];
          const MutableBytes bytes = bytes_of(shard, chunk, thread);
          source_.shards[shard].bytes->read_at(chunk.offset, bytes);
          Scratch& mine = scratch[static_cast<size_t>(thread)];
          if (!plan_.manifest.rows.empty() && !mine.pages) mine.pages = std::make_unique_for_overwrite<std::byte[]>(max_);
          for (size_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
            const Extent& extent = plan_.extents[shard][i];
            const Bytes part = bytes.subspan(extent.source_offset - chunk.offset, extent.source_bytes);
            checksums_[shard][i] = store_extent(shard, extent, part, {mine.pages.get(), max_});
          }
        },
        [&](size_t shard, uint64_t index, int thread) {
          const MutableBytes bytes = bytes_of(shard, chunks[shard][index], thread);
          hashes[shard].update(bytes);
          progress_.add(bytes.size());
        });
    for (size_t shard = 0; shard < hashes.size(); ++shard) {
      const Sha256Digest digest = hashes[shard].finish();
      const RepackShard& read = source_.shards[shard];
      if (read.promised && digest != *read.promised) {
        fail(ErrorKind::kCorrupt, "{}: has SHA-256 {}, {} promises {}; no pack was written. Fetch the file again",
             read.bytes->name(), digest.hex(), read.promised_by, read.promised->hex());
      }
      manifest_.sources[shard].sha256 = digest;
    }
  }

  // Writes one extent; returns the checksum of the bytes that now are in the target.
  Xxh128 store_extent(size_t shard, const Extent& extent, Bytes part, MutableBytes page_buffer) {
    switch (extent.kind) {
      case Extent::Kind::kZeros:
        if (std::any_of(part.begin(), part.end(), [](std::byte b) { return b != std::byte{0}; })) {
          fail(ErrorKind::kCorrupt, "{}: changed while it was read (byte {} and on were zeros)",
               source_.shards[shard].bytes->name(), extent.source_offset);
        }
        return {};
      case Extent::Kind::kCopy: break;
      case Extent::Kind::kRows: {
        TIERPACK_CHECK(extent.target_bytes <= page_buffer.size());
        const MutableBytes pages = page_buffer.first(extent.target_bytes);
        fill_pages(plan_.manifest.rows[extent.table], extent, part, pages);
        part = pages;
        break;
      }
    }
    const Xxh128 checksum = xxh3_128(part);
    // One write at a time to a file: threads that wait for the kernel's lock on it burn their processors.
    const auto target = static_cast<size_t>(extent.target);
    const std::lock_guard lock(writing_[target]);
    files_[target]->write_at(extent.target_offset, part);
    return checksum;
  }

  // Reads a file back from beginning to end: extents must be what was copied, everything between them zeros. Record
  // checksums and the file's SHA-256 come from these bytes.
  void prove(Target target) {
    struct Expected {
      verify::ByteRange range;
      Xxh128 checksum;
    };
    std::vector<Expected> expected;
    for (size_t shard = 0; shard < plan_.extents.size(); ++shard) {
      for (size_t i = 0; i < plan_.extents[shard].size(); ++i) {
        const Extent& extent = plan_.extents[shard][i];
        if (extent.kind == Extent::Kind::kZeros || extent.target != target) continue;
        expected.push_back({{extent.target_offset, extent.target_bytes}, checksums_[shard][i]});
      }
    }
    std::sort(expected.begin(), expected.end(),
              [](const Expected& a, const Expected& b) { return a.range.offset < b.range.offset; });
    std::vector<verify::ByteRange> extent_ranges;
    for (const Expected& item : expected) extent_ranges.push_back(item.range);
    verify::RangeChecksums extents(std::move(extent_ranges));

    std::vector<uint32_t> records;
    std::vector<verify::ByteRange> record_ranges;
    for (uint32_t i = 0; i < manifest_.records.size(); ++i) {
      if (static_cast<int>(manifest_.records[i].segment) == static_cast<int>(target)) records.push_back(i);
    }
    std::sort(records.begin(), records.end(),
              [&](uint32_t a, uint32_t b) { return manifest_.records[a].offset < manifest_.records[b].offset; });
    for (const uint32_t i : records) record_ranges.push_back({manifest_.records[i].offset, manifest_.records[i].bytes});
    verify::RangeChecksums record_sums(std::move(record_ranges));

    File& file = *files_[static_cast<int>(target)];
    const auto damaged = [&](uint64_t offset) {
      fail(ErrorKind::kIo, "{}: byte {} and on do not read back as they were written; check the disk and the memory",
           file.name(), offset);
    };
    const auto on_extent = [&](size_t i, const Xxh128& found) {
      if (found != expected[i].checksum) damaged(expected[i].range.offset);
    };
    const auto on_record = [&](size_t i, const Xxh128& found) { manifest_.records[records[i]].checksum = found; };
    Sha256 hash;
    std::vector<std::byte> buffer(kReadBackBytes);
    const uint64_t size = plan_.target_bytes(target);
    for (uint64_t at = 0; at < size;) {
      throw_if_interrupted();
      const MutableBytes piece = MutableBytes(buffer).first(std::min(size - at, kReadBackBytes));
      file.read_at(at, piece);
      extents.feed(piece, on_extent, damaged);
      record_sums.feed(piece, on_record, [](uint64_t) {});
      hash.update(piece);
      at += piece.size();
      progress_.add(piece.size());
    }
    file.sync();
    file.close();
    set_digest(target_file_name(target), hash.finish());
  }

  void set_digest(std::string_view name, const Sha256Digest& digest) {
    for (PackFile& file : manifest_.files) {
      if (file.name == name) file.sha256 = digest;
    }
  }

  void write_small(const char* name, Bytes content) {
    File file = File::open(directory_ / name, File::Mode::kCreate);
    file.write_at(0, content);
    file.sync();
    file.close();
    set_digest(name, Sha256::of(content));
  }

  void write_small_files() {
    write_small(kPackMetadataName, plan_.metadata_gguf);
    write_small(kPackRecordsName, encode_records(manifest_.records));
    if (manifest_.profile_id) write_small(kPackProfileName, as_bytes(plan_.profile_json));
    write_small(kPackManifestName, as_bytes(encode_pack_json(manifest_, plan_.config)));
  }

  const RepackSource& source_;
  const RepackPlan& plan_;
  const fs::path& directory_;
  const uint64_t max_;
  ThreadTeam& team_;
  Progress& progress_;
  PackManifest manifest_;
  std::array<std::optional<File>, kTargets> files_;
  std::array<std::mutex, kTargets> writing_;
  std::vector<std::vector<Xxh128>> checksums_;  // like plan.extents
};

}  // namespace

PackManifest write_pack(const RepackSource& source, const RepackPlan& plan, const fs::path& directory,
                        uint64_t extent_bytes_max, ThreadTeam& team, Progress& progress) {
  return PackWriter(source, plan, directory, extent_bytes_max, team, progress).run();
}

std::vector<Sha256Digest> hash_shards(const RepackSource& source, ThreadTeam& team, Progress& progress) {
  std::vector<Sha256Digest> out(source.shards.size());
  team.for_each(out.size(), [&](size_t i) {
    const ByteSource& bytes = *source.shards[i].bytes;
    out[i] = sha256_of(bytes, 0, bytes.size(), [&](uint64_t n) {
      throw_if_interrupted();
      progress.add(n);
    });
  });
  return out;
}

}  // namespace tierpack::repack

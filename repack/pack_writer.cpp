#include "repack/pack_writer.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/interrupt.h"
#include "formats/float_scan.h"
#include "formats/pack_layout.h"
#include "formats/row_groups.h"
#include "verify/ordered_lanes.h"
#include "verify/range_checksums.h"

namespace tierpack::repack {

namespace fs = std::filesystem;

namespace {

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

bool all_zeros(Bytes bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
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

// The inverse; false when a unit is not what its checksum promises or is not filled up with zeros.
bool rows_of_pages(const RowTable& table, const Extent& extent, Bytes pages, MutableBytes rows) {
  const uint64_t payload = table.unit_rows() * table.row_bytes;
  uint64_t page = extent.target_offset / kPageBytes;
  for (uint64_t at = 0; at < pages.size(); at += table.unit_bytes(), page += table.pages_per_row) {
    const Bytes unit = pages.subspan(at, table.unit_bytes());
    const uint64_t used = std::min<uint64_t>(payload, rows.size());
    if (!unit_is_intact(unit, page) || !all_zeros(unit.subspan(used, unit.size() - kPageChecksumBytes - used))) return false;
    std::copy_n(unit.begin(), used, rows.begin());
    rows = rows.subspan(used);
  }
  return rows.empty();
}

class PackWriter {
 public:
  PackWriter(const RepackSource& source, const RepackPlan& plan, const fs::path& directory, uint64_t extent_bytes_max,
             bool allow_nonfinite, ThreadTeam& team, Progress& progress)
      : source_(source), plan_(plan), directory_(directory), max_(extent_bytes_max), allow_nonfinite_(allow_nonfinite), team_(team),
        progress_(progress),
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
      std::unique_ptr<std::byte[]> source, target;
    };
    std::vector<Scratch> scratch(static_cast<size_t>(team_.size()));
    const auto bytes_of = [&](size_t shard, const Chunk& chunk, int thread) {
      Scratch& mine = scratch[static_cast<size_t>(thread)];
      if (!mine.source) mine.source = std::make_unique_for_overwrite<std::byte[]>(max_);
      if (!mine.target) mine.target = std::make_unique_for_overwrite<std::byte[]>(max_);
      TIERPACK_CHECK(chunk.bytes <= max_ && shard < source_.shards.size());
      return MutableBytes(mine.source.get(), chunk.bytes);
    };
    verify::run_ordered_lanes(
        team_, counts,
        [&](size_t shard, uint64_t index, int thread) {
          const Chunk& chunk = chunks[shard][index];
          const MutableBytes bytes = bytes_of(shard, chunk, thread);
          source_.shards[shard].bytes->read_at(chunk.offset, bytes);
          for (size_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
            const Extent& extent = plan_.extents[shard][i];
            const Bytes part = bytes.subspan(extent.source_offset - chunk.offset, extent.source_bytes);
            checksums_[shard][i] = store_extent(shard, extent, part, {scratch[static_cast<size_t>(thread)].target.get(), max_});
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

  // Writes one extent in the pack's order; returns the checksum of its bytes in the source's order.
  Xxh128 store_extent(size_t shard, const Extent& extent, Bytes part, MutableBytes buffer) {
    if (extent.kind == Extent::Kind::kZeros) {
      if (!all_zeros(part)) {
        fail(ErrorKind::kCorrupt, "{}: changed while it was read (byte {} and on were zeros)",
             source_.shards[shard].bytes->name(), extent.source_offset);
      }
      return {};
    }
    if (!allow_nonfinite_) require_finite_scales(shard, extent, part);
    const Xxh128 checksum = xxh3_128(part);
    TIERPACK_CHECK(extent.target_bytes <= buffer.size());
    const MutableBytes stored = buffer.first(extent.target_bytes);
    if (extent.kind == Extent::Kind::kGroups) {
      to_row_groups(extent.dtype, part.size() / row_bytes(extent.dtype, extent.columns), extent.columns, part, stored);
      part = stored;
    } else if (extent.kind == Extent::Kind::kRows) {
      fill_pages(plan_.manifest.rows[extent.table], extent, part, stored);
      part = stored;
    }
    // One write at a time to a file: threads that wait for the kernel's lock on it burn their processors.
    const auto target = static_cast<size_t>(extent.target);
    const std::lock_guard lock(writing_[target]);
    files_[target]->write_at(extent.target_offset, part);
    return checksum;
  }

  void require_finite_scales(size_t shard, const Extent& extent, Bytes part) const {
    const DType type = extent.dtype;
    if (!extent.of_tensor || !traits(type).quantised || !has_nonfinite_codes(type)) return;
    if (type == DType::kMXFP4 || type == DType::kNVFP4) return;  // codes that their formats call NaN are numbers here
    const FloatScan found = scan_floats(extent.dtype, part);
    if (found.clean()) return;
    const std::string& name = source_.shards[shard].bytes->name();
    fail(ErrorKind::kCorrupt,
         "{}: {} of the {} block scales from byte {} to {} are NaN or infinite, and so would be every product with them; no pack was "
         "written. `tierpack verify --deep` names the tensors. Fetch the file again, or pass --allow-nonfinite",
         name, found.nan + found.inf, dtype_name(extent.dtype), extent.source_offset, extent.source_offset + extent.source_bytes);
  }

  // Whether bytes read back are an extent: put into the source's order again they have its checksum.
  bool gives_back(const Extent& extent, Bytes stored, const Xxh128& checksum, MutableBytes buffer) const {
    const MutableBytes restored = buffer.first(extent.source_bytes);
    switch (extent.kind) {
      case Extent::Kind::kZeros: return true;
      case Extent::Kind::kCopy: return xxh3_128(stored) == checksum;
      case Extent::Kind::kGroups:
        from_row_groups(extent.dtype, stored.size() / row_bytes(extent.dtype, extent.columns), extent.columns, stored, restored);
        break;
      case Extent::Kind::kRows:
        if (!rows_of_pages(plan_.manifest.rows[extent.table], extent, stored, restored)) return false;
        break;
    }
    return xxh3_128(restored) == checksum;
  }

  // The extents of a target as they follow each other in it, with their checksums.
  std::vector<std::pair<const Extent*, const Xxh128*>> extents_of(Target target) const {
    std::vector<std::pair<const Extent*, const Xxh128*>> out;
    for (size_t shard = 0; shard < plan_.extents.size(); ++shard) {
      for (size_t i = 0; i < plan_.extents[shard].size(); ++i) {
        const Extent& extent = plan_.extents[shard][i];
        if (extent.kind == Extent::Kind::kZeros || extent.target != target) continue;
        out.emplace_back(&extent, &checksums_[shard][i]);
      }
    }
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first->target_offset < b.first->target_offset; });
    return out;
  }

  // Reads a file back from beginning to end: extents must give the source's bytes, everything between them must be zeros.
  // Record checksums and the file's SHA-256 come from these bytes.
  void prove(Target target) {
    std::vector<uint32_t> records;
    std::vector<verify::ByteRange> record_ranges;
    for (uint32_t i = 0; i < manifest_.records.size(); ++i) {
      if (static_cast<int>(manifest_.records[i].segment) == static_cast<int>(target)) records.push_back(i);
    }
    std::sort(records.begin(), records.end(),
              [&](uint32_t a, uint32_t b) { return manifest_.records[a].offset < manifest_.records[b].offset; });
    for (const uint32_t i : records) record_ranges.push_back({manifest_.records[i].offset, manifest_.records[i].bytes});
    verify::RangeChecksums record_sums(std::move(record_ranges));
    const auto on_record = [&](size_t i, const Xxh128& found) { manifest_.records[records[i]].checksum = found; };

    File& file = *files_[static_cast<int>(target)];
    const auto require = [&](bool proved, uint64_t offset) {
      if (proved) return;
      fail(ErrorKind::kIo, "{}: byte {} and on do not give back the bytes of the source; check the disk and the memory",
           file.name(), offset);
    };
    const auto extents = extents_of(target);
    const auto offset_of = [&](size_t i, uint64_t end) { return i < extents.size() ? extents[i].first->target_offset : end; };
    Sha256 hash;
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(max_);
    const auto restored = std::make_unique_for_overwrite<std::byte[]>(max_);
    const uint64_t size = plan_.target_bytes(target);
    size_t next = 0;
    for (uint64_t at = 0; at < size;) {
      throw_if_interrupted();
      // Whole extents and the padding before them, as many as the buffer holds; padding alone where the next one needs it all.
      uint64_t end = at;
      size_t last = next;
      while (last < extents.size() && extents[last].first->target_offset + extents[last].first->target_bytes - at <= max_) {
        end = extents[last].first->target_offset + extents[last].first->target_bytes;
        ++last;
      }
      if (last == next || last == extents.size()) end = std::min(offset_of(last, size), at + max_);
      TIERPACK_CHECK(end > at && end - at <= max_);
      const MutableBytes piece(buffer.get(), end - at);
      file.read_at(at, piece);
      uint64_t done = at;
      for (; next < last; ++next) {
        const auto& [extent, checksum] = extents[next];
        require(all_zeros(piece.subspan(done - at, extent->target_offset - done)), done);
        const Bytes stored = piece.subspan(extent->target_offset - at, extent->target_bytes);
        require(gives_back(*extent, stored, *checksum, {restored.get(), max_}), extent->target_offset);
        done = extent->target_offset + extent->target_bytes;
      }
      require(all_zeros(piece.subspan(done - at)), done);
      record_sums.feed(piece, on_record, [](uint64_t) {});
      hash.update(piece);
      at = end;
      progress_.add(piece.size());
    }
    require(next == extents.size(), size);
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
  const bool allow_nonfinite_;
  ThreadTeam& team_;
  Progress& progress_;
  PackManifest manifest_;
  std::array<std::optional<File>, kTargets> files_;
  std::array<std::mutex, kTargets> writing_;
  std::vector<std::vector<Xxh128>> checksums_;  // like plan.extents
};

}  // namespace

PackManifest write_pack(const RepackSource& source, const RepackPlan& plan, const fs::path& directory,
                        uint64_t extent_bytes_max, bool allow_nonfinite, ThreadTeam& team, Progress& progress) {
  return PackWriter(source, plan, directory, extent_bytes_max, allow_nonfinite, team, progress).run();
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

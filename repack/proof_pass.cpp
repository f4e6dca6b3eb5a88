// The second pass of a repack: every byte of the pack is read back, and what was made from the source gives the source again.
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/zstd.h"
#include "repack/pack_writer.h"
#include "verify/ordered_lanes.h"
#include "verify/range_checksums.h"

namespace tierpack::repack {

namespace fs = std::filesystem;

namespace {

// A run of a target file with one origin.
struct Item {
  enum class Kind : uint8_t { kExtent, kGather, kDerived };
  uint64_t offset = 0;
  uint64_t bytes = 0;
  Kind kind = Kind::kExtent;
  uint8_t output = 0;  // of a gather
  uint32_t shard = 0;
  uint32_t index = 0;  // of the extent, gather or derived value
};

struct Buffers {
  explicit Buffers(uint64_t bytes)
      : piece(std::make_unique_for_overwrite<std::byte[]>(bytes)),
        rows(std::make_unique_for_overwrite<std::byte[]>(bytes)),
        source(std::make_unique_for_overwrite<std::byte[]>(bytes)) {}
  std::unique_ptr<std::byte[]> piece, rows, source;
};

class Prover {
 public:
  Prover(const RepackPlan& plan, const CopyState& state, uint64_t extent_bytes_max, const TargetFiles& files)
      : plan_(plan), state_(state), max_(extent_bytes_max), files_(files), codec_(plan) {}

  // Whether the bytes of an item are what was made from the source. Of a gather with two outputs the other is read here.
  bool gives_back(const Item& item, Bytes stored, Buffers& buffers) const {
    switch (item.kind) {
      case Item::Kind::kExtent: {
        const Extent& extent = plan_.extents[item.shard][item.index];
        // What was coded anew cannot give its source back: it is what was written.
        if (extent.kind == Extent::Kind::kTranscode) return xxh3_128(stored) == state_.coded[item.shard][item.index].sum;
        const std::optional<Bytes> source = codec_.decode(extent, stored, {buffers.source.get(), max_});
        return source && xxh3_128(*source) == state_.extents[item.shard][item.index];
      }
      case Item::Kind::kDerived: return xxh3_128(stored) == state_.derived[item.index];
      case Item::Kind::kGather: return gather_gives_back(item, stored, buffers);
    }
    return false;
  }

 private:
  bool gather_gives_back(const Item& item, Bytes stored, Buffers& buffers) const {
    const Gather& gather = plan_.gathers[item.index];
    if (item.output + 1u < gather.outputs) return true;  // proved with the last
    const MutableBytes rows(buffers.rows.get(), codec_.rows_bytes(gather));
    const uint64_t each = rows.size() / gather.outputs;
    for (uint32_t i = 0; i < gather.outputs; ++i) {
      Bytes bytes = stored;
      if (i != item.output) {
        const MutableBytes other(buffers.source.get(), gather.output[i].bytes);
        files_.file(gather.target).read_at(gather.output[i].offset, other);
        bytes = other;
      }
      if (!codec_.load_rows(gather, i, bytes, rows.subspan(i * each, each))) return false;
    }
    if (!is_filled_up_with_zeros(gather, rows)) return false;
    for (uint32_t i = gather.first_input; i < gather.first_input + gather.inputs; ++i) {
      const GatherInput& input = plan_.inputs[i];
      const MutableBytes source(buffers.source.get(), input.bytes);
      codec_.extract(gather, input, rows, source);
      if (xxh3_128(source) != state_.extents[input.shard][input.extent]) return false;
    }
    return true;
  }

  // What fills up rows of NVFP4 to whole blocks comes from no source: scales and codes behind the last column.
  static bool is_filled_up_with_zeros(const Gather& gather, Bytes rows) {
    constexpr uint64_t kBlock = 64, kScales = 4;
    const uint64_t used = gather.columns % kBlock;
    if (gather.dtype != DType::kNVFP4 || used == 0) return true;
    const uint64_t stride = row_bytes(gather.dtype, gather.columns);
    const uint64_t block_bytes = traits(gather.dtype).block_bytes;
    for (uint64_t end = stride; end <= rows.size(); end += stride) {
      const Bytes block = rows.subspan(end - block_bytes, block_bytes);
      const uint64_t scales = used / kNvfp4ScaleElements;
      if (!all_zeros(block.subspan(scales, kScales - scales)) || !all_zeros(block.subspan(kScales + used / 2))) return false;
    }
    return true;
  }

  const RepackPlan& plan_;
  const CopyState& state_;
  const uint64_t max_;
  const TargetFiles& files_;
  const ExtentCodec codec_;
};

class ProofPass {
 public:
  ProofPass(const RepackPlan& plan, const CopyState& state, const WriteOptions& options, TargetFiles& files, const fs::path& directory,
            ThreadTeam& team, Progress& progress)
      : plan_(plan), state_(state), max_(options.extent_bytes_max), files_(files), directory_(directory), team_(team), progress_(progress),
        prover_(plan, state, options.extent_bytes_max, files), on_bytes_(options.on_bytes), manifest_(plan.manifest) {}

  PackManifest run() {
    for (size_t i = 0; i < manifest_.sources.size(); ++i) manifest_.sources[i].sha256 = state_.shards[i].value();
    add_transcoded();
    progress_.set_phase("reading back");
    // The largest file first: it is the longest sequence.
    for (const Target target : {Target::kExperts, Target::kRows, Target::kDense, Target::kSource}) {
      if (files_.has(target)) begin(target);
    }
    std::vector<uint64_t> counts;
    for (const std::unique_ptr<Lane>& lane : lanes_) counts.push_back(lane->pieces.size());
    buffers_.resize(static_cast<size_t>(team_.size()));
    verify::run_ordered_lanes(
        team_, counts, [&](size_t lane, uint64_t index, int thread) { check(*lanes_[lane], lanes_[lane]->pieces[index], buffers_of(thread)); },
        [&](size_t lane, uint64_t index, int thread) { take(*lanes_[lane], lanes_[lane]->pieces[index], buffers_of(thread)); });
    for (const std::unique_ptr<Lane>& lane : lanes_) set_digest(target_file_name(lane->target), lane->hash.finish());
    files_.sync();
    files_.close();
    write_small_files();
    return std::move(manifest_);
  }

 private:
  // The measured error of each transcoded tensor: its extents' sums in the order of the source.
  void add_transcoded() {
    std::vector<CopyState::Coded> sums(plan_.transcoded.size());
    for (uint32_t shard = 0; !sums.empty() && shard < plan_.extents.size(); ++shard) {
      for (size_t i = 0; i < plan_.extents[shard].size(); ++i) {
        if (plan_.extents[shard][i].kind != Extent::Kind::kTranscode) continue;
        CopyState::Coded& sum = sums[plan_.extents[shard][i].transcoded];
        sum.error += state_.coded[shard][i].error;
        sum.square += state_.coded[shard][i].square;
      }
    }
    manifest_.transcoded.clear();
    for (size_t i = 0; i < sums.size(); ++i) {
      const TranscodedTensor& tensor = plan_.transcoded[i];
      manifest_.transcoded.push_back({tensor.name, tensor.from, tensor.to, sums[i].square > 0 ? sums[i].error / sums[i].square : 0});
    }
  }

  // What a target holds, as it lies there.
  std::vector<Item> items_of(Target target) const {
    std::vector<Item> out;
    for (uint32_t shard = 0; shard < plan_.extents.size(); ++shard) {
      for (uint32_t i = 0; i < plan_.extents[shard].size(); ++i) {
        const Extent& extent = plan_.extents[shard][i];
        if (extent.target_bytes == 0 || extent.target != target) continue;
        out.push_back({extent.target_offset, extent.target_bytes, Item::Kind::kExtent, 0, shard, i});
      }
    }
    for (uint32_t i = 0; i < plan_.gathers.size(); ++i) {
      const Gather& gather = plan_.gathers[i];
      if (gather.target != target) continue;
      for (uint8_t k = 0; k < gather.outputs; ++k) out.push_back({gather.output[k].offset, gather.output[k].bytes, Item::Kind::kGather, k, 0, i});
    }
    for (uint32_t i = 0; i < plan_.derived.size(); ++i) {
      const DerivedWrite& derived = plan_.derived[i];
      if (derived.target == target) out.push_back({derived.offset, derived.bytes, Item::Kind::kDerived, 0, 0, i});
    }
    std::sort(out.begin(), out.end(), [](const Item& a, const Item& b) { return a.offset < b.offset; });
    return out;
  }

  // A run of a file that is read at once: whole items and the padding around them.
  struct Piece {
    uint64_t at = 0, end = 0;
    size_t first = 0, last = 0;  // items
  };

  // A file that is read back from beginning to end. Its pieces are checked by many threads and then hashed in order.
  struct Lane {
    explicit Lane(std::vector<verify::ByteRange> ranges) : sums(std::move(ranges)) {}
    Target target = Target::kDense;
    std::vector<Item> items;
    std::vector<Piece> pieces;
    std::vector<uint32_t> records;
    verify::RangeChecksums sums;
    Sha256 hash;
  };

  void begin(Target target) {
    std::vector<uint32_t> records;
    for (uint32_t i = 0; i < manifest_.records.size(); ++i) {
      if (static_cast<int>(manifest_.records[i].segment) == static_cast<int>(target)) records.push_back(i);
    }
    std::sort(records.begin(), records.end(),
              [&](uint32_t a, uint32_t b) { return manifest_.records[a].offset < manifest_.records[b].offset; });
    std::vector<verify::ByteRange> ranges;
    for (const uint32_t i : records) ranges.push_back({manifest_.records[i].offset, manifest_.records[i].bytes});
    Lane& lane = *lanes_.emplace_back(std::make_unique<Lane>(std::move(ranges)));
    lane.target = target;
    lane.records = std::move(records);
    lane.items = items_of(target);
    cut(lane, plan_.target_bytes(target));
  }

  // As many whole items as a buffer holds; padding alone where the next one needs it all.
  void cut(Lane& lane, uint64_t size) const {
    const std::vector<Item>& items = lane.items;
    size_t next = 0;
    for (uint64_t at = 0; at < size;) {
      Piece piece{at, at, next, next};
      while (piece.last < items.size() && items[piece.last].offset + items[piece.last].bytes - at <= max_) {
        piece.end = items[piece.last].offset + items[piece.last].bytes;
        ++piece.last;
      }
      if (piece.last == next || piece.last == items.size()) {
        piece.end = std::min(piece.last < items.size() ? items[piece.last].offset : size, at + max_);
      }
      TIERPACK_CHECK(piece.end > at && piece.end - at <= max_);
      next = piece.last;
      at = piece.end;
      lane.pieces.push_back(piece);
    }
    TIERPACK_CHECK(next == items.size());
  }

  Buffers& buffers_of(int thread) {
    std::unique_ptr<Buffers>& mine = buffers_[static_cast<size_t>(thread)];
    if (!mine) mine = std::make_unique<Buffers>(max_);
    return *mine;
  }

  // Items must give the source's bytes, everything between them must be zeros.
  void check(const Lane& lane, const Piece& piece, Buffers& buffers) const {
    const File& file = files_.file(lane.target);
    const auto require = [&](bool proved, uint64_t offset) {
      if (proved) return;
      fail(ErrorKind::kIo, "{}: byte {} and on do not give back the bytes of the source; check the disk and the memory",
           file.name(), offset);
    };
    const MutableBytes bytes(buffers.piece.get(), piece.end - piece.at);
    file.read_at(piece.at, bytes);
    uint64_t done = piece.at;
    for (size_t i = piece.first; i < piece.last; ++i) {
      const Item& item = lane.items[i];
      require(all_zeros(bytes.subspan(done - piece.at, item.offset - done)), done);
      require(prover_.gives_back(item, bytes.subspan(item.offset - piece.at, item.bytes), buffers), item.offset);
      done = item.offset + item.bytes;
    }
    require(all_zeros(bytes.subspan(done - piece.at)), done);
  }

  // Record checksums and the file's SHA-256 come from the same bytes.
  void take(Lane& lane, const Piece& piece, Buffers& buffers) {
    const Bytes bytes(buffers.piece.get(), piece.end - piece.at);
    lane.sums.feed(bytes, [&](size_t i, const Xxh128& found) { manifest_.records[lane.records[i]].checksum = found; }, [](uint64_t) {});
    lane.hash.update(bytes);
    progress_.add(bytes.size());
    if (on_bytes_) on_bytes_(bytes.size());
  }

  void set_digest(std::string_view name, const Sha256Digest& digest) {
    for (PackFile& file : manifest_.files) {
      if (file.name == name) file.sha256 = digest;
    }
  }

  void write_small(const char* name, Bytes content) {
    File file = File::open(directory_ / name, File::Mode::kCreateOrTruncate);
    file.write_at(0, content);
    file.sync();
    file.close();
    set_digest(name, Sha256::of(content));
  }

  void write_small_files() {
    write_small(kPackMetadataName, plan_.metadata);
    write_small(kPackRecordsName, encode_records(manifest_.records));
    write_small(kPackSourcesName, encode_sources(manifest_.sources));
    if (manifest_.profile_id) write_small(kPackProfileName, as_bytes(plan_.profile_json));
    write_small(kPackManifestName, as_bytes(encode_pack_json(manifest_, plan_.config)));
  }

  const RepackPlan& plan_;
  const CopyState& state_;
  const uint64_t max_;
  TargetFiles& files_;
  const fs::path& directory_;
  ThreadTeam& team_;
  Progress& progress_;
  const Prover prover_;
  const std::function<void(uint64_t)>& on_bytes_;
  PackManifest manifest_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::unique_ptr<Buffers>> buffers_;  // by thread
};

}  // namespace

PackManifest prove_pack(const RepackPlan& plan, const CopyState& state, const WriteOptions& options, TargetFiles& files,
                        const fs::path& directory, ThreadTeam& team, Progress& progress) {
  return ProofPass(plan, state, options, files, directory, team, progress).run();
}

bool shard_is_in_pack(const RepackPlan& plan, const CopyState& state, const WriteOptions& options, const TargetFiles& files, uint32_t shard,
                      ThreadTeam& team) {
  const Prover prover(plan, state, options.extent_bytes_max, files);
  std::vector<Item> items;
  for (uint32_t i = 0; i < plan.extents[shard].size(); ++i) {
    const Extent& extent = plan.extents[shard][i];
    if (extent.kind == Extent::Kind::kSpan) {
      const uint32_t number = plan.inputs[extent.input].gather;
      const Gather& gather = plan.gathers[number];
      const auto last = static_cast<uint8_t>(gather.outputs - 1);
      items.push_back({gather.output[last].offset, gather.output[last].bytes, Item::Kind::kGather, last, 0, number});
    } else if (extent.target_bytes > 0) {
      items.push_back({extent.target_offset, extent.target_bytes, Item::Kind::kExtent, 0, shard, i});
    }
  }
  std::vector<std::unique_ptr<Buffers>> buffers(static_cast<size_t>(team.size()));
  std::vector<uint8_t> good(items.size());
  team.for_each_on_thread(items.size(), [&](size_t i, int thread) {
    throw_if_interrupted();
    std::unique_ptr<Buffers>& mine = buffers[static_cast<size_t>(thread)];
    if (!mine) mine = std::make_unique<Buffers>(options.extent_bytes_max);
    const Item& item = items[i];
    const Target target = item.kind == Item::Kind::kGather ? plan.gathers[item.index].target : plan.extents[shard][item.index].target;
    const MutableBytes stored(mine->piece.get(), item.bytes);
    files.file(target).read_at(item.offset, stored);
    good[i] = prover.gives_back(item, stored, *mine) ? 1 : 0;
  });
  return std::all_of(good.begin(), good.end(), [](uint8_t g) { return g != 0; });
}

}  // namespace tierpack::repack

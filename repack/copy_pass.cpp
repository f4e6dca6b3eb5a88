// The first pass of a repack: every byte of the source is read once, hashed, and put into its place.
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/interrupt.h"
#include "formats/dequant.h"
#include "formats/float_scan.h"
#include "formats/quantize.h"
#include "formats/row_groups.h"
#include "repack/pack_writer.h"
#include "verify/ordered_lanes.h"

namespace tierpack::repack {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kEarlyBytes = uint64_t{256} << 10;

// A run of whole extents of one shard that is read at once.
struct Chunk {
  size_t first = 0;  // extent
  size_t count = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

std::vector<Chunk> chunks_of(const std::vector<Extent>& extents, size_t first, size_t last, uint64_t bytes_max) {
  std::vector<Chunk> out;
  for (size_t i = first; i < last; ++i) {
    if (out.empty() || out.back().bytes + extents[i].source_bytes > bytes_max) {
      out.push_back({i, 0, extents[i].source_offset, 0});
    }
    ++out.back().count;
    out.back().bytes += extents[i].source_bytes;
  }
  return out;
}

class CopyPass {
 public:
  CopyPass(const RepackSource& source, const RepackPlan& plan, const WriteOptions& options, TargetFiles& files, Journal& journal,
           CopyState& state, ThreadTeam& team, Progress& progress)
      : source_(source), plan_(plan), options_(options), files_(files), journal_(journal), state_(state), team_(team), progress_(progress),
        codec_(plan), scratch_(static_cast<size_t>(team.size())) {}

  void run() {
    for (const RepackShard& shard : source_.shards) {
      if (const auto* file = dynamic_cast<const File*>(shard.bytes)) ::posix_fadvise(file->fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    write_derived();
    if (options_.remove_sources) {
      for (uint32_t shard = 0; shard < plan_.extents.size(); ++shard) {
        copy_shards(shard, shard + 1);
        remove_finished(shard);
      }
    } else {
      copy_shards(0, static_cast<uint32_t>(plan_.extents.size()));
    }
    journal_.flush();
  }

 private:
  struct Scratch {
    std::unique_ptr<std::byte[]> source, target, rows, input;
  };

  MutableBytes buffer(std::unique_ptr<std::byte[]>& memory) const {
    if (!memory) memory = std::make_unique_for_overwrite<std::byte[]>(options_.extent_bytes_max);
    return {memory.get(), options_.extent_bytes_max};
  }

  // The extents of a shard that are this part's: those that begin in its share of all bytes.
  std::pair<size_t, size_t> share_of(uint32_t shard) const {
    const std::vector<Extent>& extents = plan_.extents[shard];
    if (options_.parts == 1) return {0, extents.size()};
    uint64_t before = 0;
    for (uint32_t i = 0; i < shard; ++i) before += plan_.manifest.sources[i].bytes;
    const auto bound = [&](uint64_t part) {
      const auto at = static_cast<uint64_t>(static_cast<unsigned __int128>(plan_.source_bytes()) * part / options_.parts);
      return static_cast<size_t>(std::partition_point(extents.begin(), extents.end(), [&](const Extent& e) { return before + e.source_offset < at; }) -
                                 extents.begin());
    };
    return {bound(options_.part), bound(options_.part + 1)};
  }

  void write_derived() {
    progress_.set_phase("copying");
    for (size_t i = options_.part; i < plan_.derived.size(); i += options_.parts) {
      throw_if_interrupted();
      const DerivedWrite& item = plan_.derived[i];
      // Computed again in every run, for the source may have changed; what deleted shards were needed for is in the pack.
      std::vector<float> values;
      try {
        values = values_of(item);
      } catch (const Error& e) {
        if (e.kind() == ErrorKind::kUsage && state_.written[i] != 0) continue;
        throw;
      }
      for (const float value : values) require_finite(value, item);
      TIERPACK_CHECK(values.size() * sizeof(float) == item.bytes);
      const Bytes bytes = std::as_bytes(std::span(values));
      const Xxh128 sum = xxh3_128(bytes);
      if (state_.written[i] != 0 && state_.derived[i] == sum) continue;
      files_.write(item.target, item.offset, bytes);
      state_.derived[i] = sum;
      state_.written[i] = 1;
      journal_.derived(i, state_.derived[i]);
    }
  }

  std::vector<float> values_of(const DerivedWrite& item) {
    if (item.derived < plan_.first_second_scale) return source_.derive(item.derived, item.matrix);
    uint32_t left = item.derived - plan_.first_second_scale;
    for (uint32_t i = 0; i < plan_.transcoded.size(); ++i) {
      if (plan_.transcoded[i].to == DType::kNVFP4 && left-- == 0) return {second_scale(i, item.matrix)};
    }
    TIERPACK_CHECK(false);
    return {};
  }

  void require_finite(float value, const DerivedWrite& item) const {
    if (options_.allow_nonfinite || std::isfinite(value)) return;
    const std::string& name = item.derived < source_.derived.size() ? source_.derived[item.derived].name : source_.name;
    fail(ErrorKind::kCorrupt, "{}: {} has values that are not finite; no pack was written. Fetch the file again, or pass --allow-nonfinite", source_.name, name);
  }

  // The scale beside the NVFP4 blocks of a matrix: found by reading all of it before its first rows are coded.
  float second_scale(uint32_t number, uint64_t matrix) {
    const TranscodedTensor& tensor = plan_.transcoded[number];
    if (tensor.to != DType::kNVFP4) return 1;
    const std::lock_guard lock(scales_mutex_);
    const auto [at, fresh] = scales_.try_emplace({number, matrix}, 1.0f);
    if (!fresh) return at->second;
    float largest = 0;
    std::vector<std::byte> bytes;
    std::vector<float> values;
    for (uint32_t shard = 0; shard < plan_.extents.size(); ++shard) {
      for (const Extent& extent : coded_extents(shard, number, matrix)) {
        bytes.resize(extent.source_bytes);
        source_.shards[shard].bytes->read_at(extent.source_offset, bytes);
        values.resize(extent.source_bytes / row_bytes(tensor.from, tensor.columns) * tensor.columns);
        for (uint64_t r = 0; r < values.size() / tensor.columns; ++r) {
          dequantize_row(tensor.from, bytes.data() + r * row_bytes(tensor.from, tensor.columns), &values[r * tensor.columns], tensor.columns);
        }
        for (const float value : values) largest = std::max(largest, std::abs(value));
      }
    }
    at->second = nvfp4_tensor_scale(largest);
    return at->second;
  }

  std::vector<Extent> coded_extents(uint32_t shard, uint32_t number, uint64_t matrix) {
    if (coded_index_.empty()) {
      coded_index_.resize(plan_.extents.size());
      for (uint32_t i = 0; i < plan_.extents.size(); ++i) {
        for (const Extent& extent : plan_.extents[i]) {
          if (extent.kind == Extent::Kind::kTranscode) coded_index_[i][{extent.transcoded, extent.matrix}].push_back(extent);
        }
      }
    }
    const auto found = coded_index_[shard].find({number, matrix});
    return found == coded_index_[shard].end() ? std::vector<Extent>{} : found->second;
  }

  void copy_shards(uint32_t begin, uint32_t end) {
    std::vector<std::vector<Chunk>> chunks(end - begin);
    std::vector<uint64_t> counts(end - begin);
    for (uint32_t shard = begin; shard < end; ++shard) {
      const auto [first, last] = share_of(shard);
      const bool whole = first == 0 && last == plan_.extents[shard].size();
      const bool is_known = source_.shards[shard].removable || source_.pack;
      if (whole && is_known && state_.shards[shard] && state_.has_shard(shard) && own_gathers_done(shard)) {
        require_promised(source_, shard, *state_.shards[shard]);
        progress_.add(plan_.manifest.sources[shard].bytes);
        continue;
      }
      chunks[shard - begin] = chunks_of(plan_.extents[shard], first, last, options_.extent_bytes_max);
      counts[shard - begin] = chunks[shard - begin].size();
    }
    std::vector<Sha256> hashes(counts.size());
    const auto bytes_of = [&](uint64_t bytes, int thread) {
      TIERPACK_CHECK(bytes <= options_.extent_bytes_max);
      return buffer(scratch_[static_cast<size_t>(thread)].source).first(bytes);
    };
    verify::run_ordered_lanes(
        team_, counts,
        [&](size_t lane, uint64_t index, int thread) {
          const auto shard = static_cast<uint32_t>(begin + lane);
          const Chunk& chunk = chunks[lane][index];
          const MutableBytes bytes = bytes_of(chunk.bytes, thread);
          source_.shards[shard].bytes->read_at(chunk.offset, bytes);
          for (size_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
            const Extent& extent = plan_.extents[shard][i];
            store_extent(shard, i, bytes.subspan(extent.source_offset - chunk.offset, extent.source_bytes), thread);
          }
        },
        [&](size_t lane, uint64_t index, int thread) {
          const MutableBytes bytes = bytes_of(chunks[lane][index].bytes, thread);
          if (is_whole(chunks[lane], begin + lane)) hashes[lane].update(bytes);
          progress_.add(bytes.size());
          if (options_.on_bytes) options_.on_bytes(bytes.size());
        });
    for (size_t lane = 0; lane < counts.size(); ++lane) {
      if (is_whole(chunks[lane], begin + lane)) finish_shard(static_cast<uint32_t>(begin + lane), hashes[lane].finish());
    }
  }

  bool is_whole(const std::vector<Chunk>& chunks, size_t shard) const {
    return !chunks.empty() && chunks.front().offset == 0 &&
           chunks.back().offset + chunks.back().bytes == plan_.manifest.sources[shard].bytes;
  }

  void finish_shard(uint32_t shard, const Sha256Digest& digest) {
    require_promised(source_, shard, digest);
    state_.shards[shard] = digest;
    journal_.shard(shard, state_.times[shard], digest);
  }

  // Gathers that are run when this shard is read. Others that need its bytes read them when their own shard's turn comes.
  bool own_gathers_done(uint32_t shard) const {
    return std::all_of(plan_.extents[shard].begin(), plan_.extents[shard].end(), [&](const Extent& extent) {
      return !extent.runs_gather || state_.gathered[plan_.inputs[extent.input].gather] != 0;
    });
  }

  // Whether no gather will read this shard again: those it has a part in are done, and every shard that runs one was read to its end.
  bool gathers_done(uint32_t shard) const {
    return std::all_of(plan_.extents[shard].begin(), plan_.extents[shard].end(), [&](const Extent& extent) {
      if (extent.kind != Extent::Kind::kSpan) return true;
      const uint32_t number = plan_.inputs[extent.input].gather;
      const Gather& gather = plan_.gathers[number];
      const auto first = plan_.inputs.begin() + gather.first_input;
      return state_.gathered[number] != 0 &&
             std::all_of(first, first + gather.inputs, [&](const GatherInput& input) { return state_.shards[input.shard].has_value(); });
    });
  }

  void store_extent(uint32_t shard, size_t index, Bytes part, int thread) {
    const Extent& extent = plan_.extents[shard][index];
    if (extent.kind == Extent::Kind::kZeros) {
      if (!all_zeros(part)) {
        fail(ErrorKind::kCorrupt, "{}: changed while it was read (byte {} and on were zeros)",
             source_.shards[shard].bytes->name(), extent.source_offset);
      }
      state_.stored[shard][index] = 1;
      journal_.extent(shard, index, {}, 0);
      return;
    }
    if (!options_.allow_nonfinite) require_finite_scales(shard, extent, part);
    const Xxh128 sum = xxh3_128(part);
    const bool there = state_.stored[shard][index] != 0 && state_.extents[shard][index] == sum;
    Scratch& mine = scratch_[static_cast<size_t>(thread)];
    if (extent.kind == Extent::Kind::kTranscode && !there) {
      transcode(shard, index, part, mine);
    } else if (extent.kind != Extent::Kind::kSpan && extent.kind != Extent::Kind::kSkip && !there) {
      files_.write(extent.target, extent.target_offset, codec_.encode(extent, part, buffer(mine.target)));
    }
    if (!there) journal_.extent(shard, index, sum, extent.target_bytes);
    state_.extents[shard][index] = sum;
    state_.stored[shard][index] = 1;
    if (extent.runs_gather) run_gather(extent.input, part, mine);
  }

  void transcode(uint32_t shard, size_t index, Bytes part, Scratch& mine) {
    const Extent& extent = plan_.extents[shard][index];
    const TranscodedTensor& tensor = plan_.transcoded[extent.transcoded];
    Transcoder::Rows rows{tensor.name, tensor.from, tensor.to, tensor.columns, part.size() / row_bytes(tensor.from, tensor.columns), extent.matrix,
                          tensor.matrices, second_scale(extent.transcoded, extent.matrix)};
    const MutableBytes values = buffer(mine.rows);
    const MutableBytes out = buffer(mine.input).first(rows.rows * row_bytes(tensor.to, tensor.columns));
    const CodingError error =
        options_.transcoder->encode(rows, part, {reinterpret_cast<float*>(values.data()), rows.rows * tensor.columns}, out);
    Bytes stored = out;
    if (has_row_groups(tensor.to, kGroupRows)) {
      const MutableBytes groups = buffer(mine.target).first(out.size());
      to_row_groups(tensor.to, rows.rows, tensor.columns, out, groups);
      stored = groups;
    }
    files_.write(extent.target, extent.target_offset, stored);
    state_.coded[shard][index] = {xxh3_128(stored), error.error, error.square};
    journal_.coded(shard, index, state_.coded[shard][index]);
  }

  // `part` is the input that is at hand; the others were read with their shards or will be, and are read once more here.
  void run_gather(uint32_t at_hand, Bytes part, Scratch& mine) {
    const uint32_t number = plan_.inputs[at_hand].gather;
    const Gather& gather = plan_.gathers[number];
    const MutableBytes rows = buffer(mine.rows).first(codec_.rows_bytes(gather));
    std::fill(rows.begin(), rows.end(), std::byte{0});  // what fills up rows stays so
    std::vector<Xxh128> sums;
    for (uint32_t i = gather.first_input; i < gather.first_input + gather.inputs; ++i) {
      const GatherInput& input = plan_.inputs[i];
      Bytes bytes = part;
      if (i != at_hand) {
        const MutableBytes other = buffer(mine.input).first(input.bytes);
        source_.shards[input.shard].bytes->read_at(input.offset, other);
        bytes = other;
      }
      if (!options_.allow_nonfinite) require_number_scales(input, bytes);
      sums.push_back(xxh3_128(bytes));
      codec_.insert(gather, input, bytes, rows);
    }
    const Xxh128 sum = gather_sum(sums);
    if (state_.gathered[number] != 0 && state_.gathers[number] == sum) return;
    const uint64_t each = rows.size() / gather.outputs;
    uint64_t stored = 0;
    for (uint32_t i = 0; i < gather.outputs; ++i) {
      const Bytes out = codec_.store_rows(gather, i, rows.subspan(i * each, each), buffer(mine.target));
      files_.write(gather.target, gather.output[i].offset, out);
      stored += out.size();
    }
    state_.gathers[number] = sum;
    state_.gathered[number] = 1;
    journal_.gather(number, sum, stored);
  }

  void require_finite_scales(uint32_t shard, const Extent& extent, Bytes part) const {
    const DType type = extent.dtype;
    if (!extent.of_tensor || !traits(type).quantised || !has_nonfinite_codes(type)) return;
    if (type == DType::kMXFP4 || type == DType::kNVFP4) return;  // codes that their formats call NaN are numbers here
    const FloatScan found = scan_floats(extent.dtype, part);
    if (found.clean()) return;
    fail_nonfinite(source_.shards[shard].bytes->name(), found.nan + found.inf, dtype_name(extent.dtype), extent.source_offset, extent.source_bytes);
  }

  // Scales of a checkpoint mean what its format says, and ggml's blocks read some of them otherwise: NaN, and negative ones.
  void require_number_scales(const GatherInput& input, Bytes bytes) const {
    if (input.transposed) return;
    const RowField field = plan_.movers[input.mover].layout().field;
    uint64_t bad = 0;
    if (field == RowField::kNvfp4Scales) {
      for (const std::byte b : bytes) bad += b > std::byte{0x80} || b == std::byte{0x7F};
    } else if (field == RowField::kMxfp4Scales) {
      for (const std::byte b : bytes) bad += b == std::byte{0xFF};
    }
    if (bad == 0) return;
    fail_nonfinite(source_.shards[input.shard].bytes->name(), bad, field == RowField::kNvfp4Scales ? "NVFP4" : "MXFP4", input.offset, input.bytes);
  }

  [[noreturn]] static void fail_nonfinite(const std::string& name, uint64_t count, const char* type, uint64_t offset, uint64_t bytes) {
    fail(ErrorKind::kCorrupt,
         "{}: {} of the {} block scales from byte {} to {} are {}NaN or infinite, and so would be every product with them; no pack was "
         "written. `tierpack verify --deep` names the tensors. Fetch the file again, or pass --allow-nonfinite",
         name, count, type, offset, offset + bytes, std::string_view(type) == "NVFP4" ? "negative, " : "");
  }

  // Deletes every shard, up to the last one copied, whose bytes are all in the pack and have been read back from it.
  void remove_finished(uint32_t last) {
    journal_.flush();
    for (uint32_t shard = 0; shard <= last; ++shard) {
      if (!source_.shards[shard].removable || removed_.count(shard) > 0 || !state_.has_shard(shard) || !gathers_done(shard)) continue;
      if (state_.verified[shard] == 0) {
        require_same_gathers(plan_, state_);
        if (!shard_is_in_pack(plan_, state_, options_, files_, shard, team_)) {
          state_.forget(shard);
          journal_.forget(shard);
          journal_.flush();
          fail(ErrorKind::kIo, "{}: the pack does not give it back; it was not deleted. Check the disk and the memory, and run the same command again to copy it anew",
               source_.shards[shard].bytes->name());
        }
        state_.verified[shard] = 1;
        journal_.verified(shard, state_.times[shard]);
        journal_.flush();
      }
      source_.remove(shard);
      removed_.insert(shard);
    }
  }

  const RepackSource& source_;
  const RepackPlan& plan_;
  const WriteOptions& options_;
  TargetFiles& files_;
  Journal& journal_;
  CopyState& state_;
  ThreadTeam& team_;
  Progress& progress_;
  const ExtentCodec codec_;
  std::vector<Scratch> scratch_;
  std::set<uint32_t> removed_;
  std::mutex scales_mutex_;
  std::map<std::pair<uint32_t, uint64_t>, float> scales_;  // of transcoded matrices
  std::vector<std::map<std::pair<uint32_t, uint64_t>, std::vector<Extent>>> coded_index_;  // by shard
};

}  // namespace

TargetFiles::TargetFiles(const RepackPlan& plan, const fs::path& directory, bool sparse) {
  for (int i = 0; i < kTargets; ++i) {
    const auto target = static_cast<Target>(i);
    const uint64_t bytes = plan.target_bytes(target);
    if (bytes == 0 && target == Target::kRows) continue;
    File& file = files_[static_cast<size_t>(i)].emplace(File::open(directory / target_file_name(target), File::Mode::kOpenOrCreate));
    if (!sparse) file.reserve(bytes);
    if (file.size() != bytes) file.truncate(bytes);
  }
}

void TargetFiles::write(Target target, uint64_t offset, Bytes bytes) {
  const auto i = static_cast<size_t>(target);
  {
    const std::lock_guard lock(writing_[i]);
    files_[i]->write_at(offset, bytes);
  }
  // Disks begin to write at once, not when everything is synced at the end; where the system cannot, nothing is lost.
  if (bytes.size() >= kEarlyBytes) {
    ::sync_file_range(files_[i]->fd(), static_cast<off_t>(offset), static_cast<off_t>(bytes.size()), SYNC_FILE_RANGE_WRITE);
  }
}

void TargetFiles::sync() {
  for (std::optional<File>& file : files_) {
    if (file) file->sync_data();
  }
}

void TargetFiles::close() {
  for (std::optional<File>& file : files_) {
    if (file) file->close();
  }
}

Xxh128 gather_sum(std::span<const Xxh128> inputs) { return xxh3_128(std::as_bytes(inputs)); }

void require_promised(const RepackSource& source, uint32_t shard, const Sha256Digest& digest) {
  const RepackShard& read = source.shards[shard];
  if (!read.promised || digest == *read.promised) return;
  fail(ErrorKind::kCorrupt, "{}: has SHA-256 {}, {} promises {}; no pack was written. Fetch the file again", read.bytes->name(), digest.hex(),
       read.promised_by, read.promised->hex());
}

void require_same_gathers(const RepackPlan& plan, const CopyState& state) {
  std::vector<Xxh128> sums;
  for (size_t i = 0; i < plan.gathers.size(); ++i) {
    if (state.gathered[i] == 0) continue;
    const Gather& gather = plan.gathers[i];
    sums.clear();
    bool all = true;
    for (uint32_t k = gather.first_input; k < gather.first_input + gather.inputs; ++k) {
      const GatherInput& input = plan.inputs[k];
      all &= state.stored[input.shard][input.extent] != 0;
      sums.push_back(state.extents[input.shard][input.extent]);
    }
    if (!all || gather_sum(sums) == state.gathers[i]) continue;
    const GatherInput& input = plan.inputs[gather.first_input];
    fail(ErrorKind::kCorrupt, "{}: bytes from {} on, or scales that belong to them, changed while they were read",
         plan.manifest.sources[input.shard].path, input.offset);
  }
}

void copy_source(const RepackSource& source, const RepackPlan& plan, const WriteOptions& options, TargetFiles& files, Journal& journal,
                 CopyState& state, ThreadTeam& team, Progress& progress) {
  journal.on_sync([&files] { files.sync(); });
  CopyPass(source, plan, options, files, journal, state, team, progress).run();
  require_same_gathers(plan, state);
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

#include "repack/repack_job.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "base/interrupt.h"
#include "repack/copy_journal.h"
#include "repack/in_place.h"
#include "repack/pack_writer.h"
#include "repack/part_directory.h"
#include "repack/repack_plan.h"
#include "repack/repack_source.h"

namespace tierpack::repack {

namespace fs = std::filesystem;

namespace {

// pack.json and directory entries, beyond what the plan knows.
constexpr uint64_t kDiskSlack = uint64_t{4} << 20;

struct CopyBudget {
  int threads = 1;
  uint64_t extent_bytes = 0;
};

// A buffer of this size stays in a core's cache between reading, checksums, writing and hashing.
constexpr uint64_t kExtentBytes = uint64_t{1} << 20;

void require_memory(uint64_t memory) {
  if (memory >= kMemoryMin) return;
  fail(ErrorKind::kUsage, "--memory {} is too small; repack needs at least {}", format_size(memory), format_size(kMemoryMin));
}

// Half of the memory is for buffers, the rest for headers, the plan and the process itself. How a source is cut depends on the source alone, so
// that runs with other threads and other memory go on where one stopped.
CopyBudget divide_memory(uint64_t memory, int jobs, uint64_t extent_bytes_needed) {
  CopyBudget out;
  out.extent_bytes = std::max(extent_bytes_needed, kExtentBytes);
  const uint64_t buffers = memory / 2;
  if (buffers < copy_buffer_bytes(1, out.extent_bytes)) {
    fail(ErrorKind::kCapacity, "--memory {} is too small for this source: its longest rows make groups of {}, for which repack needs at "
         "least {}", format_size(memory), format_size(extent_bytes_needed), format_size(2 * copy_buffer_bytes(1, out.extent_bytes)));
  }
  out.threads = static_cast<int>(
      std::min<uint64_t>(static_cast<uint64_t>(std::max(jobs, 1)), buffers / copy_buffer_bytes(1, out.extent_bytes)));
  return out;
}

// Whether `target` may be written; kUsage says why not.
void require_replaceable(const fs::path& target, bool force) {
  if (!fs::exists(target)) return;
  if (!fs::is_directory(target)) {
    fail(ErrorKind::kUsage, "{}: exists and is not a directory; choose another name for the pack", target.string());
  }
  if (!force) {
    fail(ErrorKind::kUsage, "{}: exists and is not the pack of this source, profile and version; choose another name, or "
         "replace it with --force", target.string());
  }
  if (!fs::is_empty(target) && !fs::exists(target / kPackManifestName)) {
    fail(ErrorKind::kUsage, "{}: is not a pack, so not even --force replaces it; choose another name", target.string());
  }
}

// True if a pack at `target` names the same shards, profile and version as the plan; hashes are compared by the caller.
std::optional<PackManifest> find_same_pack(const fs::path& target, const RepackPlan& plan) {
  if (!fs::exists(target / kPackManifestName)) return std::nullopt;
  try {
    const PackManifest have = Pack::open(target).manifest();
    const PackManifest& want = plan.manifest;
    const bool same = have.tool_version == want.tool_version && have.routing_id == want.routing_id &&
                      have.profile_id == want.profile_id && have.nonfinite_allowed == want.nonfinite_allowed &&
                      have.imatrix_id == want.imatrix_id &&
                      std::equal(have.transcoded.begin(), have.transcoded.end(), want.transcoded.begin(), want.transcoded.end(),
                                 [](const Transcoded& a, const Transcoded& b) { return a.tensor == b.tensor && a.to == b.to; }) &&
                      std::equal(have.sources.begin(), have.sources.end(), want.sources.begin(), want.sources.end(),
                                 [](const SourceShard& a, const SourceShard& b) { return a.path == b.path && a.bytes == b.bytes; });
    return same ? std::optional(have) : std::nullopt;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kCorrupt || e.kind() == ErrorKind::kUnsupported) return std::nullopt;
    throw;
  }
}

void require_disk(const fs::path& target, uint64_t bytes, uint64_t there) {
  const uint64_t needed = bytes + kDiskSlack - std::min(bytes, there);
  const uint64_t free = free_disk_bytes(target);
  if (needed > free) {
    fail(ErrorKind::kCapacity, "{}: the pack needs {}, but only {} are free there", target.string(), format_size(needed),
         format_size(free));
  }
}

uint64_t segment_bytes(const RepackPlan& plan) {
  uint64_t sum = 0;
  for (int i = 0; i < kTargets; ++i) sum += plan.target_bytes(static_cast<Target>(i));
  return sum;
}

// Disk space that the files of an unfinished pack take already.
uint64_t allocated_bytes(const fs::path& directory) {
  uint64_t sum = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    struct stat info {};
    if (::stat(entry.path().c_str(), &info) == 0) sum += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return sum;
}

void remove_leftovers(const fs::path& directory) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".journal") || name.starts_with("in-place.")) found.push_back(entry.path());
  }
  for (const fs::path& path : found) fs::remove(path, ignored);
}

// The number of parts that the journals in a directory speak of.
uint32_t parts_of(const fs::path& directory) {
  uint32_t parts = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    unsigned part = 0, of = 0;
    if (std::sscanf(name.c_str(), "part-%u-of-%u.journal", &part, &of) != 2) continue;
    if (parts != 0 && parts != of) {
      fail(ErrorKind::kUsage, "{}: holds shares of {} parts and of {}; remove it and write all parts again", directory.string(), parts, of);
    }
    parts = of;
  }
  if (parts == 0) fail(ErrorKind::kUsage, "{}: holds no shares to merge; write them with --part 1/N to --part N/N", directory.string());
  return parts;
}

bool holds_shares(const fs::path& directory) {
  return std::any_of(fs::directory_iterator(directory), fs::directory_iterator(), [](const fs::directory_entry& entry) {
    unsigned part = 0, of = 0;
    return std::sscanf(entry.path().filename().c_str(), "part-%u-of-%u.journal", &part, &of) == 2 && of > 1;
  });
}

class RepackRun {
 public:
  explicit RepackRun(const RepackOptions& options) : options_(options), start_(std::chrono::steady_clock::now()) {}

  RepackReport run() {
    require_memory(options_.memory);
    target_ = options_.target.lexically_normal();
    if (!target_.has_filename()) target_ = target_.parent_path();
    if (options_.in_place && is_finished_in_place()) return finish(RepackReport::Outcome::kAlreadyThere);
    open_source();
    make_plan();
    if (options_.dry_run) return finish(RepackReport::Outcome::kPlanned);
    ThreadTeam team(budget_.threads);
    if (!options_.force && is_there(team)) return finish(RepackReport::Outcome::kAlreadyThere);
    require_replaceable(target_, options_.force);
    return write(team);
  }

 private:
  // The pack has its name and every shard of weights it was made from is gone: nothing is left to do, or to compare with.
  bool is_finished_in_place() {
    if (!fs::exists(target_ / kPackManifestName)) return false;
    const PackManifest have = Pack::open(target_).manifest();
    const fs::path directory = fs::is_directory(options_.source) ? options_.source : options_.source.parent_path();
    size_t weights = 0;
    for (const SourceShard& shard : have.sources) {
      if (!shard.path.ends_with(".gguf") && !shard.path.ends_with(".safetensors")) continue;
      ++weights;
      if (fs::exists(directory / shard.path)) return false;
    }
    if (weights == 0 || !have.reversible()) return false;
    remove_leftovers(target_);  // of a run that was killed in its last moment
    report_.manifest = have;
    report_.proved_by.resize(have.sources.size());
    for (const SourceShard& shard : have.sources) report_.source_bytes += shard.bytes;
    for (const PackFile& file : have.files) report_.pack_bytes += file.bytes;
    return true;
  }

  // An unfinished --in-place repack is its own source, as far as its shards were deleted.
  void open_source() {
    const fs::path part = target_.string() + ".part";
    if (std::optional<InPlaceState> state = load_in_place(part, options_.source)) {
      source_ = std::move(state->source);
      routing_id_ = state->routing_id;
      resumes_in_place_ = true;
      return;
    }
    source_ = open_repack_source(options_.source);
  }

  void make_plan() {
    if (options_.in_place && !options_.transcode.empty()) {
      fail(ErrorKind::kUsage, "--in-place deletes what the pack gives back, and a transcoded pack gives nothing back: leave out one of --in-place and --transcode");
    }
    if (options_.in_place) require_removable(*source_);
    if (!routing_id_) routing_id_ = routing_id(*source_, read_model_config(source_->metadata).layers);
    PlanInputs inputs;
    inputs.routing_id = *routing_id_;
    inputs.shards = std::move(source_->layouts);
    inputs.tensors = source_->tensors;
    inputs.derived = source_->derived;
    inputs.metadata = std::move(source_->metadata);
    if (!options_.transcode.empty()) {
      const std::vector<TensorInfo> tensors = source_tensors(inputs);
      inputs.transcode = transcoded_types(options_.transcode, tensors, source_->name);
      for (const TensorInfo& scale : second_scales(inputs.transcode, tensors)) inputs.derived.push_back(scale);
      std::optional<Imatrix> imatrix;
      if (options_.imatrix) {
        imatrix = read_imatrix(*options_.imatrix);
        inputs.imatrix_id = sha256_of(File::open(*options_.imatrix, File::Mode::kRead));
      }
      transcoder_.emplace(std::move(imatrix));
    }
    inputs.nonfinite_allowed = options_.allow_nonfinite;
    inputs.source_name = source_->name;
    inputs.tool_version = options_.tool_version;
    budget_ = divide_memory(options_.memory, options_.jobs, extent_bytes_needed(inputs));
    inputs.extent_bytes_max = budget_.extent_bytes;
    if (options_.profile) {
      inputs.profile = read_profile(*options_.profile);
      inputs.profile_name = options_.profile->string();
    } else if (source_->profile && !options_.drop_profile) {
      inputs.profile = source_->profile;
      inputs.profile_name = source_->name;
    }
    plan_ = plan_repack(inputs);
    if (options_.in_place) {
      kept_layouts_ = std::move(inputs.shards);
      kept_metadata_ = std::move(inputs.metadata);
    }
    report_.manifest = plan_.manifest;
    report_.profile = inputs.profile;
    report_.unproved = source_->unproved;
    report_.kept_only = source_->kept_only;
    for (const RepackShard& shard : source_->shards) report_.proved_by.push_back(shard.promised_by);
    report_.source_bytes = plan_.source_bytes();
    report_.pack_bytes = plan_.pack_bytes();
    std::vector<Sha256Digest> promised;
    for (const RepackShard& shard : source_->shards) {
      times_.push_back(shard.time);
      promised.push_back(shard.promised.value_or(Sha256Digest{}));
      // Second scales hang on whole matrices: what was coded of a file that changed is worth nothing.
      if (!options_.transcode.empty()) store(promised.emplace_back().bytes.data(), shard.time);
    }
    number_ = plan_number(plan_, promised, budget_.extent_bytes);
  }

  bool is_there(ThreadTeam& team) {
    if (resumes_in_place_) return false;
    const std::optional<PackManifest> same = find_same_pack(target_, plan_);
    if (!same) return false;
    Progress progress("comparing with " + target_.string(), report_.source_bytes, options_.progress);
    const std::vector<Sha256Digest> digests = hash_shards(*source_, team, progress);
    for (size_t i = 0; i < digests.size(); ++i) {
      if (digests[i] != same->sources[i].sha256) return false;
    }
    report_.manifest = *same;
    return true;
  }

  // What is found in the part is gone on with or, when it is about something else, begun anew.
  void take_or_clear(PartDirectory& part) {
    const bool other = Journal::belongs_to_another(part.path(), options_.parts, number_);
    if (options_.parts == 1 && holds_shares(part.path())) {
      part.keep();
      fail(ErrorKind::kUsage, "{}: holds shares of a job in parts; finish it with --merge, or remove it first", part.path().string());
    }
    if (options_.parts > 1) {
      if (!other) return;
      fail(ErrorKind::kUsage, "{}: holds shares of another job: another source, profile, version or number of parts; remove it first", part.path().string());
    }
    if (resumes_in_place_ && other) {
      part.keep();
      fail(ErrorKind::kUsage, "{}: shards of this model were deleted by --in-place with another profile, version or other options; run that command again to finish it",
           part.path().string());
    }
    if (resumes_in_place_) return;
    if (other || !fs::exists(part.path() / Journal::file_name(0, 1))) part.clear();
  }

  RepackReport write(ThreadTeam& team) {
    const bool shared = options_.parts > 1;
    if (options_.merge && !fs::is_directory(target_.string() + ".part")) {
      fail(ErrorKind::kUsage, "{}.part: does not exist, so there are no shares to merge; write them with --part 1/N to --part N/N", target_.string());
    }
    PartDirectory part(target_, shared ? PartDirectory::Lock::kShared : PartDirectory::Lock::kAlone);
    if (shared || options_.merge || resumes_in_place_) part.keep();
    WriteOptions write{budget_.extent_bytes, options_.allow_nonfinite, options_.part, options_.parts, options_.in_place,
                       options_.on_bytes};
    if (transcoder_) write.transcoder = &*transcoder_;
    CopyState state(plan_, times_);
    if (options_.merge) return merge(part, write, state, team);
    take_or_clear(part);
    require_disk(target_, options_.in_place ? in_place_peak(plan_, *source_, part.path()) : report_.pack_bytes, allocated_bytes(part.path()));
    Journal journal(part.path(), options_.part, options_.parts, number_, state);
    count_resumed(state);
    if (options_.in_place && !resumes_in_place_) {
      save_in_place(part.path(), *source_, kept_layouts_, kept_metadata_, *routing_id_);
      part.keep();
    }
    const uint64_t mine = report_.source_bytes / options_.parts;
    Progress progress("repacking " + source_->name, mine + (shared ? 0 : segment_bytes(plan_)), options_.progress);
    TargetFiles files(plan_, part.path(), shared || options_.in_place);
    sync_directory(part.path());
    sync_directory(fs::absolute(part.path()).parent_path());
    try {
      copy_source(*source_, plan_, write, files, journal, state, team, progress);
      if (shared) {
        files.sync();
        journal.part_done();
        return finish(RepackReport::Outcome::kPartWritten);
      }
      prove_and_publish(part, write, files, state, team, progress);
    } catch (const Error& e) {
      // What was copied is gone on with; after a broken source or a full disk it is not wanted.
      if (e.kind() == ErrorKind::kInterrupted) {
        part.keep();
        journal.flush();
      }
      throw;
    }
    return finish(RepackReport::Outcome::kWritten);
  }

  void count_resumed(const CopyState& state) {
    for (uint32_t shard = 0; shard < plan_.extents.size(); ++shard) {
      for (size_t i = 0; i < plan_.extents[shard].size(); ++i) {
        if (state.stored[shard][i] != 0) report_.resumed_bytes += plan_.extents[shard][i].source_bytes;
      }
    }
  }

  // The SHA-256 of a shard whose bytes are still those that were copied.
  Sha256Digest hash_copied(uint32_t shard, const CopyState& state, Progress& progress) const {
    const ByteSource& source = *source_->shards[shard].bytes;
    std::vector<std::byte> buffer(budget_.extent_bytes);
    Sha256 hash;
    for (size_t i = 0; i < plan_.extents[shard].size(); ++i) {
      throw_if_interrupted();
      const Extent& extent = plan_.extents[shard][i];
      const MutableBytes bytes = MutableBytes(buffer).first(extent.source_bytes);
      source.read_at(extent.source_offset, bytes);
      const bool same = extent.kind == Extent::Kind::kZeros ? all_zeros(bytes) : xxh3_128(bytes) == state.extents[shard][i];
      if (!same) fail(ErrorKind::kCorrupt, "{}: byte {} and on are not those that a share copied; write all parts again", source.name(), extent.source_offset);
      hash.update(bytes);
      progress.add(bytes.size());
    }
    return hash.finish();
  }

  // All shares are there: shards that no share hashed whole are hashed now, everything is read back.
  RepackReport merge(PartDirectory& part, const WriteOptions& write, CopyState& state, ThreadTeam& team) {
    const uint32_t parts = parts_of(part.path());
    if (Journal::belongs_to_another(part.path(), parts, number_)) {
      fail(ErrorKind::kUsage, "{}: its shares were written from another source, with another profile or by another version; remove it and write all parts again",
           part.path().string());
    }
    Journal::read_all(part.path(), parts, number_, state);
    std::string missing;
    for (uint32_t i = 0; i < parts; ++i) {
      if (state.parts_done[i] == 0) missing += fmt::format("{}{}/{}", missing.empty() ? "" : ", ", i + 1, parts);
    }
    if (!missing.empty()) fail(ErrorKind::kUsage, "{}: not all shares are written; run --part {} first", part.path().string(), missing);
    for (uint32_t shard = 0; shard < plan_.extents.size(); ++shard) {
      TIERPACK_CHECK(state.has_shard(shard));
    }
    uint64_t unhashed = 0;
    std::vector<uint32_t> todo;
    for (uint32_t i = 0; i < state.shards.size(); ++i) {
      if (state.shards[i]) continue;
      todo.push_back(i);
      unhashed += source_->shards[i].bytes->size();
    }
    Progress progress("merging " + target_.string(), unhashed + segment_bytes(plan_), options_.progress);
    team.for_each(todo.size(), [&](size_t k) {
      state.shards[todo[k]] = hash_copied(todo[k], state, progress);
    });
    for (const uint32_t shard : todo) require_promised(*source_, shard, *state.shards[shard]);
    require_same_gathers(plan_, state);
    TargetFiles files(plan_, part.path(), true);
    prove_and_publish(part, write, files, state, team, progress);
    return finish(RepackReport::Outcome::kWritten);
  }

  void prove_and_publish(PartDirectory& part, const WriteOptions& write, TargetFiles& files, const CopyState& state, ThreadTeam& team,
                         Progress& progress) {
    report_.manifest = prove_pack(plan_, state, write, files, part.path(), team, progress);
    // The reader's own checks, before the name is given.
    Pack::open(part.path());
    // What --in-place needs to go on with is there until the pack has its name.
    const bool in_place = options_.in_place || resumes_in_place_;
    if (!in_place) remove_leftovers(part.path());
    part.publish(options_.force && fs::exists(target_));
    if (!in_place) return;
    remove_leftovers(target_);
    if (!options_.in_place) return;
    for (size_t i = 0; i < source_->shards.size(); ++i) {
      if (source_->shards[i].removable) report_.freed_bytes += report_.manifest.sources[i].bytes;
    }
  }

  RepackReport finish(RepackReport::Outcome outcome) {
    report_.outcome = outcome;
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    return std::move(report_);
  }

  const RepackOptions& options_;
  const std::chrono::steady_clock::time_point start_;
  fs::path target_;
  std::unique_ptr<RepackSource> source_;
  std::optional<Sha256Digest> routing_id_;
  bool resumes_in_place_ = false;
  std::vector<ShardLayout> kept_layouts_;  // for --in-place
  Metadata kept_metadata_;
  std::optional<Transcoder> transcoder_;
  CopyBudget budget_;
  RepackPlan plan_;
  std::vector<int64_t> times_;
  Xxh128 number_;
  RepackReport report_;
};

}  // namespace

RepackReport repack(const RepackOptions& options) { return RepackRun(options).run(); }

}  // namespace tierpack::repack

#include "repack/repack_job.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
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
constexpr uint64_t kExtentBytesMax = uint64_t{1} << 20;

void require_memory(uint64_t memory) {
  if (memory >= kMemoryMin) return;
  fail(ErrorKind::kUsage, "--memory {} is too small; repack needs at least {}", format_size(memory), format_size(kMemoryMin));
}

// Half of the memory is for buffers, the rest for headers, the plan and the process itself. A buffer holds at least
// `extent_bytes_needed`.
CopyBudget divide_memory(uint64_t memory, int jobs, uint64_t extent_bytes_needed) {
  CopyBudget out;
  const uint64_t buffers = memory / 2;
  if (buffers < copy_buffer_bytes(1, extent_bytes_needed)) {
    fail(ErrorKind::kCapacity, "--memory {} is too small for this source: its longest rows make groups of {}, for which repack needs at "
         "least {}", format_size(memory), format_size(extent_bytes_needed), format_size(2 * copy_buffer_bytes(1, extent_bytes_needed)));
  }
  out.threads = static_cast<int>(
      std::min<uint64_t>(static_cast<uint64_t>(std::max(jobs, 1)), buffers / copy_buffer_bytes(1, extent_bytes_needed)));
  const uint64_t each = buffers / copy_buffer_bytes(out.threads, 1) / kPageBytes * kPageBytes;
  out.extent_bytes = std::clamp(each, extent_bytes_needed, std::max(extent_bytes_needed, kExtentBytesMax));
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
                      have.profile_id == want.profile_id &&
                      std::equal(have.sources.begin(), have.sources.end(), want.sources.begin(), want.sources.end(),
                                 [](const SourceShard& a, const SourceShard& b) { return a.path == b.path && a.bytes == b.bytes; });
    return same ? std::optional(have) : std::nullopt;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kCorrupt || e.kind() == ErrorKind::kUnsupported) return std::nullopt;
    throw;
  }
}

void require_disk(const fs::path& target, uint64_t pack_bytes) {
  const uint64_t needed = pack_bytes + kDiskSlack;
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

}  // namespace

RepackReport repack(const RepackOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  require_memory(options.memory);
  const std::unique_ptr<RepackSource> source = open_repack_source(options.source);
  const CopyBudget budget = divide_memory(options.memory, options.jobs, extent_bytes_needed(source->layouts, source->name));

  PlanInputs inputs;
  inputs.routing_id = routing_id(*source, read_model_config(source->metadata).layers);
  inputs.shards = std::move(source->layouts);
  inputs.metadata = std::move(source->metadata);
  inputs.source_name = source->name;
  inputs.tool_version = options.tool_version;
  inputs.extent_bytes_max = budget.extent_bytes;
  if (options.profile) {
    inputs.profile = read_profile(*options.profile);
    inputs.profile_name = options.profile->string();
  } else if (source->profile && !options.drop_profile) {
    inputs.profile = source->profile;
    inputs.profile_name = source->name;
  }
  const RepackPlan plan = plan_repack(inputs);

  RepackReport report;
  report.manifest = plan.manifest;
  report.profile = inputs.profile;
  report.unproved = source->unproved;
  for (const RepackShard& shard : source->shards) report.proved_by.push_back(shard.promised_by);
  report.source_bytes = plan.source_bytes();
  report.pack_bytes = plan.pack_bytes();
  const auto finish = [&](RepackReport::Outcome outcome) {
    report.outcome = outcome;
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return report;
  };
  if (options.dry_run) return finish(RepackReport::Outcome::kPlanned);

  ThreadTeam team(budget.threads);
  fs::path target = options.target.lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  if (!options.force) {
    if (const std::optional<PackManifest> same = find_same_pack(target, plan)) {
      Progress progress("comparing with " + target.string(), report.source_bytes, options.progress);
      const std::vector<Sha256Digest> digests = hash_shards(*source, team, progress);
      const auto equal = [&](size_t i) { return digests[i] == same->sources[i].sha256; };
      bool all = true;
      for (size_t i = 0; i < digests.size(); ++i) all = all && equal(i);
      if (all) {
        report.manifest = *same;
        return finish(RepackReport::Outcome::kAlreadyThere);
      }
    }
  }
  require_replaceable(target, options.force);
  PartDirectory part(target);
  require_disk(target, report.pack_bytes);
  {
    Progress progress("repacking " + source->name, report.source_bytes + segment_bytes(plan), options.progress);
    report.manifest = write_pack(*source, plan, part.path(), budget.extent_bytes, options.allow_nonfinite, team, progress);
  }
  // The reader's own checks, before the name is given.
  Pack::open(part.path());
  part.publish(options.force && fs::exists(target));
  return finish(RepackReport::Outcome::kWritten);
}

}  // namespace tierpack::repack

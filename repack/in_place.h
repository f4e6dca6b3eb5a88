// --in-place: a repack that deletes each shard of weights once the pack gives it back, so that a model needs room for itself and one shard more.
// What later runs must know of deleted shards lies beside the pack's files until the pack has its name: in-place.json and the heads of the shards.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "repack/repack_plan.h"
#include "repack/repack_source.h"

namespace tierpack::repack {

struct InPlaceState {
  std::unique_ptr<RepackSource> source;  // deleted shards can be read at their heads only
  Sha256Digest routing_id;
};

// Throws kUsage for files whose deletion would not free their bytes, or would take them from others: links, and packs.
void require_removable(const RepackSource& source);

// Bytes that are in use at once, at most, beyond those the source has already.
// in `part`'s filesystem.
uint64_t in_place_peak(const RepackPlan& plan, const RepackSource& source, const std::filesystem::path& part);

// Keeps what is needed of the shards in `part`, which has no state yet, before any is deleted.
void save_in_place(const std::filesystem::path& part, const RepackSource& source, const std::vector<ShardLayout>& layouts, const Metadata& metadata,
                   const Sha256Digest& routing_id);

// The source of an unfinished --in-place repack in `part`; nullopt when there is none.
std::optional<InPlaceState> load_in_place(const std::filesystem::path& part, const std::filesystem::path& path);

}  // namespace tierpack::repack

// Where every byte of a source goes in its pack: computed from headers, a profile and a few facts about padding, without
// touching a disk, so that it can be printed, tested and acted upon.
//
// The plan tiles every shard with extents. An extent is the unit of copying: a run of source bytes with one destination,
// at most `extent_bytes_max` long. How a source is cut into extents never shows in the pack.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/model_config.h"
#include "formats/pack.h"
#include "formats/profile.h"

namespace tierpack::repack {

// Bytes of a shard that belong to no tensor.
struct Gap {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool zeros = false;
};

struct ShardLayout {
  std::string name;  // file name
  uint64_t bytes = 0;
  std::vector<TensorInfo> tensors;  // any order
  std::vector<Gap> gaps;            // ascending; with the tensors they tile the shard
};

enum class Target : uint8_t { kDense, kExperts, kRows, kSource };
inline constexpr int kTargets = 4;
const char* target_file_name(Target target);

struct Extent {
  enum class Kind : uint8_t {
    kCopy,   // bytes go as they are
    kGroups, // whole groups of rows of a quantised matrix, to be interleaved (formats/row_groups.h)
    kRows,   // whole rows, to be packed into checksummed pages
    kZeros,  // padding that is not stored; must be zeros still when it is read
  };
  Kind kind = Kind::kCopy;
  Target target = Target::kDense;
  bool of_tensor = false;     // whole blocks of a tensor
  DType dtype = DType::kF32;  // of the tensor
  uint32_t table = 0;         // kRows: index into manifest.rows
  uint64_t columns = 0;       // kGroups: of the matrix
  uint64_t source_offset = 0;  // in the shard
  uint64_t source_bytes = 0;
  uint64_t target_offset = 0;  // in the target file
  uint64_t target_bytes = 0;   // 0 for kZeros
};

struct RepackPlan {
  PackManifest manifest;  // complete but for checksums and digests
  ModelConfig config;
  std::vector<std::vector<Extent>> extents;  // by shard, ascending, tiling it
  std::vector<std::byte> metadata_gguf;
  std::string profile_json;  // empty without a profile
  uint64_t source_bytes() const;
  uint64_t target_bytes(Target target) const;
  uint64_t pack_bytes() const;  // all files but pack.json
};

struct PlanInputs {
  std::vector<ShardLayout> shards;
  Metadata metadata;  // of the first shard
  Sha256Digest routing_id;
  std::optional<Profile> profile;
  std::string profile_name;  // for messages
  std::string source_name;   // for messages
  std::string tool_version;
  uint64_t extent_bytes_max = uint64_t{1} << 20;
};

// The smallest extent_bytes_max that any plan accepts: it holds one unit of pages of the longest row of a table.
inline constexpr uint64_t kExtentBytesMin = uint64_t{128} << 10;

// The smallest extent_bytes_max that a plan of these tensors accepts: kExtentBytesMin, or the largest row group. Throws
// kUnsupported for a matrix whose groups are larger than a pack may hold (kGroupBytesMax).
uint64_t extent_bytes_needed(const std::vector<ShardLayout>& shards, const std::string& source_name);

// Throws kUnsupported for an architecture or expert layout that packs cannot hold, kCorrupt when tensors contradict the
// metadata, kUsage when the profile is of another model.
RepackPlan plan_repack(const PlanInputs& inputs);

// The order of experts in experts.bin as (index into expert_layers, expert): a cached record saves its bytes once for
// each use, so per byte of cache its benefit is its use count; hottest first, ties and unprofiled layers in natural order.
std::vector<std::pair<uint32_t, uint32_t>> expert_order(const std::vector<ExpertLayer>& layers,
                                                        const std::optional<Profile>& profile);

}  // namespace tierpack::repack

// Where every byte of a source goes in its pack: computed from headers, a profile and a few facts about padding, without
// touching a disk, so that it can be printed, tested and acted upon.
//
// The plan tiles every shard with extents. An extent is the unit of copying: a run of source bytes with one destination,
// at most `extent_bytes_max` long. How a source is cut into extents never shows in the pack.
#pragma once

#include <array>
#include <cstdint>
#include <map>
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

// Rows of a weight of a safetensors checkpoint, on their way to tensors of the pack.
struct MovedRows {
  uint64_t offset = 0;  // in the shard
  uint64_t bytes = 0;
  uint32_t tensor = 0;  // index into PlanInputs::tensors
  RowPiece rows;        // `other` likewise
};

struct ShardLayout {
  std::string name;  // file name
  uint64_t bytes = 0;
  std::vector<TensorInfo> tensors;  // any order
  std::vector<Gap> gaps;            // ascending; with the tensors they tile the shard, unless `moved` is used
  // Instead of tensors and gaps; what no move takes is kept as it is.
  std::vector<MovedRows> moved;
  bool of_checkpoint = false;
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
    kSpan,   // an input of a gather
    kTranscode,  // whole rows of a matrix, coded anew
    kSkip,   // bytes that a transcoded pack does not keep
  };
  Kind kind = Kind::kCopy;
  Target target = Target::kDense;
  bool of_tensor = false;     // whole blocks of a tensor
  DType dtype = DType::kF32;  // of the tensor in the source
  uint32_t transcoded = 0;    // kTranscode: index into RepackPlan::transcoded
  uint64_t matrix = 0;        // kTranscode: of the tensor
  uint32_t table = 0;         // kRows: index into manifest.rows
  uint64_t columns = 0;       // kGroups: of the matrix
  uint64_t source_offset = 0;  // in the shard
  uint64_t source_bytes = 0;
  uint64_t target_offset = 0;  // in the target file
  uint64_t target_bytes = 0;   // 0 for kZeros and kSpan
  uint32_t input = 0;          // kSpan: index into RepackPlan::inputs
  bool runs_gather = false;    // kSpan: the gather is done when this input is at hand; the others are read again
};

// Rows of a source that a gather puts into rows of the pack's tensors.
struct GatherInput {
  uint32_t gather = 0;
  uint32_t shard = 0;
  uint32_t extent = 0;   // the kSpan
  uint64_t offset = 0;   // in the shard
  uint64_t bytes = 0;
  uint32_t mover = 0;    // index into RepackPlan::movers
  uint64_t rows = 0;     // of the source
  uint32_t ways = 1;     // 2: odd rows go to the second output
  bool transposed = false;
  uint64_t target_row = 0;  // in the gather, of the first row; of odd ones in the second output as well
  uint64_t columns = 0, target_column = 0;  // transposed only
};

// A run of target bytes that is put together from several source ranges: whole rows of one or two like matrices.
struct Gather {
  struct Output {
    uint64_t offset = 0;  // in the target file
    uint64_t bytes = 0;   // there
  };
  Target target = Target::kDense;
  DType dtype = DType::kF32;
  bool grouped = false;     // the matrix lies in row groups
  uint32_t table = UINT32_MAX;  // index into manifest.rows
  uint64_t columns = 0;
  uint64_t rows = 0;        // of each output
  uint32_t outputs = 1;
  std::array<Output, 2> output;
  uint32_t first_input = 0;
  uint32_t inputs = 0;
};

// A tensor that is coded anew.
struct TranscodedTensor {
  std::string name;
  DType from = DType::kF32, to = DType::kF32;
  uint64_t columns = 0;
  uint64_t matrices = 1;
};

// Values that are computed, see PlanInputs::derived. Numbers behind those of the source are the scales of transcoded tensors.
struct DerivedWrite {
  Target target = Target::kDense;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint32_t derived = 0;
  uint64_t matrix = 0;
};

struct RepackPlan {
  PackManifest manifest;  // complete but for checksums and digests
  ModelConfig config;
  std::vector<std::vector<Extent>> extents;  // by shard, ascending, tiling it
  std::vector<Gather> gathers;
  std::vector<GatherInput> inputs;           // gather by gather
  std::vector<RowMover> movers;
  std::vector<DerivedWrite> derived;
  std::vector<TranscodedTensor> transcoded;
  uint32_t first_second_scale = 0;  // derived numbers from here on are the scales of transcoded tensors, in the order of those that have one
  std::vector<std::byte> metadata;  // metadata.gguf.zst
  std::string profile_json;  // empty without a profile
  uint64_t source_bytes() const;
  uint64_t target_bytes(Target target) const;
  uint64_t pack_bytes() const;  // all files but pack.json
};

struct PlanInputs {
  std::vector<ShardLayout> shards;
  // Of a checkpoint: what its rows are moved to, in the pack's order.
  std::vector<TensorInfo> tensors;
  // F32 tensors that are computed. Those named like a stack of experts, "blk.3.ffn_gate_exps.scale", go into the experts' records.
  std::vector<TensorInfo> derived;
  bool nonfinite_allowed = false;
  // Tensors to be coded anew, and their new types. The pack then keeps nothing that only unpack needs.
  std::map<std::string, DType> transcode;
  std::optional<Sha256Digest> imatrix_id;
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

// The smallest extent_bytes_max that a plan of these inputs accepts: kExtentBytesMin, or the largest row group, transposed matrix or matrix of computed
// values. Throws kUnsupported for a matrix whose groups are larger than a pack may hold (kGroupBytesMax).
uint64_t extent_bytes_needed(const PlanInputs& inputs);

// Extents that code rows of a matrix anew; those of the source begin at `source_offset`.
std::vector<Extent> coded_rows(const TranscodedTensor& tensor, uint32_t number, uint64_t matrix, Target target, uint64_t target_offset,
                               uint64_t source_offset, uint64_t rows, uint64_t bytes_max);

// Throws kUnsupported for an architecture or expert layout that packs cannot hold, kCorrupt when tensors contradict the
// metadata, kUsage when the profile is of another model.
RepackPlan plan_repack(const PlanInputs& inputs);

// The scales that NVFP4 needs beside its blocks, for tensors of `types`: F32 tensors to be added to PlanInputs::derived.
std::vector<TensorInfo> second_scales(const std::map<std::string, DType>& types, const std::vector<TensorInfo>& tensors);

// A model's metadata, whatever files it was split over.
Metadata without_split_keys(const Metadata& metadata);

// The tensors of the source that a plan places, under their names in the pack.
std::vector<TensorInfo> source_tensors(const PlanInputs& inputs);

// The order of experts in experts.bin as (index into expert_layers, expert): a cached record saves its bytes once for
// each use, so per byte of cache its benefit is its use count; hottest first, ties and unprofiled layers in natural order.
std::vector<std::pair<uint32_t, uint32_t>> expert_order(const std::vector<ExpertLayer>& layers,
                                                        const std::optional<Profile>& profile);

}  // namespace tierpack::repack

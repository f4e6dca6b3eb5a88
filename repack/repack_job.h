// The repack command as a library call: source in, pack out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "formats/pack.h"
#include "repack/transcode.h"

namespace tierpack::repack {

inline constexpr uint64_t kMemoryDefault = uint64_t{1} << 30;
inline constexpr uint64_t kMemoryMin = uint64_t{16} << 20;

struct RepackOptions {
  std::filesystem::path source;  // GGUF file, first shard, directory with one model, or a pack
  std::filesystem::path target;
  std::optional<std::filesystem::path> profile;
  bool drop_profile = false;     // natural order, even if the source is a pack with a profile
  uint64_t memory = kMemoryDefault;
  int jobs = 1;
  bool allow_nonfinite = false;  // pack block scales that are NaN or infinite
  bool force = false;            // replace another pack at the target
  std::vector<TranscodeRule> transcode;  // tensors to be coded anew; the pack then does not give its source back
  std::optional<std::filesystem::path> imatrix;  // weighs the columns of transcoded tensors
  bool in_place = false;         // delete each shard of weights once the pack gives it back
  uint32_t part = 0, parts = 1;  // write only share `part` (0-based) of `parts`; see `merge`
  bool merge = false;            // all shares are written: prove them and give the pack its name
  bool dry_run = false;          // plan only
  std::string tool_version;
  ProgressStyle progress = ProgressStyle::kSilent;
  // Called with a number of bytes after they were copied or read back, on any thread; what it throws ends the run.
  std::function<void(uint64_t)> on_bytes = {};
};

struct RepackReport {
  enum class Outcome { kPlanned, kWritten, kAlreadyThere, kPartWritten };
  Outcome outcome = Outcome::kPlanned;
  PackManifest manifest;
  std::optional<Profile> profile;        // that ordered the experts
  std::vector<std::string> proved_by;    // by shard: what promised its SHA-256, empty if nothing did
  std::vector<std::string> kept_only;    // weights that only unpack needs, such as a vision tower
  uint64_t resumed_bytes = 0;            // of the source that an earlier run had copied
  uint64_t freed_bytes = 0;              // of shards deleted by --in-place
  std::vector<std::string> unproved;     // shards that the directory's lock or SHA256SUMS does not mention
  uint64_t source_bytes = 0;
  uint64_t pack_bytes = 0;               // all files but pack.json
  double seconds = 0;
};

// Reads `source` once and writes `target`; the target appears complete or not at all. An existing target is left alone
// when it is a pack of exactly this source, profile and version (kAlreadyThere, after hashing the source), replaced with
// `force`, and refused otherwise (kUsage). Memory for copying stays within `memory` whatever the model's size: fewer threads run if it is
// small, and kCapacity is thrown if it cannot hold four buffers of the source's largest row group. The pack is the same, bit for bit, for any
// `jobs`, `memory` and `parts`. A run that was killed or interrupted is gone on with when the source's files, profile, options and version are
// the same; otherwise it is begun anew.
RepackReport repack(const RepackOptions& options);

}  // namespace tierpack::repack

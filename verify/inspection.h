// What a model is, gathered from headers alone: of a GGUF on disk or behind any ByteSource, or of a pack.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "formats/expert_stacks.h"
#include "formats/metadata.h"
#include "formats/model_config.h"
#include "formats/pack.h"

namespace tierpack::verify {

struct SizeClass {
  uint64_t tensors = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
  double bits_per_weight() const { return elements > 0 ? 8.0 * static_cast<double>(bytes) / static_cast<double>(elements) : 0; }
};

struct InspectedFile {
  std::string name;
  uint64_t bytes = 0;
  uint64_t tensors = 0;
};

// Which share of all uses in a profile the hottest experts answer, when they fill this share of the experts' bytes.
struct CoveragePoint {
  double bytes_share = 0;
  double uses_share = 0;
};

struct Inspection {
  std::string path;
  bool is_pack = false;
  uint32_t gguf_version = 0;               // of a GGUF
  std::vector<InspectedFile> files;        // shards, or the files of a pack
  std::vector<TensorInfo> tensors;         // as published
  Metadata metadata;
  std::optional<ModelConfig> config;       // absent when metadata contradicts itself
  std::string config_problem;              // why there is none
  SizeClass dense, experts, rows;
  std::map<DType, SizeClass> by_type;
  std::vector<ExpertLayer> layers;         // with routed experts

  // Packs only.
  std::string tool_version;
  Sha256Digest routing_id;
  std::vector<SourceShard> sources;        // without pieces
  std::optional<Profile> profile;
  std::vector<CoveragePoint> coverage;

  uint64_t bytes() const;
  // Bytes of routed experts that one token uses in the trunk; 0 without a config.
  uint64_t expert_bytes_per_token() const;
};

// Opens what a reference that is no local path stands for: the shards of one GGUF, or its first one.
using RemoteOpener = std::function<std::vector<std::unique_ptr<ByteSource>>(const std::string& reference)>;

// All shards of the GGUF that a reference stands for, the first one first; those that `remote` does not give with it are asked for
// by name.
std::vector<std::unique_ptr<ByteSource>> open_remote_shards(const std::string& reference, const RemoteOpener& remote);

// Throws kCorrupt for damaged headers. `shards` holds all shards, the first one first; they are only read.
Inspection inspect_gguf(const std::string& path, const std::vector<const ByteSource*>& shards);
Inspection inspect_pack(const std::filesystem::path& path);

// A local GGUF (file, first shard, directory) or pack; anything like "hf:org/name" or "https://..." goes to `remote`,
// which may be empty (kUsage then). Missing siblings of a remote first shard are asked from `remote` by name.
Inspection inspect_path(const std::string& path, const RemoteOpener& remote);

// Coverage at 1, 5, 10, 25, 50 and 75 percent of the experts' bytes, hottest first.
std::vector<CoveragePoint> profile_coverage(const std::vector<ExpertLayer>& layers, const Profile& profile);

}  // namespace tierpack::verify

// What a repack would make of a source, from its headers alone: so that `tierpack plan` can say whether a model fits before it is
// downloaded or repacked.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "formats/model_config.h"
#include "formats/pack.h"

namespace tierpack::repack {

struct PlannedPack {
  PackManifest manifest;  // without checksums and digests; experts in natural order
  ModelConfig config;
  bool routers_read = false;  // manifest.routing_id is the model's
  uint64_t pack_bytes = 0;
};

// A GGUF, its first shard, a safetensors checkpoint or a directory of either. `read_routers`: so that a profile can be told from
// another model's. Throws as repack does.
PlannedPack planned_pack(const std::filesystem::path& source, bool read_routers);

struct NamedSource {
  std::string name;  // file name
  const ByteSource* bytes = nullptr;
};
// The same from files elsewhere: all shards of a GGUF, the first one first, or the files of a checkpoint. Only headers and small files are read.
PlannedPack planned_pack_of(const std::string& name, const std::vector<NamedSource>& files);

}  // namespace tierpack::repack

// What repack reads: the shards of a GGUF, or those of a pack that is to be written again in another order.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/pack.h"
#include "formats/packed_shard.h"
#include "repack/repack_plan.h"

namespace tierpack::repack {

struct RepackShard {
  std::string name;                     // file name
  const ByteSource* bytes = nullptr;    // owned by the RepackSource
  std::optional<Sha256Digest> promised;
  std::string promised_by;
};

struct RepackSource {
  std::string name;
  std::vector<RepackShard> shards;
  Metadata metadata;                    // of the first shard
  std::vector<ShardLayout> layouts;
  std::optional<Profile> profile;       // of a pack
  std::vector<std::string> unproved;    // shards for which a lock or SHA256SUMS exists but says nothing

  GgufSource gguf;
  std::optional<Pack> pack;
  std::vector<std::unique_ptr<PackedShard>> packed;
};

// Opens a GGUF file, first shard, directory or pack; reads headers and what lies between tensors, nothing else. Sizes
// are compared with the nearest tierpack.lock.json or SHA256SUMS, whose hashes become the shards' promises.
std::unique_ptr<RepackSource> open_repack_source(const std::filesystem::path& path);

// SHA-256 over the f32 values of the trunk's routers (blk.N.ffn_gate_inp.weight, N ascending): the same for every
// quantisation that left them alone, see formats/profile.h.
Sha256Digest routing_id(const RepackSource& source, uint32_t layers);

}  // namespace tierpack::repack

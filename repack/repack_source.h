// What repack reads: the shards of a GGUF, a safetensors checkpoint with the files beside it, or the source of a pack that is to be written
// again in another order.
#pragma once

#include <filesystem>
#include <functional>
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
  std::filesystem::path path;           // of the file; empty in a pack
  int64_t time = 0;                     // of its last change, nanoseconds
  bool removable = false;               // holds weights, so --in-place deletes it
  bool removed = false;                 // --in-place has deleted it; only its head can be read
  std::optional<std::vector<Gap>> gaps; // of a removed shard
};

struct RepackSource {
  std::string name;
  std::vector<RepackShard> shards;
  Metadata metadata;                    // of the first shard
  std::vector<ShardLayout> layouts;
  std::vector<TensorInfo> tensors;      // of a checkpoint: see PlanInputs
  std::vector<TensorInfo> derived;
  // The values of matrix `matrix` of derived[i]. Thread-safe.
  std::function<std::vector<float>(uint32_t i, uint64_t matrix)> derive;
  std::optional<Profile> profile;       // of a pack
  std::vector<std::string> unproved;    // shards for which a lock or SHA256SUMS exists but says nothing

  std::vector<std::string> kept_only;   // weights of a checkpoint that only unpack needs

  GgufSource gguf;
  std::optional<Pack> pack;
  std::vector<std::unique_ptr<PackedShard>> packed;
  std::vector<std::unique_ptr<File>> files;          // of a checkpoint
  std::vector<std::unique_ptr<ByteSource>> removed;  // heads of deleted shards

  // Deletes a shard's file. It was read to the end, and the pack gives it back.
  void remove(uint32_t shard) const;
};

// Opens a GGUF file, first shard, safetensors file or index, directory or pack; reads headers and what lies between tensors, nothing else. Sizes
// are compared with the nearest tierpack.lock.json or SHA256SUMS, whose hashes become the shards' promises.
std::unique_ptr<RepackSource> open_repack_source(const std::filesystem::path& path);

// The rest of it, for shards that are at hand: layouts, tensors, metadata unless they are known already, promises.
void read_repack_source(RepackSource& source);

// SHA-256 over the f32 values of the trunk's routers (blk.N.ffn_gate_inp.weight, N ascending): the same for every
// quantisation that left them alone, see formats/profile.h.
Sha256Digest routing_id(const RepackSource& source, uint32_t layers);

}  // namespace tierpack::repack

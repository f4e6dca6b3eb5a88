// A source shard as it was before repacking: bytes at offsets, gathered from the segments of a pack. Reading one through
// with SHA-256 proves that the pack is reversible; writing one out is `unpack`; parsing one as GGUF lets a pack be
// repacked into another order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/pack.h"

namespace tierpack {

// Reading is thread-safe; the pack must outlive the shard. Bytes are as stored: record checksums are not computed, since
// the shard's SHA-256 is the proof; pages of row tables are proved as they are read.
class PackedShard final : public ByteSource {
 public:
  PackedShard(const Pack& pack, size_t shard);

  uint64_t size() const override { return shard_.bytes; }
  void read_at(uint64_t offset, MutableBytes out) const override;
  const std::string& name() const override { return name_; }
  const SourceShard& shard() const { return shard_; }

 private:
  // Where the bytes of a piece are.
  struct Place {
    uint64_t start = 0;  // in the shard
    const SourcePiece* piece = nullptr;
    const DenseTensor* dense = nullptr;   // at most one of the three is set, for tensors
    const ExpertLayer* layer = nullptr;
    const RowTable* rows = nullptr;
  };
  void read_piece(const Place& place, uint64_t offset, MutableBytes out) const;
  void read_stack(const ExpertLayer& layer, const std::string& tensor, uint64_t offset, MutableBytes out) const;
  void read_rows(const RowTable& table, uint64_t offset, MutableBytes out) const;

  const Pack& pack_;
  const SourceShard& shard_;
  std::string name_;
  std::vector<Place> places_;
};

}  // namespace tierpack

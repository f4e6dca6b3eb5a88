// A source shard as it was before repacking: bytes at offsets, gathered from the segments of a pack. Reading one through
// with SHA-256 proves that the pack is reversible; writing one out is `unpack`; parsing one as GGUF lets a pack be
// repacked into another order.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "formats/pack.h"

namespace tierpack {

// Reading is thread-safe; the pack must outlive the shard. Record checksums are not computed, since the shard's SHA-256 is the
// proof; pages of row tables are proved as they are read.
//
// Quantised matrices lie in row groups and are put back into row order here. A read that begins or ends inside a group reads the
// whole of it; the last few such groups are kept, so that reading a shard through in pieces reads each group once. Memory is
// bounded by kKeptGroups groups (kGroupBytesMax each, tens of KiB in most models) and two groups or kSliceBytes a read.
class PackedShard final : public ByteSource {
 public:
  PackedShard(const Pack& pack, size_t shard);

  uint64_t size() const override { return shard_.bytes; }
  void read_at(uint64_t offset, MutableBytes out) const override;
  const std::string& name() const override { return name_; }
  const SourceShard& shard() const { return shard_; }

  // Whole rows of a tensor of the pack, by its number (PackManifest::tensor_name), in row order and counted over all its matrices.
  void read_tensor(uint32_t tensor, uint64_t first_row, uint64_t rows, MutableBytes out) const {
    read_tensor_rows(tensor_of(tensor), first_row, rows, out);
  }

 private:
  // Where the bytes of a piece are.
  struct Place {
    uint64_t start = 0;  // in the shard
    const SourcePiece* piece = nullptr;
    const DenseTensor* dense = nullptr;   // at most one of the three is set, for tensors and rows of tensors
    const ExpertLayer* layer = nullptr;
    const RowTable* rows = nullptr;
  };
  // A tensor of the pack by its number; `part` only for those of experts.
  struct Tensor {
    const DenseTensor* dense = nullptr;
    const ExpertLayer* layer = nullptr;
    const ExpertPart* part = nullptr;
    const RowTable* rows = nullptr;
    DType dtype() const;
    uint64_t columns() const;
  };
  // A matrix that begins at byte `at` of a segment.
  struct Matrix {
    Segment segment = Segment::kDense;
    uint64_t at = 0;
    DType dtype = DType::kF32;
    uint64_t cols = 0;
    uint64_t rows = 0;
  };
  struct KeptGroup {
    Segment segment = Segment::kDense;
    uint64_t at = UINT64_MAX;
    std::vector<std::byte> rows;
  };
  static constexpr size_t kKeptGroups = 4;
  static constexpr uint64_t kSliceBytes = uint64_t{256} << 10;  // stays in a core's cache between reading and permuting

  void read_piece(const Place& place, uint64_t offset, MutableBytes out) const;
  void read_dense(const DenseTensor& tensor, uint64_t offset, MutableBytes out) const;
  // Bytes of a matrix in row order, from `offset`.
  void read_matrix(const Matrix& matrix, uint64_t offset, MutableBytes out) const;
  void read_whole_groups(const Matrix& matrix, uint64_t offset, MutableBytes out) const;
  void read_inside_group(const Matrix& matrix, uint64_t group, uint64_t skip, MutableBytes out) const;
  void read_stack(const ExpertLayer& layer, const std::string& tensor, uint64_t offset, MutableBytes out) const;
  Tensor tensor_of(uint32_t number) const;
  // Whole rows of a tensor in row order, counted over all its matrices.
  void read_tensor_rows(const Tensor& tensor, uint64_t first_row, uint64_t rows, MutableBytes out) const;
  // Bytes of a kRows piece.
  void read_row_piece(const SourcePiece& piece, uint64_t offset, MutableBytes out) const;
  void read_whole_source_rows(const SourcePiece& piece, uint64_t first, uint64_t rows, MutableBytes out) const;
  void read_transposed(const SourcePiece& piece, uint64_t first, uint64_t rows, MutableBytes out) const;
  void read_rows(const RowTable& table, uint64_t offset, MutableBytes out) const;

  const Pack& pack_;
  const SourceShard& shard_;
  std::string name_;
  std::vector<Place> places_;
  mutable std::mutex kept_mutex_;
  mutable std::array<KeptGroup, kKeptGroups> kept_;
  mutable size_t kept_next_ = 0;
};

}  // namespace tierpack

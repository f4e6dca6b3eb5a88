// What happens to bytes between a source and a pack, in both directions. The way back is what proves the way there.
#pragma once

#include "repack/repack_plan.h"

namespace tierpack::repack {

bool all_zeros(Bytes bytes);

class ExtentCodec {
 public:
  explicit ExtentCodec(const RepackPlan& plan) : plan_(plan) {}

  // The bytes that an extent becomes (kCopy, kGroups, kRows): `source` itself or in `buffer`.
  Bytes encode(const Extent& extent, Bytes source, MutableBytes buffer) const;
  // The bytes it was made from: `stored` itself or in `buffer`; nullopt when they are damaged.
  std::optional<Bytes> decode(const Extent& extent, Bytes stored, MutableBytes buffer) const;

  // Rows of a gather in row order: those of its first output, then those of the second.
  uint64_t rows_bytes(const Gather& gather) const { return gather.outputs * gather.rows * row_bytes(gather.dtype, gather.columns); }
  void insert(const Gather& gather, const GatherInput& input, Bytes source, MutableBytes rows) const;
  void extract(const Gather& gather, const GatherInput& input, Bytes rows, MutableBytes source) const;
  // One output's rows as they are stored, and back.
  Bytes store_rows(const Gather& gather, uint32_t output, Bytes rows, MutableBytes buffer) const;
  bool load_rows(const Gather& gather, uint32_t output, Bytes stored, MutableBytes rows) const;

 private:
  template <typename Move>
  void each_way(const Gather& gather, const GatherInput& input, const Move& move) const;
  const RepackPlan& plan_;
};

}  // namespace tierpack::repack

// What is known of every piece of shared memory: who wrote it last and who has read it since, to find accesses of different threads
// that nothing orders.
//
// Time: an epoch ends with every __syncthreads and every block; inside it, a warp counts its collectives of all lanes, and of those of
// some lanes it keeps which times of each other the lanes know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/cuda_on_cpu/block_run.h"

namespace tierpack::cuda_on_cpu {

enum class Access : uint8_t { kRead, kWrite, kUpdate, kCopy };

class Shadow {
 public:
  // For `bytes` of an array of elements of that size; what was known is forgotten only through epochs.
  void resize(size_t bytes, size_t element_bytes);
  // Elements of this size are accessed from now on.
  void refine(size_t element_bytes);
  // Records an access of the running thread, and returns whether it is allowed.
  bool access(const Launch& launch, Access access, size_t offset, size_t bytes) {
    const size_t odd = (offset | bytes) & ((size_t{1} << shift_) - 1);
    if (odd != 0) refine(odd & (~odd + 1));
    const size_t end = (offset + bytes) >> shift_;
    for (size_t i = offset >> shift_; i < end; ++i) {
      if (!(access == Access::kRead ? read(launch, pieces_[i]) : write(launch, access, pieces_[i]))) {
        wrong_ = i;
        return false;
      }
    }
    return true;
  }
  // Of the access that was not: where, and why.
  size_t wrong_offset() const { return wrong_ << shift_; }
  std::string complaint(const Launch& launch, Access access) const;
  // The copy to these bytes has been waited for by the running thread.
  void land(size_t offset, size_t bytes);

 private:
  struct Piece {
    Stamp write;
    Stamp read;        // the last; `others_too` of it are other lanes of its warp that read at the same `full`
    Stamp other_read;  // the last of another warp than that
  };
  bool read(const Launch& launch, Piece& piece);
  bool write(const Launch& launch, Access access, Piece& piece);

  unsigned shift_ = 0;  // of an offset to its piece
  size_t bytes_ = 0;
  size_t wrong_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace tierpack::cuda_on_cpu

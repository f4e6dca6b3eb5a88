// What is known of every piece of shared memory: who wrote it last and who has read it since, to find accesses of different threads
// that nothing orders.
//
// Time: an epoch ends with every __syncthreads and every block; inside it, a warp counts its collectives of all lanes, and those of
// some lanes are kept as the times of each other's that lanes know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/cuda_on_cpu/block_run.h"

namespace tierpack::cuda_on_cpu {

// An access: by whom and when.
struct Stamp {
  uint32_t epoch = 0;  // 0: none
  uint32_t full = 0;   // collectives of the whole warp before it
  uint32_t time = 0;   // other collectives of the thread before it
  uint16_t thread = 0;
  bool atomic = false;
  bool pending = false;      // a write by copy_async_16 that no one has waited for
  bool others_too = false;   // reads: other lanes of the warp read at the same `full`
};

enum class Access : uint8_t { kRead, kWrite, kUpdate, kCopy };

class Shadow {
 public:
  // For `bytes` of an array of elements of that size; what was known is forgotten only through epochs.
  void resize(size_t bytes, size_t element_bytes);
  // Elements of this size are accessed from now on.
  void refine(size_t element_bytes);
  // Records the access, or returns what is wrong with it (empty: nothing), and where.
  std::string access(Launch& launch, Access access, size_t offset, size_t bytes, size_t& wrong_offset);
  // The copy to these bytes has been waited for by the running thread.
  void land(Launch& launch, size_t offset, size_t bytes);

 private:
  struct Piece {
    Stamp write;
    Stamp read;        // the last
    Stamp other_read;  // the last of another warp than that
  };
  std::string check(Launch& launch, Access access, Piece& piece);

  size_t piece_bytes_ = 1;
  size_t bytes_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace tierpack::cuda_on_cpu

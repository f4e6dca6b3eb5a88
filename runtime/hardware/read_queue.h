// Reads of one file that overlap: a fixed number of slots with a buffer each. One thread submits and waits.
#pragma once

#include <cstdint>
#include <memory>

#include "base/file.h"

namespace tierpack::hardware {

class ReadQueue {
 public:
  virtual ~ReadQueue() = default;  // waits for what is under way
  // Begins to read `bytes` (at most a slot's) at `offset` into the buffer of an idle slot.
  virtual void submit(uint32_t slot, uint64_t offset, uint32_t bytes) = 0;
  struct Done {
    uint32_t slot;
    int64_t result;  // bytes, or a negative errno
  };
  virtual Done wait() = 0;  // the next to finish; something must be under way
  virtual bool registered() const { return false; }
};

// `memory`: slots * slot_bytes, aligned to pages. Null when the system has no io_uring for this process.
std::unique_ptr<ReadQueue> make_uring_queue(const File& file, std::byte* memory, uint32_t slots, uint32_t slot_bytes);
// Threads that read; always possible.
std::unique_ptr<ReadQueue> make_thread_queue(const File& file, std::byte* memory, uint32_t slots, uint32_t slot_bytes);

}  // namespace tierpack::hardware

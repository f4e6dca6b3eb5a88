// Reads of pieces of files, many in flight at once: by io_uring where the system has it, else by a few threads that call
// pread. Knows nothing of records; RecordReader above it decides what is read when.
//
// start() and flush() may be called from any thread; on_done is called from the queue's own threads, with no lock of the
// queue held, so that it may start further reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>

#include "base/bytes.h"
#include "base/file.h"

namespace tierpack::experts {

class DiskQueue {
 public:
  struct Read {
    int fd = -1;
    uint64_t offset = 0;
    std::byte* to = nullptr;
    uint32_t bytes = 0;
    uint32_t tag = 0;
  };
  // `result`: bytes read, which may be fewer than asked for, or -errno.
  using OnDone = std::function<void(uint32_t tag, int result)>;

  // Waits for reads in flight; on_done is not called after the destructor has returned.
  virtual ~DiskQueue() = default;
  // At most `depth` reads may be in flight. Reads may wait for flush().
  virtual void start(const Read& read) = 0;
  virtual void flush() = 0;
  virtual const char* name() const = 0;  // "io_uring" or "pread"
};

// A file to read from past the page cache, if `direct` and a trial read shows that it can be; else through it. What is read
// in the second way is to be dropped behind.
struct OpenedFile {
  File file;
  bool direct = false;
};
OpenedFile open_to_read(const std::filesystem::path& path, bool direct);

// io_uring, or null when the system does not offer it.
std::unique_ptr<DiskQueue> make_ring_queue(uint32_t depth, DiskQueue::OnDone on_done);
std::unique_ptr<DiskQueue> make_thread_queue(uint32_t depth, DiskQueue::OnDone on_done);

}  // namespace tierpack::experts

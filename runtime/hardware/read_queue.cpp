#include "runtime/hardware/read_queue.h"

#include <liburing.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"

namespace tierpack::hardware {

namespace {

constexpr uint32_t kThreadsMax = 16;

class UringQueue final : public ReadQueue {
 public:
  UringQueue(const File& file, std::byte* memory, uint32_t slots, uint32_t slot_bytes)
      : fd_(file.fd()), memory_(memory), slot_bytes_(slot_bytes) {
    usable_ = ::io_uring_queue_init(slots, &ring_, 0) == 0;
    if (!usable_) return;
    std::vector<iovec> buffers(slots);
    for (uint32_t i = 0; i < slots; ++i) buffers[i] = {buffer(i), slot_bytes};
    registered_ = ::io_uring_register_buffers(&ring_, buffers.data(), slots) == 0;
  }
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;
  ~UringQueue() override {
    if (!usable_) return;
    while (under_way_ > 0) wait();
    ::io_uring_queue_exit(&ring_);
  }

  bool usable() const { return usable_; }
  bool registered() const override { return registered_; }

  void submit(uint32_t slot, uint64_t offset, uint32_t bytes) override {
    io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    TIERPACK_CHECK(entry != nullptr && bytes <= slot_bytes_);
    if (registered_) {
      ::io_uring_prep_read_fixed(entry, fd_, buffer(slot), bytes, offset, static_cast<int>(slot));
    } else {
      ::io_uring_prep_read(entry, fd_, buffer(slot), bytes, offset);
    }
    ::io_uring_sqe_set_data(entry, reinterpret_cast<void*>(static_cast<uintptr_t>(slot)));
    ++under_way_;
    ++unsubmitted_;
  }

  Done wait() override {
    TIERPACK_CHECK(under_way_ > 0);
    while (unsubmitted_ > 0) {
      const int taken = ::io_uring_submit(&ring_);
      if (taken > 0) unsubmitted_ -= static_cast<uint32_t>(taken);
      if (taken < 0 && taken != -EINTR && taken != -EAGAIN && taken != -EBUSY) {
        fail(ErrorKind::kIo, "io_uring takes no more reads: error {}", -taken);
      }
    }
    io_uring_cqe* done = nullptr;
    int problem = 0;
    while ((problem = ::io_uring_wait_cqe(&ring_, &done)) == -EINTR) {
    }
    if (problem < 0) fail(ErrorKind::kIo, "io_uring does not finish reads: error {}", -problem);
    const Done out{static_cast<uint32_t>(reinterpret_cast<uintptr_t>(::io_uring_cqe_get_data(done))), done->res};
    ::io_uring_cqe_seen(&ring_, done);
    --under_way_;
    return out;
  }

 private:
  std::byte* buffer(uint32_t slot) const { return memory_ + size_t{slot} * slot_bytes_; }

  int fd_;
  std::byte* memory_;
  uint32_t slot_bytes_;
  io_uring ring_{};
  bool usable_ = false;
  bool registered_ = false;
  uint32_t under_way_ = 0;
  uint32_t unsubmitted_ = 0;
};

class ThreadQueue final : public ReadQueue {
 public:
  ThreadQueue(const File& file, std::byte* memory, uint32_t slots, uint32_t slot_bytes)
      : fd_(file.fd()), memory_(memory), slot_bytes_(slot_bytes) {
    for (uint32_t i = 0; i < std::min(slots, kThreadsMax); ++i) threads_.emplace_back([this] { work(); });
  }
  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;
  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void submit(uint32_t slot, uint64_t offset, uint32_t bytes) override {
    TIERPACK_CHECK(bytes <= slot_bytes_);
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back({slot, offset, bytes});
    }
    wake_.notify_one();
  }

  Done wait() override {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [&] { return !done_.empty(); });
    const Done out = done_.front();
    done_.pop_front();
    return out;
  }

 private:
  struct Asked {
    uint32_t slot;
    uint64_t offset;
    uint32_t bytes;
  };

  void work() {
    for (std::unique_lock lock(mutex_);;) {
      wake_.wait(lock, [&] { return stop_ || !asked_.empty(); });
      if (stop_) return;
      const Asked read = asked_.front();
      asked_.pop_front();
      lock.unlock();
      ssize_t got = 0;
      do {
        got = ::pread(fd_, memory_ + size_t{read.slot} * slot_bytes_, read.bytes, static_cast<off_t>(read.offset));
      } while (got < 0 && errno == EINTR);
      const int64_t result = got < 0 ? -errno : got;
      lock.lock();
      done_.push_back({read.slot, result});
      finished_.notify_one();
    }
  }

  int fd_;
  std::byte* memory_;
  uint32_t slot_bytes_;
  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  std::deque<Asked> asked_;
  std::deque<Done> done_;
  bool stop_ = false;
  std::vector<std::thread> threads_;  // last: they use everything above
};

}  // namespace

std::unique_ptr<ReadQueue> make_uring_queue(const File& file, std::byte* memory, uint32_t slots, uint32_t slot_bytes) {
  auto queue = std::make_unique<UringQueue>(file, memory, slots, slot_bytes);
  if (!queue->usable()) return nullptr;
  return queue;
}

std::unique_ptr<ReadQueue> make_thread_queue(const File& file, std::byte* memory, uint32_t slots, uint32_t slot_bytes) {
  return std::make_unique<ThreadQueue>(file, memory, slots, slot_bytes);
}

}  // namespace tierpack::hardware

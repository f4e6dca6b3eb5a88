// The disk queue over pread, for systems without io_uring: each of a few threads keeps one read in flight.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/experts/disk_queue.h"

namespace tierpack::experts {

namespace {

constexpr uint32_t kThreadsMax = 8;

class ThreadQueue final : public DiskQueue {
 public:
  ThreadQueue(uint32_t depth, OnDone on_done) : on_done_(std::move(on_done)), waiting_(depth) {
    const uint32_t threads = std::clamp(depth, 1u, kThreadsMax);
    for (uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }

  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void start(const Read& read) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_[(first_ + count_++) % waiting_.size()] = read;
    }
    changed_.notify_one();
  }
  void flush() override {}
  const char* name() const override { return "pread"; }

 private:
  void work() {
    for (;;) {
      Read read;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return count_ > 0 || stopping_; });
        if (count_ == 0) return;
        read = waiting_[first_];
        first_ = (first_ + 1) % waiting_.size();
        --count_;
      }
      ssize_t result = 0;
      do {
        result = ::pread(read.fd, read.to, read.bytes, static_cast<off_t>(read.offset));
      } while (result < 0 && errno == EINTR);
      on_done_(read.tag, result < 0 ? -errno : static_cast<int>(result));
    }
  }

  OnDone on_done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Read> waiting_;  // a ring of `count_` reads from `first_`
  size_t first_ = 0, count_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<DiskQueue> make_thread_queue(uint32_t depth, DiskQueue::OnDone on_done) {
  return std::make_unique<ThreadQueue>(depth, std::move(on_done));
}

}  // namespace tierpack::experts

// The disk queue over io_uring. Submissions are made under a mutex by whoever starts reads; completions are taken by one
// thread: the two sides of a ring are independent of each other.
#include <liburing.h>

#include <cerrno>
#include <chrono>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "runtime/experts/disk_queue.h"

namespace tierpack::experts {

namespace {

constexpr uint64_t kStopTag = std::numeric_limits<uint64_t>::max();
constexpr int kSubmitTriesMax = 10'000;  // of a millisecond each

class RingQueue final : public DiskQueue {
 public:
  explicit RingQueue(OnDone on_done) : on_done_(std::move(on_done)) {}

  bool open(uint32_t depth) {
    if (io_uring_queue_init(depth + 1, &ring_, IORING_SETUP_CLAMP) < 0) return false;
    open_ = true;
    io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);
    const bool reads = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ);
    io_uring_free_probe(probe);
    if (!reads) {
      io_uring_queue_exit(&ring_);
      open_ = false;
      return false;
    }
    reaper_ = std::thread([this] { reap(); });
    return true;
  }

  ~RingQueue() override {
    if (!open_) return;
    {
      const std::lock_guard lock(mutex_);
      io_uring_sqe* const sqe = next_sqe();
      io_uring_prep_nop(sqe);
      io_uring_sqe_set_flags(sqe, IOSQE_IO_DRAIN);  // after every read in flight
      io_uring_sqe_set_data64(sqe, kStopTag);
      submit();
    }
    reaper_.join();
    io_uring_queue_exit(&ring_);
  }

  void start(const Read& read) override {
    const std::lock_guard lock(mutex_);
    io_uring_sqe* const sqe = next_sqe();
    io_uring_prep_read(sqe, read.fd, read.to, read.bytes, read.offset);
    io_uring_sqe_set_data64(sqe, read.tag);
  }

  void flush() override {
    const std::lock_guard lock(mutex_);
    submit();
  }

  const char* name() const override { return "io_uring"; }

 private:
  io_uring_sqe* next_sqe() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) {
      submit();
      sqe = io_uring_get_sqe(&ring_);
    }
    TIERPACK_CHECK(sqe != nullptr);
    return sqe;
  }

  void submit() {
    // The kernel may take a part, or none while memory is short.
    for (int tries = 0; io_uring_sq_ready(&ring_) > 0;) {
      const int result = io_uring_submit(&ring_);
      if (result > 0 || result == -EINTR) continue;
      if (++tries == kSubmitTriesMax) {
        errno = -result;
        fail_errno("io_uring: cannot start reads");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void reap() {
    for (;;) {
      io_uring_cqe* cqe = nullptr;
      const int waited = io_uring_wait_cqe(&ring_, &cqe);
      if (waited == -EINTR || waited == -EAGAIN) continue;
      TIERPACK_CHECK(waited == 0);
      const uint64_t tag = io_uring_cqe_get_data64(cqe);
      const int result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (tag == kStopTag) return;
      on_done_(static_cast<uint32_t>(tag), result);
    }
  }

  OnDone on_done_;
  io_uring ring_{};
  bool open_ = false;
  std::mutex mutex_;  // the submission side
  std::thread reaper_;
};

}  // namespace

std::unique_ptr<DiskQueue> make_ring_queue(uint32_t depth, DiskQueue::OnDone on_done) {
  auto queue = std::make_unique<RingQueue>(std::move(on_done));
  return queue->open(depth) ? std::move(queue) : nullptr;
}

}  // namespace tierpack::experts

#include "fetch/prefix_hasher.h"

#include <algorithm>

#include "base/error.h"

namespace tierpack::fetch {

namespace {

// A turn: long enough to make locking free, short enough that files share the threads fairly.
constexpr uint64_t kSliceBytes = uint64_t{8} << 20;
// Less than this is not worth waking a thread for while the file still grows.
constexpr uint64_t kWakeBytes = uint64_t{1} << 20;
// Fits the second-level cache, so that hashing reads what the copy just brought there.
constexpr uint64_t kPieceBytes = uint64_t{256} << 10;

}  // namespace

class PrefixHasher::Task {
 public:
  // Constant after creation.
  std::shared_ptr<const File> file;
  OnDone on_done;
  // Used by the one thread that runs the task.
  Sha256 sha256;
  std::optional<Sha1> sha1;
  std::string error;
  // Guarded by the hasher's mutex.
  uint64_t available = 0;
  uint64_t hashed = 0;
  bool closed = false;
  bool busy = false;  // queued or running
  bool cancelled = false;
};

PrefixHasher::PrefixHasher(int threads) {
  for (int i = 0; i < std::max(1, threads); ++i) threads_.emplace_back([this] { work(); });
}

PrefixHasher::~PrefixHasher() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::shared_ptr<PrefixHasher::Task> PrefixHasher::start(std::shared_ptr<const File> file,
                                                        std::optional<uint64_t> git_blob_bytes, OnDone on_done) {
  auto task = std::make_shared<Task>();
  task->file = std::move(file);
  task->on_done = std::move(on_done);
  if (git_blob_bytes) {
    task->sha1.emplace();
    const std::string head = fmt::format("blob {}", *git_blob_bytes);
    task->sha1->update({reinterpret_cast<const std::byte*>(head.c_str()), head.size() + 1});  // with its NUL
  }
  return task;
}

void PrefixHasher::queue_if_ready(const std::shared_ptr<Task>& task) {
  if (task->busy || task->cancelled) return;
  const bool enough = task->available - task->hashed >= kWakeBytes;
  if (!enough && !task->closed) return;
  task->busy = true;
  ready_.push_back(task);
  wake_.notify_one();
}

void PrefixHasher::extend(const std::shared_ptr<Task>& task, uint64_t end) {
  const std::lock_guard lock(mutex_);
  task->available = std::max(task->available, end);
  queue_if_ready(task);
}

void PrefixHasher::close(const std::shared_ptr<Task>& task, uint64_t total) {
  const std::lock_guard lock(mutex_);
  task->available = total;
  task->closed = true;
  queue_if_ready(task);
}

void PrefixHasher::cancel(const std::shared_ptr<Task>& task) {
  const std::lock_guard lock(mutex_);
  task->cancelled = true;
}

uint64_t PrefixHasher::hashed(const std::shared_ptr<Task>& task) const {
  const std::lock_guard lock(mutex_);
  return task->hashed;
}

void PrefixHasher::hash_slice(Task& task, uint64_t from, uint64_t to, std::vector<std::byte>& buffer) {
  try {
    for (uint64_t at = from; at < to;) {
      const MutableBytes piece{buffer.data(), std::min<uint64_t>(buffer.size(), to - at)};
      task.file->read_at(at, piece);
      task.sha256.update(piece);
      if (task.sha1) task.sha1->update(piece);
      at += piece.size();
    }
  } catch (const Error& e) {
    task.error = e.what();
  }
}

void PrefixHasher::work() {
  std::vector<std::byte> buffer(kPieceBytes);
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || !ready_.empty(); });
    if (stopping_) return;
    const std::shared_ptr<Task> task = std::move(ready_.front());
    ready_.pop_front();
    if (task->cancelled) continue;
    const uint64_t from = task->hashed;
    const uint64_t to = std::min(task->available, from + kSliceBytes);
    lock.unlock();
    hash_slice(*task, from, to, buffer);
    lock.lock();
    task->hashed = to;
    task->busy = false;
    if (task->cancelled) continue;
    if (task->error.empty() && !(task->closed && task->hashed == task->available)) {
      queue_if_ready(task);
      continue;
    }
    task->busy = true;  // finished: never queued again
    lock.unlock();
    HashResult result;
    result.error = task->error;
    if (result.error.empty()) {
      result.sha256 = task->sha256.finish();
      if (task->sha1) result.git_sha1 = task->sha1->finish().hex();
    }
    task->on_done(std::move(result));
    lock.lock();
  }
}

}  // namespace tierpack::fetch

#include "runtime/server/request_queue.h"

#include <algorithm>

namespace tierpack::server {

std::optional<RequestQueue::Place> RequestQueue::enter() {
  const std::lock_guard lock(mutex_);
  if (closed_ || used_ == places_) return std::nullopt;
  ++used_;
  return Place(this);
}

void RequestQueue::leave() {
  const std::lock_guard lock(mutex_);
  --used_;
}

// Jobs are always let go of without the lock: their destructors give places back.
void RequestQueue::push(std::shared_ptr<Job> job) {
  {
    const std::lock_guard lock(mutex_);
    if (job->cancelled()) return;
    if (!closed_) {
      jobs_.push_back(std::move(job));
      changed_.notify_one();
      return;
    }
  }
  job->refuse();
}

void RequestQueue::cancel(const std::shared_ptr<Job>& job) {
  job->cancel();
  std::shared_ptr<Job> taken;
  const std::lock_guard lock(mutex_);
  if (const auto found = std::find(jobs_.begin(), jobs_.end(), job); found != jobs_.end()) {
    taken = std::move(*found);
    jobs_.erase(found);
  }
}

std::shared_ptr<RequestQueue::Job> RequestQueue::pop() {
  std::shared_ptr<Job> finished;
  std::unique_lock lock(mutex_);
  finished = std::move(running_);
  running_.reset();
  lock.unlock();
  finished.reset();
  lock.lock();
  changed_.wait(lock, [this] { return closed_ || !jobs_.empty(); });
  if (jobs_.empty()) return nullptr;
  running_ = std::move(jobs_.front());
  jobs_.pop_front();
  return running_;
}

void RequestQueue::close() {
  std::deque<std::shared_ptr<Job>> waiting;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    waiting.swap(jobs_);
    changed_.notify_all();
  }
  for (const auto& job : waiting) job->refuse();
}

void RequestQueue::cancel_running() {
  const std::lock_guard lock(mutex_);
  if (running_) running_->cancel();
}

size_t RequestQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  return used_ - std::min<size_t>(used_, running_ ? 1 : 0);
}

size_t RequestQueue::running() const {
  const std::lock_guard lock(mutex_);
  return running_ ? 1 : 0;
}

}  // namespace tierpack::server

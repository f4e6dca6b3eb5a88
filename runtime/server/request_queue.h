// Who may use the model next: first come, first served, with a limit on how many wait.
//
// A Place is taken when a request arrives, before it is even parsed, and held until its job is gone, so that the limit
// covers requests being prepared as well. Invariant: places in use <= limit + 1 (the one that runs). Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace tierpack::server {

class RequestQueue {
 public:
  class Place {
   public:
    Place(Place&& other) noexcept : queue_(std::exchange(other.queue_, nullptr)) {}
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (queue_ != nullptr) queue_->leave();
    }

   private:
    friend class RequestQueue;
    explicit Place(RequestQueue* queue) : queue_(queue) {}
    RequestQueue* queue_;
  };

  // Shared between the queue or the model's thread and the callback that cancels it.
  class Job {
   public:
    virtual ~Job() = default;
    virtual void run() = 0;     // on the model's thread
    virtual void refuse() = 0;  // the server stops before the job's turn
    void cancel() { cancelled_ = true; }
    bool cancelled() const { return cancelled_; }

   private:
    std::atomic<bool> cancelled_{false};
  };

  explicit RequestQueue(size_t limit) : places_(limit + 1) {}

  std::optional<Place> enter();                  // nothing when the queue is full or closed
  void push(std::shared_ptr<Job> job);           // refused at once when closed, dropped when cancelled
  void cancel(const std::shared_ptr<Job>& job);  // also takes it out of the queue
  // The next job, which counts as running until the following call; null when closed.
  std::shared_ptr<Job> pop();
  // No more jobs: those that wait are refused; pop() returns null after the running one.
  void close();
  void cancel_running();

  size_t waiting() const;  // those being prepared included
  size_t running() const;

 private:
  void leave();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const size_t places_;
  size_t used_ = 0;
  std::deque<std::shared_ptr<Job>> jobs_;
  std::shared_ptr<Job> running_;
  bool closed_ = false;
};

}  // namespace tierpack::server

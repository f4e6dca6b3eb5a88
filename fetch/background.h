// A thread for work that may block for long (flushing, renaming), and the way back: results are delivered to the
// thread that owns the state they change, as functions it runs when it likes.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tierpack::fetch {

// Functions posted from any thread, run by the owner.
class Mailbox {
 public:
  // `wake` is called after each post, from the posting thread.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}
  void post(std::function<void()> letter);
  // Runs what has been posted; returns how many.
  size_t run_all();

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> letters_;
  std::function<void()> wake_;
};

class Background {
 public:
  Background();
  ~Background();  // finishes what is queued
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  // Jobs run one after the other and must not throw.
  void run(std::function<void()> job);

 private:
  void work();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tierpack::fetch

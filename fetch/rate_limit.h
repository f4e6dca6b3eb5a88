// A limit on bytes per second over all connections: a bucket that fills with time. Whoever finds it empty waits; whoever
// takes more than is there leaves a debt, so that the average holds for pieces of any size. Pure: the caller tells the time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tierpack::fetch {

class RateLimit {
 public:
  explicit RateLimit(uint64_t bytes_per_s) : rate_(static_cast<double>(bytes_per_s)) {}  // 0: no limit

  bool is_limited() const { return rate_ > 0; }
  // `now` in seconds, never less than before.
  void advance(double now) {
    if (!is_limited()) return;
    // A quarter second may be saved up: enough to be smooth, too little for a burst that matters.
    level_ = std::min(rate_ * 0.25, level_ + rate_ * (now - std::min(last_, now)));
    last_ = now;
  }
  bool has_room() const { return !is_limited() || level_ > 0; }
  void take(uint64_t bytes) {
    if (is_limited()) level_ -= static_cast<double>(bytes);
  }
  // Seconds until there is room again.
  double wait() const { return has_room() ? 0 : -level_ / rate_; }

 private:
  double rate_;
  double level_ = 0;
  double last_ = 0;
};

}  // namespace tierpack::fetch

// How many connections to use. More are not better: they are added only while the total throughput rises, and taken away
// when a server asks for less. Pure: the caller measures and tells.
#pragma once

#include <algorithm>

namespace tierpack::fetch {

class ConnectionControl {
 public:
  // A fixed number when `start` == `most`.
  ConnectionControl(int start, int most) : target_(std::clamp(start, 1, most)), most_(most), fixed_(start == most) {}

  int target() const { return target_; }

  // Throughput of a whole window during which `target()` connections had work to do.
  void on_window(double bytes_per_s) {
    if (fixed_) return;
    if (hold_ > 0) {
      --hold_;
      best_ = bytes_per_s;
      return;
    }
    if (!probing_) {
      best_ = std::max(bytes_per_s, best_ * kForget);
      grow();
      return;
    }
    probing_ = false;
    if (bytes_per_s > best_ * kWorthIt) {
      best_ = bytes_per_s;
      grow();
    } else {
      target_ = before_;
      hold_ = rest_;
      rest_ = std::min(rest_ * 2, kLongestRest);
    }
  }

  // 429, 503, or a connection that was reset.
  void on_throttled() {
    if (!fixed_) target_ = std::max(1, target_ / 2);
    probing_ = false;
    hold_ = kRestAfterThrottling;
  }

 private:
  static constexpr double kWorthIt = 1.10;  // a step must bring at least a tenth more
  static constexpr double kForget = 0.9;    // an old best fades, so that a changed network is noticed
  static constexpr int kRestAfterThrottling = 15;
  static constexpr int kLongestRest = 60;

  void grow() {
    if (target_ >= most_) return;
    before_ = target_;
    target_ = std::min(most_, target_ * 2);
    probing_ = true;
  }

  int target_;
  int most_;
  bool fixed_;
  int before_ = 1;
  double best_ = 0;
  bool probing_ = false;
  int hold_ = 0;  // windows to sit still
  int rest_ = 8;
};

}  // namespace tierpack::fetch

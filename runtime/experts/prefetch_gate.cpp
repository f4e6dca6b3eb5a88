#include "runtime/experts/prefetch_gate.h"

#include <algorithm>

namespace tierpack::experts {

namespace {

constexpr double kShareStep = 1.0 / 64;   // weight of one outcome
constexpr double kIdleStep = 1.0 / 32;
constexpr double kClose = 0.45;           // below this share of used records the gate closes
constexpr double kOpen = 0.55;            // a trial has to reach this
constexpr uint32_t kOutcomesMin = 64;     // before anything is decided
constexpr uint32_t kTrialEvery = 8192;    // layers
constexpr uint32_t kTrialLayers = 128;
constexpr uint32_t kRecordsMax = 8;

}  // namespace

void PrefetchGate::on_layer() {
  if (!closed_) return;
  if (trial_left_ > 0) {
    if (--trial_left_ == 0 && share_ >= kOpen) closed_ = false;
    return;
  }
  if (++layers_closed_ < kTrialEvery) return;
  layers_closed_ = 0;
  trial_left_ = kTrialLayers;
  share_ = (kClose + kOpen) / 2;
}

void PrefetchGate::on_outcome(bool used) {
  share_ += kShareStep * ((used ? 1.0 : 0.0) - share_);
  ++outcomes_;
  if (!closed_ && outcomes_ >= kOutcomesMin && share_ < kClose) {
    closed_ = true;
    layers_closed_ = 0;
    trial_left_ = 0;
  }
}

void PrefetchGate::on_idle(double idle_us) { idle_us_ += kIdleStep * (std::max(idle_us, 0.0) - idle_us_); }

uint32_t PrefetchGate::records(uint64_t record_bytes, double disk_bytes_s) const {
  const double fit = idle_us_ * 1e-6 * disk_bytes_s / static_cast<double>(record_bytes);
  return static_cast<uint32_t>(std::clamp(fit + 0.5, 1.0, static_cast<double>(kRecordsMax)));
}

}  // namespace tierpack::experts

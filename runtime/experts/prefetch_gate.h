// Decides whether guesses about the next layer are worth reading ahead, from how they fared. Pure; times and sizes come
// from the caller.
//
// Reading ahead wins when the disk would have stood idle and the record is asked for; it loses when a wrong record keeps
// the disk busy or displaces a better one. So no more is read ahead than fits the idle time between two layers, and
// nothing at all while too few of the records read ahead are used. A closed gate opens for a short trial now and then.
#pragma once

#include <cstdint>

namespace tierpack::experts {

class PrefetchGate {
 public:
  explicit PrefetchGate(bool enabled) : enabled_(enabled) {}

  // Asked once a layer, while decoding.
  bool open() const { return enabled_ && (!closed_ || trial_left_ > 0); }
  void on_layer();
  // A record that was read ahead was asked for, or was dropped or passed over unused.
  void on_outcome(bool used);
  // Time between two layers in which no demand was on its way, and what the disk reads in a second.
  void on_idle(double idle_us);
  // Records of `record_bytes` to read ahead for one layer.
  uint32_t records(uint64_t record_bytes, double disk_bytes_s) const;

  double precision() const { return share_; }

 private:
  bool enabled_;
  bool closed_ = false;
  double share_ = 1;      // running share of records read ahead that were used
  uint32_t outcomes_ = 0;
  uint32_t trial_left_ = 0;
  uint32_t layers_closed_ = 0;
  double idle_us_ = 0;    // running
};

}  // namespace tierpack::experts

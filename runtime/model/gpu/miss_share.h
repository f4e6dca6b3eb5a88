// Who computes an expert that is not in device memory: the CPU where it lies, or the GPU after a copy. Both work at the same time, so each
// miss of a layer goes to the side that would be done with it first, by costs that are measured as the model runs. The answer does not
// depend on it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tierpack::model {

class MissShare {
 public:
  enum class Side { kCpu, kCopy };

  // `copy_bytes_s`: speed of the link, as far as it is known; 0 = not known.
  explicit MissShare(double copy_bytes_s) {
    if (copy_bytes_s > 0) copy_s_per_byte_ = 1 / copy_bytes_s;
  }

  void begin_layer() { cpu_load_s_ = copy_load_s_ = 0; }

  // For an expert's record of `bytes` that `tokens` tokens chose.
  Side choose(uint64_t bytes, uint32_t tokens) {
    const double cpu = cpu_load_s_ + cpu_work(bytes, tokens) * cpu_s_per_byte_;
    const double copy = copy_load_s_ + static_cast<double>(bytes) * copy_s_per_byte_;
    if (cpu <= copy) {
      cpu_load_s_ = cpu;
      return Side::kCpu;
    }
    copy_load_s_ = copy;
    return Side::kCopy;
  }

  // What some experts took; work as cpu_work gives it, summed.
  void measured_cpu(double work, double seconds) { blend(cpu_s_per_byte_, seconds, work); }
  void measured_copy(uint64_t bytes, double seconds) { blend(copy_s_per_byte_, seconds, static_cast<double>(bytes)); }

  // Bytes that cost the CPU as much: one token waits for memory, so that a few more are free.
  static double cpu_work(uint64_t bytes, uint32_t tokens) {
    return static_cast<double>(bytes) * std::max(1.0, static_cast<double>(tokens) / kFreeTokens);
  }

  double cpu_bytes_s() const { return 1 / cpu_s_per_byte_; }
  double copy_bytes_s() const { return 1 / copy_s_per_byte_; }

 private:
  static constexpr double kFreeTokens = 3;
  static constexpr double kWeight = 0.1;  // of a new measurement

  static void blend(double& cost, double seconds, double amount) {
    if (amount > 0 && seconds > 0) cost += kWeight * (seconds / amount - cost);
  }

  double cpu_s_per_byte_ = 1 / 20e9;   // until measured
  double copy_s_per_byte_ = 1 / 12e9;
  double cpu_load_s_ = 0;
  double copy_load_s_ = 0;
};

}  // namespace tierpack::model

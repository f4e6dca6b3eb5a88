// Counters of a server and their Prometheus text. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/generate.h"

namespace tierpack::server {

// Upper bounds in seconds, ascending; one more bucket has none.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds_s) : bounds_s_(std::move(bounds_s)), counts_(bounds_s_.size() + 1) {}
  void observe(double seconds, uint64_t times = 1);
  std::string text(const std::string& name) const;  // _bucket, _sum and _count lines

 private:
  std::vector<double> bounds_s_;
  std::vector<uint64_t> counts_;
  double sum_s_ = 0;
};

// What is so at the moment of asking.
struct ServerGauges {
  bool ready = false;
  size_t waiting = 0;
  size_t running = 0;
  size_t connections = 0;
  ExpertCounters experts;
  std::vector<ExpertLayerCounters> layers;
  SeedProgress seed;
};

class Metrics {
 public:
  Metrics();
  void on_response(const std::string& route, unsigned status);
  void on_generated(const GenerateResult& result, double queued_s);
  std::string prometheus(const ServerGauges& gauges, const std::string& model) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, unsigned>, uint64_t> responses_;
  std::map<std::string, uint64_t> finished_;
  uint64_t prompt_tokens_ = 0;
  uint64_t reused_tokens_ = 0;
  uint64_t generated_tokens_ = 0;
  uint64_t reasoning_tokens_ = 0;
  double prefill_s_ = 0;
  double decode_s_ = 0;
  Histogram queued_;
  Histogram first_token_;
  Histogram per_token_;
  Histogram whole_;
  double started_s_;
};

}  // namespace tierpack::server

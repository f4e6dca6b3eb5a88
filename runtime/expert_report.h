// The expert store's counters as people and programs read them: at the end of run, in bench, eval and /metrics.
#pragma once

#include <span>
#include <string>

#include "base/json.h"
#include "runtime/experts/expert_store.h"

namespace tierpack {

// One counter: its name in JSON and metrics, and what it counts.
struct ExpertCounterField {
  const char* name;
  const char* help;
  uint64_t ExpertCounters::*value;
};
std::span<const ExpertCounterField> expert_counter_fields();

ExpertCounters operator-(const ExpertCounters& after, const ExpertCounters& before);

// Requests that found their expert in RAM or VRAM, of all; 0 without requests.
double hit_rate(const ExpertCounters& counters);

// "experts 1,234 (91.2 % from RAM, 12 read from disk, 30.1 MiB), stalled 0.120 s"
std::string expert_summary(const ExpertCounters& counters);
// A table, a line a layer.
std::string expert_layer_table(std::span<const ExpertLayerCounters> layers);

Json expert_json(const ExpertCounters& counters);
Json expert_json(const ExpertCounters& counters, std::span<const ExpertLayerCounters> layers);

}  // namespace tierpack

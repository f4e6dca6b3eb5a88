// What simulations of one recording say, as a table, as JSON and as a plot.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/experts/cache_simulator.h"
#include "runtime/svg_plot.h"

namespace tierpack {

// One policy at one capacity.
struct SimulationRun {
  std::string policy;
  double share = 0;  // capacity by bytes of all experts
  uint64_t capacity_bytes = 0;
  experts::SimulationResult result;
  experts::SimulationResult bound;  // belady's at this capacity
  // Hit rate as a part of the bound's; 1 where nothing can be hit.
  double of_bound() const;
};

// How a policy came back after a recording began.
struct Recovery {
  double first = 0;   // hit rate of the recording's first window
  double by_256 = 0;  // of the window that ends at token 256, or the last one
  double steady = 0;  // of its second half
  // Tokens until a window's part of the bound's hit rate was at least 95 % of what it is in the second half.
  std::optional<uint64_t> tokens;
};
Recovery recovery(const SimulationRun& run, size_t recording);

struct SimulationReport {
  std::vector<std::string> traces;
  std::string profile;  // empty: begun cold
  uint64_t tokens = 0;
  uint64_t expert_bytes = 0;
  uint32_t layers = 0, experts = 0, used = 0;
  double disk_bytes_s = 0;  // 0: not asked
  std::vector<SimulationRun> runs;  // by capacity as given, then by policy

  std::string table() const;
  std::string json() const;
  Plot plot() const;
};

}  // namespace tierpack

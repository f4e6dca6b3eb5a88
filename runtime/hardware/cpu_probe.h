// The processor as the system describes it, and the part of it that this process may use.
#pragma once

#include <filesystem>
#include <vector>

#include "formats/hardware.h"

namespace tierpack::hardware {

struct CpuPlace {
  CpuInfo info;               // `isa` is not filled in
  uint32_t nodes_usable = 1;  // memory nodes whose processors this process may use
};

// Numbers of the logical CPUs that this process may run on, ascending.
std::vector<int> allowed_cpus();

// From root/proc and root/sys. `core_limit`: most cores worth using, 0 for none (a control group's quota).
CpuPlace describe_cpu(const std::filesystem::path& root, const std::vector<int>& allowed, uint32_t core_limit);

}  // namespace tierpack::hardware

#include "runtime/hardware/cpu_probe.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "base/memory_placement.h"
#include "runtime/hardware/sysfs_files.h"

namespace tierpack::hardware {

namespace {

namespace fs = std::filesystem;

// "32K", "36864K", "1M" -> bytes.
uint64_t cache_bytes(const std::string& text) {
  char* unit = nullptr;
  const uint64_t value = std::strtoull(text.c_str(), &unit, 10);
  return *unit == 'K' ? value << 10 : *unit == 'M' ? value << 20 : value;
}

void describe_caches(const fs::path& cpu, CpuInfo& out) {
  for (int index = 0; index < 16; ++index) {
    const fs::path cache = cpu / fmt::format("cache/index{}", index);
    const auto level = number_in(cache / "level");
    if (!level) return;
    if (first_line(cache / "type") == "Instruction") continue;
    const uint64_t bytes = cache_bytes(first_line(cache / "size"));
    if (*level == 1) out.l1d_bytes = bytes;
    if (*level == 2) out.l2_bytes = bytes;
    if (*level == 3) out.l3_bytes = bytes;
  }
}

uint32_t usable_nodes(const fs::path& sysfs, const std::vector<int>& allowed) {
  uint32_t count = 0;
  for (const uint32_t node : memory_nodes(sysfs)) {
    const auto cpus = parse_node_list(first_line(sysfs / fmt::format("devices/system/node/node{}/cpulist", node)));
    count += cpus && std::any_of(allowed.begin(), allowed.end(), [&](int cpu) {
               return std::binary_search(cpus->begin(), cpus->end(), static_cast<uint32_t>(cpu));
             });
  }
  return std::max(count, 1u);
}

}  // namespace

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> out;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) out.push_back(cpu);
  }
  return out;
}

CpuPlace describe_cpu(const fs::path& root, const std::vector<int>& allowed, uint32_t core_limit) {
  CpuPlace place;
  CpuInfo& out = place.info;
  out.model = field_of(root / "proc/cpuinfo", "model name");
  const fs::path sysfs = root / "sys";
  const fs::path cpus = sysfs / "devices/system/cpu";
  std::set<std::pair<int64_t, int64_t>> cores;
  for (const int cpu : allowed) {
    const fs::path topology = cpus / fmt::format("cpu{}/topology", cpu);
    const auto package = number_in(topology / "physical_package_id");
    const auto core = number_in(topology / "core_id");
    if (package && core) cores.emplace(*package, *core);
  }
  out.threads = static_cast<uint32_t>(allowed.size());
  out.cores = cores.empty() ? out.threads : static_cast<uint32_t>(cores.size());
  if (core_limit > 0 && core_limit < out.cores) out.cores = out.threads = core_limit;
  if (!allowed.empty()) describe_caches(cpus / fmt::format("cpu{}", allowed.front()), out);
  out.numa_nodes = static_cast<uint32_t>(memory_nodes(sysfs).size());
  place.nodes_usable = usable_nodes(sysfs, allowed);
  return place;
}

}  // namespace tierpack::hardware

#include "runtime/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace tierpack {

namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// The number after `key` in a file of "key number ..." lines.
std::optional<uint64_t> number_after(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    try {
      return std::stoull(line.substr(key.size()));
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

// A file that holds one number; "max" and a missing file have none.
std::optional<uint64_t> number_in(const char* path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

uint64_t cgroup_available(const char* limit_file, const char* usage_file, const char* stat_file,
                          const char* cache_key) {
  const auto limit = number_in(limit_file);
  const auto usage = number_in(usage_file);
  if (!limit || !usage) return kUnknown;
  const uint64_t cache = number_after(stat_file, cache_key).value_or(0);
  const uint64_t held = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, held);
}

}  // namespace

uint64_t available_memory_bytes() {
  uint64_t available = kUnknown;
  if (const auto kib = number_after("/proc/meminfo", "MemAvailable:")) available = *kib * 1024;
  available = std::min(available, cgroup_available("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
                                                   "/sys/fs/cgroup/memory.stat", "file "));
  return std::min(available, cgroup_available("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                              "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                                              "/sys/fs/cgroup/memory/memory.stat", "total_cache "));
}

}  // namespace tierpack

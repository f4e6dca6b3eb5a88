#include "runtime/available_memory.h"

#include <algorithm>
#include <limits>

#include "base/memory_limits.h"

namespace tierpack {

uint64_t available_memory_bytes() {
  constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
  const MemoryLimits limits = read_memory_limits();
  const uint64_t machine = limits.available_bytes > 0 ? limits.available_bytes : kUnknown;
  return std::min(machine, limits.cgroup_room_bytes.value_or(kUnknown));
}

}  // namespace tierpack

// How much memory this process can still take.
#pragma once

#include <cstdint>

namespace tierpack {

// What the system says is available without swapping, or what the process's cgroup still allows (page cache counted as
// free), whichever is less; the largest number when neither is known.
uint64_t available_memory_bytes();

}  // namespace tierpack

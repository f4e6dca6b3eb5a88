// How much memory this process may hold: the machine's, and what the control groups it runs in allow, of both versions.
// A group's limit binds with those of all groups above it, so the walk goes from the process's own group up to the
// topmost that is mounted here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace tierpack {

struct MemoryLimits {
  // The least limit of the process's groups (memory.max and memory.high of version 2, memory.limit_in_bytes of version 1).
  std::optional<uint64_t> cgroup_limit_bytes;
  // What the group with that limit holds, without file cache that the kernel gives back when asked.
  uint64_t cgroup_held_bytes = 0;
  // The least of limit - held over all groups with a limit: what may still be taken.
  std::optional<uint64_t> cgroup_room_bytes;
  uint64_t available_bytes = 0;  // MemAvailable: what the machine gives without swapping; 0 = unknown
  uint64_t own_bytes = 0;        // anonymous memory that this process holds already: part of what is held and not available
  uint64_t total_bytes = 0;
  uint64_t swap_bytes = 0;
  std::optional<uint64_t> memlock_bytes;  // RLIMIT_MEMLOCK; none = unlimited, or the process is privileged (CAP_IPC_LOCK)
};

// From root/proc and the control groups' files as root/proc/self/mountinfo places them; `root` is another than "/" in tests.
// What is missing or unreadable sets no limit.
MemoryLimits read_memory_limits(const std::filesystem::path& root = "/");

}  // namespace tierpack

#include "base/memory_limits.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/mount_table.h"

namespace tierpack {

namespace {

namespace fs = std::filesystem;

// Version 1 writes "no limit" as the largest multiple of the page size.
constexpr uint64_t kNoLimit = uint64_t{1} << 62;
constexpr int kIpcLockCapability = 14;

std::optional<uint64_t> number(std::string_view text, int base = 10) {
  uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (problem != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// The number after `key` and white space in a file of "key number ..." lines.
std::optional<uint64_t> number_after(const fs::path& path, std::string_view key, int base = 10) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t at = line.find_first_not_of(" \t", key.size());
    if (at == std::string::npos || at == key.size()) continue;  // another, longer key
    return number(std::string_view(line).substr(at), base);
  }
  return std::nullopt;
}

// A file that holds one number; "max" and a missing file have none.
std::optional<uint64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::string text;
  file >> text;
  return number(text);
}

std::optional<uint64_t> limit_in(const fs::path& path) {
  const auto limit = number_in(path);
  return limit && *limit < kNoLimit ? limit : std::nullopt;
}

bool listed(std::string_view list, std::string_view name) {
  for (;;) {
    const size_t comma = list.find(',');
    if (list.substr(0, comma) == name) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
}

struct Hierarchy {
  int version = 0;
  std::string top;  // the group that is seen at `point`
  fs::path point;
};

// Those mounted that limit memory.
std::vector<Hierarchy> memory_hierarchies(const fs::path& root) {
  std::vector<Hierarchy> out;
  for (const Mount& mount : read_mounts(root)) {
    const int version = mount.type == "cgroup2" ? 2 : mount.type == "cgroup" && listed(mount.options, "memory") ? 1 : 0;
    if (version != 0) out.push_back({version, mount.top, root / fs::path(mount.point).relative_path()});
  }
  return out;
}

// The process's group in the hierarchy of that version: lines of "id:controllers:path", no controllers in version 2.
std::optional<std::string> own_group(const fs::path& root, int version) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    if (version == 2 ? controllers.empty() : listed(controllers, "memory")) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The group's path below the mount, "" for the mount itself: also where the group lies outside of what is mounted, as in a
// container that sees only its own top.
std::string below(const Hierarchy& mount, std::string group) {
  if (group.find("/..") != std::string::npos) return "";
  if (mount.top != "/") {
    if (group != mount.top && !group.starts_with(mount.top + "/")) return "";
    group.erase(0, mount.top.size());
  }
  return group == "/" ? "" : group;
}

struct Level {
  std::optional<uint64_t> limit;
  uint64_t held = 0;
};

Level read_level(const fs::path& group, int version) {
  Level level;
  const auto take = [&](std::optional<uint64_t> limit) {
    if (limit) level.limit = std::min(*limit, level.limit.value_or(*limit));
  };
  const fs::path stat = group / "memory.stat";
  const char* const prefix = version == 2 ? "" : "total_";
  if (version == 2) {
    take(limit_in(group / "memory.max"));
    take(limit_in(group / "memory.high"));
  } else {
    take(limit_in(group / "memory.limit_in_bytes"));
    // That of groups which are not mounted here, too.
    if (const auto all = number_after(stat, "hierarchical_memory_limit"); all && *all < kNoLimit) take(all);
  }
  if (!level.limit) return level;
  const uint64_t usage = number_in(group / (version == 2 ? "memory.current" : "memory.usage_in_bytes")).value_or(0);
  uint64_t cache = 0;
  for (const char* const key : {"active_file", "inactive_file"}) {
    cache += number_after(stat, std::string(prefix) + key).value_or(0);
  }
  level.held = usage - std::min(usage, cache);
  return level;
}

void take_groups(const Hierarchy& mount, const std::string& group, MemoryLimits& out) {
  for (std::string path = below(mount, group);; path.erase(path.rfind('/'))) {
    const Level level = read_level(mount.point / fs::path(path).relative_path(), mount.version);
    if (level.limit) {
      // Of groups with one limit the upper one counts: it holds what the lower does.
      if (!out.cgroup_limit_bytes || *level.limit <= *out.cgroup_limit_bytes) {
        out.cgroup_limit_bytes = level.limit;
        out.cgroup_held_bytes = level.held;
      }
      const uint64_t room = *level.limit - std::min(*level.limit, level.held);
      out.cgroup_room_bytes = std::min(room, out.cgroup_room_bytes.value_or(room));
    }
    if (path.rfind('/') == std::string::npos) return;
  }
}

// "Max locked memory   soft   hard   bytes"
std::optional<uint64_t> locked_memory_limit(const fs::path& root) {
  const auto capabilities = number_after(root / "proc/self/status", "CapEff:", 16);
  if (capabilities && (*capabilities >> kIpcLockCapability & 1) != 0) return std::nullopt;
  return number_after(root / "proc/self/limits", "Max locked memory");
}

}  // namespace

MemoryLimits read_memory_limits(const fs::path& root) {
  MemoryLimits limits;
  const auto kib = [&](const char* key) { return number_after(root / "proc/meminfo", key).value_or(0) * 1024; };
  limits.total_bytes = kib("MemTotal:");
  limits.available_bytes = kib("MemAvailable:");
  limits.swap_bytes = kib("SwapTotal:");
  limits.own_bytes = number_after(root / "proc/self/status", "RssAnon:").value_or(0) * 1024;
  limits.memlock_bytes = locked_memory_limit(root);
  for (const Hierarchy& mount : memory_hierarchies(root)) {
    if (const auto group = own_group(root, mount.version)) take_groups(mount, *group, limits);
  }
  return limits;
}

}  // namespace tierpack

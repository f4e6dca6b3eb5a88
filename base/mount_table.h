// What is mounted where, as this process sees it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tierpack {

struct Mount {
  std::string top;      // the folder of the filesystem that is seen at `point`
  std::string point;
  std::string type;     // "ext4", "cgroup2"
  std::string source;   // "/dev/nvme0n1p2"
  std::string options;  // of the filesystem: "rw,cpu,memory"
};

// root/proc/self/mountinfo, in its order: of mounts on one point the later hides the earlier. Empty when unreadable. `root` is
// another than "/" in tests.
std::vector<Mount> read_mounts(const std::filesystem::path& root = "/");

}  // namespace tierpack

// Which device holds a path, and what the system says about it: mounts from root/proc, devices from root/sys (another root
// than "/" in tests). A partition stands for its disk, a mapped device (LUKS, LVM, RAID) for the disks below it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/mount_table.h"

namespace tierpack::hardware {

// The mount that a resolved absolute path lies on.
std::optional<Mount> mount_of(const std::filesystem::path& root, const std::filesystem::path& path);

struct BlockDevice {
  std::vector<std::string> disks;  // names of the disks; empty when there is none to be seen (network, overlay, tmpfs)
  std::string model, link, link_max;  // of the first disk; empty when unknown
  bool rotational = false;            // any of them
  std::optional<double> temperature_c;
};

// By device number; where that is not a block device's (btrfs, overlay), by the source of the mount.
BlockDevice describe_block_device(const std::filesystem::path& root, uint64_t device, const std::string& mount_source);

}  // namespace tierpack::hardware

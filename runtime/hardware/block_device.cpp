#include "runtime/hardware/block_device.h"

#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include <fmt/core.h>

#include "runtime/hardware/sysfs_files.h"

namespace tierpack::hardware {

namespace {

namespace fs = std::filesystem;

constexpr int kMappingsMax = 8;  // of one device over another

std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> out;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(directory, problem)) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

// The disks below a block device, as folders of /sys/devices.
void collect_disks(const fs::path& device, int depth, std::vector<fs::path>& out) {
  if (device.empty() || depth > kMappingsMax) return;
  if (fs::exists(device / "partition")) return collect_disks(device.parent_path(), depth + 1, out);
  const std::vector<fs::path> slaves = entries_of(device / "slaves");
  if (slaves.empty()) {
    if (std::find(out.begin(), out.end(), device) == out.end()) out.push_back(device);
    return;
  }
  for (const fs::path& slave : slaves) collect_disks(resolved(slave), depth + 1, out);
}

// The folder of the NVMe controller of "nvme0n1"; empty for other disks. A disk of several paths ("multipath") is a virtual
// device that lies below no controller.
fs::path nvme_controller(const fs::path& root, const std::string& disk) {
  if (!disk.starts_with("nvme")) return {};
  size_t end = 4;
  while (end < disk.size() && std::isdigit(static_cast<unsigned char>(disk[end]))) ++end;
  return resolved(root / "sys/class/nvme" / disk.substr(0, end));
}

std::string usb_link(fs::path device) {
  for (; device.has_relative_path(); device = device.parent_path()) {
    const auto megabits = number_in(device / "speed");
    if (megabits && fs::exists(device / "busnum")) {
      return *megabits >= 1000 ? fmt::format("USB {} Gb/s", *megabits / 1000) : fmt::format("USB {} Mb/s", *megabits);
    }
  }
  return "USB";
}

void describe_link(const fs::path& disk, const fs::path& controller, BlockDevice& out) {
  if (!controller.empty()) {
    const PcieLink link = pcie_link(controller);
    out.link = link.now;
    out.link_max = link.most;
    if (out.link.empty()) out.link = "NVMe";
    return;
  }
  const std::string path = disk.string();
  if (path.find("/usb") != std::string::npos) {
    out.link = usb_link(disk);
    return;
  }
  // What a folder on the way to the disk begins with.
  constexpr std::array<std::pair<const char*, const char*>, 6> kBuses = {
      {{"/virtio", "virtio"}, {"/ata", "SATA"}, {"/mmc", "MMC"}, {"/vbd-", "Xen"}, {"/VMBUS", "Hyper-V"}, {"/host", "SCSI"}}};
  for (const auto& [folder, name] : kBuses) {
    if (path.find(folder) == std::string::npos) continue;
    out.link = name;
    return;
  }
}

// Virtual disks call themselves rotational whatever is below them.
bool is_virtual(const fs::path& disk) {
  const std::string path = disk.string();
  for (const char* const bus : {"/virtio", "/vbd-", "/VMBUS"}) {
    if (path.find(bus) != std::string::npos) return true;
  }
  return false;
}

std::optional<double> temperature(const fs::path& folder) {
  if (folder.empty()) return std::nullopt;
  std::vector<fs::path> sensors = entries_of(folder / "hwmon");
  for (const fs::path& entry : entries_of(folder)) {
    if (entry.filename().string().starts_with("hwmon")) sensors.push_back(entry);
  }
  for (const fs::path& sensor : sensors) {
    if (const auto millidegrees = number_in(sensor / "temp1_input")) return static_cast<double>(*millidegrees) / 1000;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Mount> mount_of(const fs::path& root, const fs::path& path) {
  std::optional<Mount> best;
  const std::string wanted = path.string() + "/";
  for (Mount& mount : read_mounts(root)) {
    if (!wanted.starts_with(mount.point == "/" ? mount.point : mount.point + "/")) continue;
    if (!best || mount.point.size() >= best->point.size()) best = std::move(mount);
  }
  return best;
}

BlockDevice describe_block_device(const fs::path& root, uint64_t device, const std::string& mount_source) {
  BlockDevice out;
  fs::path folder = resolved(root / "sys/dev/block" / fmt::format("{}:{}", major(device), minor(device)));
  if (folder.empty() && mount_source.starts_with("/dev/")) {
    // /dev/mapper/name and /dev/disk/by-... are links to the kernel's name.
    const fs::path node = resolved(root / fs::path(mount_source).relative_path());
    folder = resolved(root / "sys/class/block" / (node.empty() ? fs::path(mount_source) : node).filename());
  }
  std::vector<fs::path> disks;
  collect_disks(folder, 0, disks);
  for (const fs::path& disk : disks) {
    out.disks.push_back(disk.filename().string());
    out.rotational = out.rotational || (number_in(disk / "queue/rotational") == 1 && !is_virtual(disk));
  }
  if (disks.empty()) return out;
  const fs::path& first = disks.front();
  const fs::path controller = nvme_controller(root, out.disks.front());
  out.model = first_line(first / "device/model");
  if (out.model.empty() && !controller.empty()) out.model = first_line(controller / "model");
  describe_link(first, controller, out);
  out.temperature_c = temperature(controller);
  if (!out.temperature_c) out.temperature_c = temperature(resolved(first / "device"));
  return out;
}

}  // namespace tierpack::hardware

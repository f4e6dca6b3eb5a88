// What a report means for someone who wants to run a model: a rule for each finding.
#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/core.h>

#include "base/bytes.h"
#include "runtime/hardware/disk_reads.h"
#include "runtime/hardware/machine_report.h"

namespace tierpack::hardware {

namespace {

using Level = Finding::Level;

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr double kSlowBytesS = 5e8;
constexpr double kHotC = 70;

class Findings {
 public:
  template <typename... Args>
  void warn(const char* code, fmt::format_string<Args...> format, Args&&... args) {
    list_.push_back({Level::kWarning, code, fmt::format(format, std::forward<Args>(args)...)});
  }
  template <typename... Args>
  void note(const char* code, fmt::format_string<Args...> format, Args&&... args) {
    list_.push_back({Level::kNote, code, fmt::format(format, std::forward<Args>(args)...)});
  }
  std::vector<Finding> take() {
    std::stable_partition(list_.begin(), list_.end(), [](const Finding& f) { return f.level == Level::kWarning; });
    return std::move(list_);
  }

 private:
  std::vector<Finding> list_;
};

void judge_cpu(const MachineReport& r, Findings& out) {
  const CpuInfo& cpu = r.hardware.cpu;
  if (!cpu.isa.empty() && cpu.isa.front() == "reference") {
    out.warn("no_avx2", "this CPU runs only the plain kernels (no AVX2 with FMA and F16C): expect a few percent of the usual speed");
  }
  if (r.nodes_usable < cpu.numa_nodes) {
    out.warn("numa", "this process may use the processors of {} of {} memory nodes: memory of the others is far away. Start it without taskset or "
             "numactl, or give it a cpuset that covers all nodes", r.nodes_usable, cpu.numa_nodes);
  }
  if (r.load > 0.5 * cpu.cores && cpu.cores > 0) {
    out.note("busy", "other programs keep the machine busy (load {:.1f} on {} cores): figures measured now are lower than they could be", r.load,
             cpu.cores);
  }
}

void judge_memory(const MachineReport& r, Findings& out) {
  const MemoryInfo& memory = r.hardware.memory;
  const LimitInfo& limits = r.hardware.limits;
  if (limits.cgroup_bytes && *limits.cgroup_bytes < memory.total_bytes / 2) {
    out.warn("cgroup_limit", "the control group of this process allows {} of {} of memory, and budgets follow it. Raise MemoryMax= of the unit, "
             "--memory of the container or --mem of the job if the model should use more", format_size(*limits.cgroup_bytes),
             format_size(memory.total_bytes));
  }
  if (r.cgroup_room_bytes.value_or(kGiB) < kGiB) {
    out.warn("little_memory", "the control group of this process has room for {} more: a larger limit, or fewer programs in the group, is needed "
             "before a model runs", format_size(*r.cgroup_room_bytes));
  } else if (r.available_bytes > 0 && r.available_bytes < std::max(kGiB, memory.total_bytes / 10)) {
    out.warn("little_memory", "only {} of memory are available now: end other programs before a model runs", format_size(r.available_bytes));
  }
  if (memory.swap_bytes > 0) {
    out.warn("swap", "swap of {} is on: if memory gets short, weights may be written out and read back at every token. `swapoff -a`, or "
             "MemorySwapMax=0 for the unit, keeps them in RAM", format_size(memory.swap_bytes));
  }
  const bool refused = r.registered_buffers == false || (!r.registered_buffers && limits.memlock_bytes.value_or(kGiB) < kInFlightBytes);
  if (refused) {
    out.warn("memlock", "locked memory is limited to {}: buffers for disk reads cannot be registered, which costs CPU time at every read. "
             "`ulimit -l 65536`, LimitMEMLOCK=64M for a unit or --ulimit memlock=67108864 for a container raise it",
             limits.memlock_bytes ? format_size(*limits.memlock_bytes) : "less than is needed");
  }
}

void judge_disk_kind(const MachineReport& r, const DiskInfo& disk, Findings& out) {
  constexpr std::array<std::string_view, 8> kRemote = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "lustre"};
  if (std::find(kRemote.begin(), kRemote.end(), disk.filesystem) != kRemote.end()) {
    out.warn("remote_filesystem", "{} is on a network filesystem ({}): every expert that is not in memory comes over the network. Keep packs on a "
             "local disk", r.disk_directory, disk.filesystem);
  }
  if (disk.filesystem == "tmpfs" || disk.filesystem == "ramfs") {
    out.warn("memory_filesystem", "{} is in memory ({}): a pack there takes the RAM that the model needs. Keep packs on a disk", r.disk_directory,
             disk.filesystem);
  }
  if (disk.rotational) {
    out.warn("rotational", "{} turns: reading one expert takes milliseconds of seeking. Keep packs on an SSD", disk.device);
  }
  if (disk.link.starts_with("USB")) {
    out.warn("usb", "{} is attached by {}: slower than the SSD in it, and it disappears when the plug moves", disk.device, disk.link);
  }
  if (!disk.link_max.empty() && disk.link != disk.link_max && disk.link.starts_with("PCIe")) {
    out.warn("disk_link", "{} runs at {} and could do {}: use another slot, or look for a setting of the firmware", disk.device, disk.link, disk.link_max);
  }
  if (disk.temperature_c && *disk.temperature_c >= kHotC) {
    out.warn("disk_hot", "{} has {:.0f} degrees Celsius: SSDs slow down when hot. A heat sink or air helps", disk.device, *disk.temperature_c);
  }
}

void judge_disk(const MachineReport& r, const DiskInfo& disk, Findings& out) {
  judge_disk_kind(r, disk, out);
  if (disk.free_bytes < 10 * kGiB) {
    out.warn("disk_full", "only {} are free on the filesystem of {}: repack and fetch need room for what they write", format_size(disk.free_bytes),
             r.disk_directory);
  }
  if (r.disk_measured_on.empty()) {
    out.warn("disk_unread", "the disk of {} could not be examined: {}. Name a directory that can be written to with --dir", r.disk_directory,
             r.disk_not_measured);
    return;
  }
  if (r.measured && !r.disk_not_measured.empty()) {
    out.warn("disk_unmeasured", "the disk of {} could not be measured: {}", r.disk_directory, r.disk_not_measured);
  }
  if (!disk.direct_io) {
    out.warn("no_direct_io", "the filesystem of {} ({}) takes no O_DIRECT: what is read also fills the page cache. ext4, xfs and btrfs take it",
             r.disk_directory, disk.filesystem);
  }
  if (!disk.io_uring) {
    out.warn("no_io_uring", "io_uring cannot be used here: threads read instead, at the cost of CPU time. The sysctl kernel.io_uring_disabled or the "
             "container's seccomp profile forbids it");
  }
  if (disk.record_bytes_s > 0 && disk.record_bytes_s < kSlowBytesS) {
    out.warn("disk_slow", "{} gives {}/s in random records of {}: about {:.0f} experts a second. A faster disk, or more memory for experts, makes "
             "the difference", disk.device.empty() ? r.disk_directory : disk.device, format_size(static_cast<uint64_t>(disk.record_bytes_s)),
             format_size(disk.record_bytes), disk.record_bytes_s / static_cast<double>(std::max<uint64_t>(1, disk.record_bytes)));
  }
}

void judge_gpus(const MachineReport& r, Findings& out) {
  for (const GpuInfo& gpu : r.hardware.gpus) {
    if (!gpu.link.empty() && !gpu.link_max.empty() && gpu.link != gpu.link_max) {
      out.warn("gpu_link", "{} runs at {} and could do {}: experts are copied over this link. Use the slot with the most lanes", gpu.name, gpu.link,
               gpu.link_max);
    }
  }
  if (!r.hardware.gpus.empty()) return;
  for (const PciDisplay& display : r.displays) {
    if (display.vendor != "NVIDIA") continue;
    out.warn("gpu_unusable", "there is an NVIDIA GPU at {} that cannot be used: {}", display.address, r.gpu_unavailable);
  }
}

}  // namespace

std::vector<Finding> judge(const MachineReport& report) {
  Findings out;
  judge_cpu(report, out);
  judge_memory(report, out);
  for (const DiskInfo& disk : report.hardware.disks) judge_disk(report, disk, out);
  judge_gpus(report, out);
  const uint64_t memory = report.hardware.limits.cgroup_bytes.value_or(report.hardware.memory.total_bytes);
  if (report.pack_bytes > memory && memory > 0) {
    out.note("pack_exceeds_memory", "the pack's {} exceed the {} of memory: experts will be read from the disk while the model runs",
             format_size(report.pack_bytes), format_size(memory));
  }
  return out.take();
}

}  // namespace tierpack::hardware

// All that `doctor` and `calibrate --hardware` find out about a machine, and what a user could do about it. The one header of
// this folder for commands.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "formats/hardware.h"
#include "runtime/hardware/gpu_probe.h"

namespace tierpack::hardware {

struct MachineQuestion {
  std::filesystem::path pack;       // its experts, record sizes and types are measured; empty: usual ones
  std::filesystem::path directory;  // whose disk; empty: the pack's, or the current one
  bool measure = true;              // false: descriptions only
  std::string tool_version;
  std::function<void(const char* what)> on_step;  // what is about to be measured
};

struct MachineReport {
  HardwareProfile hardware;
  bool measured = false;
  uint64_t available_bytes = 0;                // 0 = unknown
  std::optional<uint64_t> cgroup_room_bytes;
  uint32_t nodes_usable = 1;                   // memory nodes whose processors this process may use
  double load = 0;                             // of the last minute, before anything was measured
  std::string disk_directory;                  // what the first disk was asked about
  std::string disk_measured_on, disk_not_measured;
  std::optional<bool> registered_buffers;      // none: not tried
  std::vector<PciDisplay> displays;
  std::string gpu_unavailable;
  uint64_t pack_bytes = 0;                     // dense tensors and experts; 0 without a pack
};

// Takes about ten seconds when it measures. Throws kUsage, kInterrupted, and what Pack::open throws.
MachineReport examine_machine(const MachineQuestion& question);

// The processor alone, without measuring.
CpuInfo examine_cpu();

struct Finding {
  enum class Level { kNote, kWarning };
  Level level;
  std::string code;  // stable, for programs
  std::string text;  // what is so, what it means, what to do
};
// Pure. Warnings first.
std::vector<Finding> judge(const MachineReport& report);

}  // namespace tierpack::hardware

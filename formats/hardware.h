// What a machine can do, measured once and written to a file: `calibrate --hardware` writes it, plan and serve read it.
//
// A JSON file {"format": "tierpack-hardware", "version": 1, ...} with the fields below under their names; those that are
// optional here are null there. Rates are per second and 0 where they were not measured.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tierpack {

struct CpuInfo {
  std::string model;
  uint32_t cores = 0;    // physical, usable by this process
  uint32_t threads = 0;  // logical, usable by this process
  std::vector<std::string> isa;  // kernel tables that run here, best first
  uint64_t l1d_bytes = 0, l2_bytes = 0, l3_bytes = 0;
  uint32_t numa_nodes = 1;
};

struct MemoryInfo {
  uint64_t total_bytes = 0;
  uint64_t swap_bytes = 0;
  double read_bytes_s = 0;  // all usable cores together
};

// Of the filesystem that holds `path`, measured with reads like those of the expert store.
struct DiskInfo {
  std::string path;
  std::string device;      // "nvme0n1"; empty when unknown
  std::string model;
  std::string link;        // now: "PCIe 4.0 x4", "SATA", "USB", "virtio"; empty when unknown
  std::string link_max;    // of the device and its slot, for PCIe; empty when unknown
  bool rotational = false;
  std::string filesystem;  // "ext4"
  uint64_t free_bytes = 0;
  bool direct_io = false;
  bool io_uring = false;
  double sequential_bytes_s = 0;
  uint64_t record_bytes = 0;      // the size of record that the next two are about
  double record_bytes_s = 0;      // random records, many at a time
  double record_latency_us = 0;   // random records, one at a time: median
  double page_reads_s = 0;        // random 4 KiB pages, many at a time
  double page_latency_us = 0;     // random 4 KiB pages, one at a time: median
  std::optional<double> temperature_c;
};

struct GpuInfo {
  std::string name;
  uint64_t memory_bytes = 0;
  std::string link;      // now
  std::string link_max;
  double pinned_bytes_s = 0;    // host to device
  double pageable_bytes_s = 0;
  double memory_bytes_s = 0;       // its own memory, bytes read and bytes written together; 0 in files that do not tell
};

// Rates at which this machine's kernels consume weights of one type, all usable cores together, weights in RAM.
struct KernelRate {
  std::string dtype;
  double decode_bytes_s = 0;       // one token
  double prefill_madds_s = 0;      // multiply-adds a second with many tokens
};

struct LimitInfo {
  std::optional<uint64_t> cgroup_bytes;   // memory limit of this process's control group
  std::optional<uint64_t> memlock_bytes;  // RLIMIT_MEMLOCK; none = unlimited
};

struct HardwareProfile {
  std::string tool_version;
  std::string measured_at;  // UTC, ISO 8601
  CpuInfo cpu;
  MemoryInfo memory;
  std::vector<DiskInfo> disks;
  std::vector<GpuInfo> gpus;
  std::vector<KernelRate> kernels;
  LimitInfo limits;

  // The longest measured path that holds `path` on the same filesystem (where both exist to be asked); null for none.
  const DiskInfo* disk_of(const std::filesystem::path& path) const;
  const KernelRate* kernel(std::string_view dtype) const;
};

std::string encode_hardware(const HardwareProfile& hardware);
// Throws kCorrupt for anything else than such a file, kUnsupported for another version of it.
HardwareProfile parse_hardware(std::string_view text, const std::string& source);
HardwareProfile read_hardware(const std::filesystem::path& path);
void write_hardware(const std::filesystem::path& path, const HardwareProfile& hardware);  // atomic; makes the directory
// hardware.json in this user's state directory; empty when there is none.
std::filesystem::path default_hardware_path();

}  // namespace tierpack

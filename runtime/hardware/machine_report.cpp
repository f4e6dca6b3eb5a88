#include "runtime/hardware/machine_report.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "base/error.h"
#include "base/memory_limits.h"
#include "base/threads.h"
#include "formats/pack.h"
#include "runtime/hardware/cpu_probe.h"
#include "runtime/hardware/disk_probe.h"
#include "runtime/hardware/kernel_rates.h"
#include "runtime/kernels/kernels.h"
#include "runtime/machine_probe.h"

namespace tierpack::hardware {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kExpertsToMeasureMin = uint64_t{256} << 20;  // a smaller file fits into the caches of disks
constexpr uint64_t kRecordBytesDefault = uint64_t{2} << 20;
constexpr uint64_t kProbeBytesMin = uint64_t{64} << 20;
constexpr uint64_t kProbeBytesMax = uint64_t{1} << 30;
constexpr double kReadSeconds = 0.3;
constexpr int kReadWindows = 3;
constexpr uint32_t kColumnsOfAnyType = 256;

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

// Of the median layer.
uint64_t record_bytes(const PackManifest& manifest) {
  std::vector<uint64_t> sizes;
  for (const ExpertLayer& layer : manifest.expert_layers) sizes.push_back(layer.record_bytes);
  if (sizes.empty()) return kRecordBytesDefault;
  std::nth_element(sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(sizes.size() / 2), sizes.end());
  return sizes[sizes.size() / 2];
}

DiskQuestion disk_question(const MachineQuestion& question, const Pack* pack) {
  DiskQuestion out;
  out.directory = !question.directory.empty() ? question.directory : pack != nullptr ? pack->directory() : fs::path(".");
  out.measure = question.measure;
  if (pack == nullptr) return out;
  out.record_bytes = record_bytes(pack->manifest());
  const fs::path experts = pack->directory() / segment_file_name(Segment::kExperts);
  std::error_code absent;
  const uint64_t bytes = fs::file_size(experts, absent);
  if (question.directory.empty() && !absent && bytes >= kExpertsToMeasureMin) out.file = experts;
  return out;
}

KernelQuestion kernel_question(const Pack* pack, const CpuInfo& cpu, uint64_t memory_bytes) {
  KernelQuestion out;
  out.dtypes = {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0, DType::kNVFP4};
  out.memory_bytes = std::clamp(4 * cpu.l3_bytes, std::min(memory_bytes, kProbeBytesMax / 2), memory_bytes);
  if (pack == nullptr) return out;
  out.dtypes = weight_types(pack->manifest());
  if (pack->manifest().expert_layers.empty()) return out;
  const ExpertPart& gate = pack->manifest().expert_layers.front().gate;
  out.rows = static_cast<uint32_t>(std::clamp<uint64_t>(gate.out, 16, 4096) / 16 * 16);
  if (gate.in % kColumnsOfAnyType == 0 && gate.in <= 16384) out.cols = static_cast<uint32_t>(gate.in);
  return out;
}

uint64_t usable_memory(const MachineReport& report) {
  const uint64_t room = report.cgroup_room_bytes.value_or(report.available_bytes);
  return report.available_bytes > 0 ? std::min(room, report.available_bytes) : room;
}

void describe_memory(MachineReport& out) {
  const MemoryLimits limits = read_memory_limits();
  out.hardware.memory.total_bytes = limits.total_bytes;
  out.hardware.memory.swap_bytes = limits.swap_bytes;
  out.hardware.limits = {limits.cgroup_limit_bytes, limits.memlock_bytes};
  out.available_bytes = limits.available_bytes;
  out.cgroup_room_bytes = limits.cgroup_room_bytes;
}

double memory_rate(ThreadTeam& team, uint64_t bytes) {
  ReadProbe probe(team, bytes);
  std::vector<double> rates;
  for (int window = 0; window < kReadWindows; ++window) rates.push_back(probe.measure(kReadSeconds));
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

CpuPlace cpu_place() {
  CpuPlace cpu = describe_cpu("/", allowed_cpus(), static_cast<uint32_t>(usable_cores()));
  for (const kernels::KernelTable* table : kernels::available()) cpu.info.isa.insert(cpu.info.isa.begin(), table->name);
  return cpu;
}

}  // namespace

CpuInfo examine_cpu() { return cpu_place().info; }

MachineReport examine_machine(const MachineQuestion& question) {
  const auto step = [&](const char* what) {
    if (question.on_step) question.on_step(what);
  };
  std::optional<Pack> pack;
  if (!question.pack.empty()) pack = Pack::open(question.pack);
  const Pack* const given = pack ? &*pack : nullptr;

  MachineReport out;
  HardwareProfile& hardware = out.hardware;
  out.measured = question.measure;
  out.load = machine_info().load;
  hardware.tool_version = question.tool_version;
  hardware.measured_at = utc_now();
  CpuPlace cpu = cpu_place();
  hardware.cpu = std::move(cpu.info);
  out.nodes_usable = cpu.nodes_usable;
  describe_memory(out);
  if (pack) {
    for (const Record& record : pack->manifest().records) {
      if (record.segment != Segment::kRows) out.pack_bytes += record.bytes;
    }
  }

  const DiskQuestion disk = disk_question(question, given);
  if (std::error_code absent; !fs::is_directory(disk.directory, absent)) {
    fail(ErrorKind::kUsage, "{}: there is no such directory to examine the disk of", disk.directory.string());
  }
  step("the disk");
  DiskAnswer answer = probe_disk(disk);
  hardware.disks.push_back(std::move(answer.info));
  out.disk_directory = disk.directory.string();
  out.disk_measured_on = std::move(answer.measured_on);
  out.disk_not_measured = std::move(answer.not_measured);
  out.registered_buffers = answer.registered_buffers;

  step("GPUs");
  out.displays = display_controllers("/");
  try {
    GpuAnswer gpus = probe_gpus(out.displays, question.measure);
    hardware.gpus = std::move(gpus.gpus);
    out.gpu_unavailable = std::move(gpus.unavailable);
  } catch (const Error& e) {
    out.gpu_unavailable = e.what();  // a broken GPU is a finding
  }
  if (!question.measure) return out;

  ThreadTeam team(usable_cores());
  const uint64_t memory = std::clamp(usable_memory(out) / 4, kProbeBytesMin, kProbeBytesMax);
  step("memory");
  hardware.memory.read_bytes_s = memory_rate(team, memory);
  step("kernels");
  hardware.kernels = measure_kernels(kernels::best(), team, kernel_question(given, hardware.cpu, memory));
  return out;
}

}  // namespace tierpack::hardware

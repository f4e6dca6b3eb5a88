#include "calibrate/machine_text.h"

#include <fmt/core.h>

#include "base/bytes.h"
#include "base/json.h"
#include "base/printable.h"

namespace tierpack::calibrate {

namespace {

using hardware::Finding;
using hardware::MachineReport;

std::string size_text(double bytes) { return format_size(static_cast<uint64_t>(bytes)); }

std::string plural(uint64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

// "a, b, c"; without what is empty.
std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) {
    if (!part.empty()) out += out.empty() ? part : ", " + part;
  }
  return out;
}

std::string line(const char* name, const std::string& text) { return fmt::format("{:<9}{}\n", name, text); }

std::string cpu_text(const MachineReport& r) {
  const CpuInfo& cpu = r.hardware.cpu;
  std::string out = line("CPU", joined({printable(cpu.model.empty() ? "unknown model" : cpu.model),
                                        fmt::format("{} and {} usable", plural(cpu.cores, "core", "cores"),
                                                    plural(cpu.threads, "thread", "threads"))}));
  out += line("", "kernels " + joined(cpu.isa));
  const auto cache = [](const char* name, uint64_t bytes) {
    return bytes > 0 ? fmt::format("{} {}", name, format_size(bytes)) : std::string();
  };
  const std::string caches = joined({cache("L1d", cpu.l1d_bytes), cache("L2", cpu.l2_bytes), cache("L3", cpu.l3_bytes)});
  out += line("", joined({caches.empty() ? "" : "caches " + caches, plural(cpu.numa_nodes, "memory node", "memory nodes")}));
  return out;
}

std::string memory_text(const MachineReport& r) {
  const MemoryInfo& memory = r.hardware.memory;
  const LimitInfo& limits = r.hardware.limits;
  std::string out = line(
      "memory", joined({format_size(memory.total_bytes), format_size(r.available_bytes) + " available",
                        memory.swap_bytes > 0 ? format_size(memory.swap_bytes) + " of swap" : "no swap",
                        memory.read_bytes_s > 0 ? fmt::format("read at {}/s by all cores", size_text(memory.read_bytes_s)) : ""}));
  out += line("limits", joined({limits.cgroup_bytes ? fmt::format("control group {}, {} left", format_size(*limits.cgroup_bytes),
                                                                  format_size(r.cgroup_room_bytes.value_or(0)))
                                                    : "no control group",
                                limits.memlock_bytes ? format_size(*limits.memlock_bytes) + " may be locked" : "any memory may be locked"}));
  return out;
}

std::string disk_text(const MachineReport& r, const DiskInfo& disk) {
  std::string where = disk.device.empty() ? "device unknown" : printable(disk.device);
  where = joined({where, printable(disk.model), disk.link, disk.rotational ? "rotational" : "",
                  disk.temperature_c ? fmt::format("{:.0f} C", *disk.temperature_c) : ""});
  std::string out = line("disk", where);
  out += line("", joined({fmt::format("{} at {}", disk.filesystem.empty() ? "unknown filesystem" : disk.filesystem, printable(disk.path)),
                          format_size(disk.free_bytes) + " free", disk.direct_io ? "O_DIRECT" : "no O_DIRECT",
                          disk.io_uring ? "io_uring" : "no io_uring"}));
  if (disk.sequential_bytes_s <= 0) return out;
  out += line("", fmt::format("{}/s in sequence", size_text(disk.sequential_bytes_s)));
  out += line("", fmt::format("{}/s in random records of {}, {:.2f} ms for one alone", size_text(disk.record_bytes_s),
                              format_size(disk.record_bytes), disk.record_latency_us / 1000));
  out += line("", fmt::format("{} random pages of 4 KiB a second, {:.0f} us for one alone",
                              format_count(static_cast<uint64_t>(disk.page_reads_s)), disk.page_latency_us));
  return out + line("", "measured on " + printable(r.disk_measured_on));
}

std::string gpu_text(const MachineReport& r) {
  std::string out;
  for (const GpuInfo& gpu : r.hardware.gpus) {
    out += line("GPU", joined({printable(gpu.name), format_size(gpu.memory_bytes), gpu.link,
                               gpu.link_max.empty() || gpu.link_max == gpu.link ? "" : "could be " + gpu.link_max,
                               gpu.pinned_bytes_s > 0 ? fmt::format("copies {}/s pinned, {}/s pageable", size_text(gpu.pinned_bytes_s),
                                                                    size_text(gpu.pageable_bytes_s))
                                                      : "",
                               gpu.memory_bytes_s > 0 ? fmt::format("its memory {}/s", size_text(gpu.memory_bytes_s)) : ""}));
  }
  return out.empty() ? line("GPU", "none: " + r.gpu_unavailable) : out;
}

std::string kernel_text(const MachineReport& r) {
  std::string out;
  for (const KernelRate& kernel : r.hardware.kernels) {
    out += line(out.empty() ? "kernels" : "",
                fmt::format("{:<7} decode {:>10}/s of weights, prefill {:>6.0f} G multiply-adds/s", kernel.dtype,
                            size_text(kernel.decode_bytes_s), kernel.prefill_madds_s / 1e9));
  }
  return out;
}

const char* level_name(Finding::Level level) { return level == Finding::Level::kWarning ? "warning" : "note"; }

}  // namespace

std::string machine_text(const MachineReport& report) {
  std::string out = cpu_text(report) + memory_text(report);
  for (const DiskInfo& disk : report.hardware.disks) out += disk_text(report, disk);
  out += gpu_text(report) + kernel_text(report);
  const std::vector<Finding> findings = judge(report);
  out += "\n";
  if (findings.empty()) return out + "No problems found.\n";
  for (const Finding& finding : findings) out += fmt::format("{}: {}\n", level_name(finding.level), printable_lines(finding.text));
  return out;
}

std::string machine_json(const MachineReport& report) {
  Json out = parse_json(encode_hardware(report.hardware), "hardware");
  out.erase("format");
  out.erase("version");
  Json displays = Json::array();
  for (const hardware::PciDisplay& d : report.displays) {
    displays.push_back({{"address", d.address}, {"vendor", d.vendor}, {"link", d.link}, {"link_max", d.link_max}});
  }
  out["now"] = {{"measured", report.measured},
                {"load", report.load},
                {"available_bytes", report.available_bytes},
                {"cgroup_room_bytes", report.cgroup_room_bytes ? Json(*report.cgroup_room_bytes) : Json(nullptr)},
                {"nodes_usable", report.nodes_usable},
                {"registered_buffers", report.registered_buffers ? Json(*report.registered_buffers) : Json(nullptr)},
                {"disk_directory", report.disk_directory},
                {"disk_measured_on", report.disk_measured_on},
                {"disk_not_measured", report.disk_not_measured},
                {"gpu_unavailable", report.gpu_unavailable},
                {"displays", std::move(displays)}};
  out["findings"] = Json::array();
  for (const Finding& finding : judge(report)) {
    out["findings"].push_back({{"level", level_name(finding.level)}, {"code", finding.code}, {"text", finding.text}});
  }
  return out.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tierpack::calibrate

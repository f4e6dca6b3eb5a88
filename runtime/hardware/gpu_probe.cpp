#include "runtime/hardware/gpu_probe.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "runtime/device/device.h"
#include "runtime/hardware/sysfs_files.h"

namespace tierpack::hardware {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kCopyBytes = uint64_t{256} << 20;
constexpr int kWindows = 3;
constexpr int kDeviceCopies = 8;  // of a window inside the device

std::string vendor_name(const std::string& id) {
  if (id == "0x10de") return "NVIDIA";
  if (id == "0x1002") return "AMD";
  if (id == "0x8086") return "Intel";
  return id;
}

// Bytes a second, median of the windows.
double copy_rate(device::Stream& stream, device::DeviceBuffer& to, Bytes from) {
  std::vector<double> rates;
  for (int window = -1; window < kWindows; ++window) {  // the first wakes the link up
    const auto start = std::chrono::steady_clock::now();
    stream.copy_to_device(to, 0, from);
    stream.synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (window >= 0) rates.push_back(static_cast<double>(from.size()) / seconds);
  }
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

// Bytes a second that the device's own memory reads and writes, median of the windows; the time is the device's.
double memory_rate(device::Stream& stream, device::DeviceBuffer& to, const device::DeviceBuffer& from) {
  std::vector<double> rates;
  for (int window = -1; window < kWindows; ++window) {
    device::Event start, end;
    stream.record(start);
    for (int copy = 0; copy < kDeviceCopies; ++copy) stream.copy_on_device(to.address(), from.address(), from.size());
    stream.record(end);
    stream.synchronize();
    const double bytes = 2.0 * kDeviceCopies * static_cast<double>(from.size());
    if (window >= 0) rates.push_back(bytes / std::max(end.seconds_since(start), 1e-9));
  }
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

}  // namespace

std::vector<PciDisplay> display_controllers(const fs::path& root) {
  std::vector<PciDisplay> out;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(root / "sys/bus/pci/devices", problem)) {
    const std::string kind = first_line(entry.path() / "class");
    if (!kind.starts_with("0x0300") && !kind.starts_with("0x0302")) continue;
    const PcieLink link = pcie_link(resolved(entry.path()));
    out.push_back({entry.path().filename().string(), vendor_name(first_line(entry.path() / "vendor")), link.now, link.most});
  }
  std::sort(out.begin(), out.end(), [](const PciDisplay& a, const PciDisplay& b) { return a.address < b.address; });
  return out;
}

GpuAnswer probe_gpus(const std::vector<PciDisplay>& displays, bool measure) {
  GpuAnswer answer;
  const auto link_of = [&](const std::string& address) -> const PciDisplay* {
    const auto found = std::find_if(displays.begin(), displays.end(), [&](const PciDisplay& d) { return d.address == address; });
    return found == displays.end() ? nullptr : &*found;
  };
  for (const device::DeviceInfo& device : device::enumerate()) {
    GpuInfo gpu;
    gpu.name = device.name;
    gpu.memory_bytes = device.memory_bytes;
    if (measure && answer.gpus.empty()) {  // the first
      device::use_device(device.index);
      const uint64_t bytes = std::min(kCopyBytes, device.free_bytes / 4 / 4096 * 4096);
      device::Stream stream;
      device::DeviceBuffer memory(bytes);
      device::lock_pages(true);
      const device::PinnedBuffer pinned(bytes);
      device::lock_pages(false);
      gpu.pinned_bytes_s = copy_rate(stream, memory, pinned.bytes());
      device::DeviceBuffer beside(bytes);
      gpu.memory_bytes_s = memory_rate(stream, beside, memory);
      const std::vector<std::byte> pageable(bytes, std::byte{1});
      gpu.pageable_bytes_s = copy_rate(stream, memory, pageable);
    }
    // After the copies: an idle link runs slower to save power.
    if (const PciDisplay* const display = link_of(device.pci_address)) {
      gpu.link = display->link;
      gpu.link_max = display->link_max;
      const std::vector<PciDisplay> again = measure ? display_controllers("/") : std::vector<PciDisplay>{};
      for (const PciDisplay& busy : again) {
        if (busy.address == device.pci_address && !busy.link.empty()) gpu.link = busy.link;
      }
    }
    answer.gpus.push_back(std::move(gpu));
  }
  if (answer.gpus.empty()) answer.unavailable = device::unavailable_reason();
  return answer;
}

}  // namespace tierpack::hardware

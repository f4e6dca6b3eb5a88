// Accelerators: those that programs can use, and the display controllers that the system sees, with or without a driver.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "formats/hardware.h"

namespace tierpack::hardware {

// A display controller on the PCI bus (classes 03.00 and 03.02).
struct PciDisplay {
  std::string address;  // "0000:01:00.0"
  std::string vendor;   // "NVIDIA", "AMD", "Intel", or the number
  std::string link, link_max;
};
std::vector<PciDisplay> display_controllers(const std::filesystem::path& root);

struct GpuAnswer {
  std::vector<GpuInfo> gpus;
  std::string unavailable;  // why there are none
};
// `measure`: copies to the first device, pinned and pageable, and inside it.
GpuAnswer probe_gpus(const std::vector<PciDisplay>& displays, bool measure);

}  // namespace tierpack::hardware

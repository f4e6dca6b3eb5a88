#include "calibrate/hardware_command.h"

#include <algorithm>

#include <fmt/core.h>

#include "base/error.h"
#include "base/log.h"
#include "calibrate/doctor.h"
#include "calibrate/machine_text.h"

namespace tierpack::calibrate {

namespace {

namespace fs = std::filesystem;

// Disks that an earlier measurement of this machine found elsewhere are kept.
void keep_other_disks(const fs::path& path, HardwareProfile& hardware) {
  std::error_code absent;
  if (!fs::exists(path, absent)) return;
  try {
    const HardwareProfile earlier = read_hardware(path);
    if (earlier.cpu.model != hardware.cpu.model) return;
    for (const DiskInfo& disk : earlier.disks) {
      const auto same = [&](const DiskInfo& d) { return d.path == disk.path; };
      if (std::none_of(hardware.disks.begin(), hardware.disks.end(), same)) hardware.disks.push_back(disk);
    }
  } catch (const Error& e) {
    log_warning(fmt::format("{}; it is written anew", e.what()));
  }
}

}  // namespace

int run_hardware(const fs::path& pack, const fs::path& directory, const fs::path& out, bool json) {
  const fs::path path = out.empty() ? default_hardware_path() : out;
  if (path.empty()) {
    fail(ErrorKind::kUsage, "there is no place for the description of this machine: neither HOME nor XDG_STATE_HOME names a directory; name a file with --out");
  }
  hardware::MachineQuestion question;
  question.pack = pack;
  question.directory = directory;
  question.tool_version = TIERPACK_VERSION;
  hardware::MachineReport report = examine(question);
  HardwareProfile written = report.hardware;
  keep_other_disks(path, written);
  write_hardware(path, written);
  if (json) {
    fmt::print("{}", machine_json(report));
  } else {
    fmt::print("{}\n{}: written\n", machine_text(report), path.string());
  }
  return 0;
}

}  // namespace tierpack::calibrate

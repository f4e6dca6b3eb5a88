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

// What the file says so far. One that is damaged, or of another version, is replaced; a place where there can be no file is
// found before anything is measured.
HardwareProfile read_earlier(const fs::path& path) {
  std::error_code absent;
  if (fs::is_directory(path, absent)) fail(ErrorKind::kUsage, "{}: is a directory; name a file with --out", path.string());
  if (!fs::exists(path, absent)) return {};
  try {
    return read_hardware(path);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kCorrupt && e.kind() != ErrorKind::kUnsupported) throw;
    log_warning(fmt::format("{}; it is written anew", e.what()));
    return {};
  }
}

// Disks that an earlier measurement of this machine found elsewhere are kept.
void keep_other_disks(const HardwareProfile& earlier, HardwareProfile& hardware) {
  if (earlier.cpu.model != hardware.cpu.model) return;
  for (const DiskInfo& disk : earlier.disks) {
    const auto same = [&](const DiskInfo& d) { return d.path == disk.path; };
    if (std::none_of(hardware.disks.begin(), hardware.disks.end(), same)) hardware.disks.push_back(disk);
  }
}

}  // namespace

int run_hardware(const fs::path& pack, const fs::path& directory, const fs::path& out, bool json) {
  const fs::path path = out.empty() ? default_hardware_path() : out;
  if (path.empty()) {
    fail(ErrorKind::kUsage, "there is no place for the description of this machine: neither HOME nor XDG_STATE_HOME names a directory; name a file with --out");
  }
  const HardwareProfile earlier = read_earlier(path);
  hardware::MachineQuestion question;
  question.pack = pack;
  question.directory = directory;
  question.tool_version = TIERPACK_VERSION;
  const hardware::MachineReport report = examine(question);
  HardwareProfile written = report.hardware;
  keep_other_disks(earlier, written);
  write_hardware(path, written);
  if (json) {
    fmt::print("{}", machine_json(report));
  } else {
    fmt::print("{}\n{}: written\n", machine_text(report), path.string());
  }
  return 0;
}

}  // namespace tierpack::calibrate

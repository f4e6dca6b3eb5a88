#include "runtime/hardware/machine_report.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/error.h"
#include "runtime/kernels/kernels.h"
#include "tests/support/temp_directory.h"

namespace tierpack::hardware {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

MachineReport fine_machine() {
  MachineReport r;
  r.hardware.cpu = {"CPU", 8, 16, {"avx2", "reference"}, 32768, 1 << 20, 32 << 20, 2};
  r.nodes_usable = 2;
  r.hardware.memory = {64 * kGiB, 0, 4e10};
  r.available_bytes = 60 * kGiB;
  r.measured = true;
  r.disk_directory = "/data";
  r.disk_measured_on = "/data/experts.bin";
  r.registered_buffers = true;
  DiskInfo disk;
  disk.path = "/data";
  disk.device = "nvme0n1";
  disk.link = disk.link_max = "PCIe 4.0 x4";
  disk.filesystem = "ext4";
  disk.free_bytes = 500 * kGiB;
  disk.direct_io = disk.io_uring = true;
  disk.record_bytes = 2 << 20;
  disk.record_bytes_s = 3e9;
  disk.temperature_c = 40;
  r.hardware.disks.push_back(disk);
  r.hardware.gpus.push_back({"GPU", 24 * kGiB, "PCIe 4.0 x16", "PCIe 4.0 x16", 2e10, 1e10});
  r.hardware.limits.memlock_bytes = 64 << 20;
  return r;
}

std::vector<std::string> codes(const MachineReport& report) {
  std::vector<std::string> out;
  for (const Finding& finding : judge(report)) {
    EXPECT_GT(finding.text.size(), 30u);
    out.push_back(finding.code);
  }
  return out;
}

TEST(Judge, NothingAboutAFineMachine) { EXPECT_EQ(codes(fine_machine()), std::vector<std::string>{}); }

TEST(Judge, OneFindingForEachDefect) {
  using Change = void (*)(MachineReport&);
  const std::pair<const char*, Change> defects[] = {
      {"no_avx2", [](MachineReport& r) { r.hardware.cpu.isa = {"reference"}; }},
      {"numa", [](MachineReport& r) { r.nodes_usable = 1; }},
      {"busy", [](MachineReport& r) { r.load = 7; }},
      {"cgroup_limit", [](MachineReport& r) { r.hardware.limits.cgroup_bytes = 16 * kGiB; }},
      {"little_memory", [](MachineReport& r) { r.available_bytes = kGiB; }},
      {"little_memory", [](MachineReport& r) { r.cgroup_room_bytes = kGiB / 2; }},
      {"swap", [](MachineReport& r) { r.hardware.memory.swap_bytes = kGiB; }},
      {"memlock", [](MachineReport& r) { r.registered_buffers = false; }},
      {"memlock", [](MachineReport& r) { r.registered_buffers.reset(), r.hardware.limits.memlock_bytes = 65536; }},
      {"remote_filesystem", [](MachineReport& r) { r.hardware.disks[0].filesystem = "nfs4"; }},
      {"memory_filesystem", [](MachineReport& r) { r.hardware.disks[0].filesystem = "tmpfs"; }},
      {"rotational", [](MachineReport& r) { r.hardware.disks[0].rotational = true; }},
      {"usb", [](MachineReport& r) { r.hardware.disks[0].link = "USB 5 Gb/s"; }},
      {"disk_link", [](MachineReport& r) { r.hardware.disks[0].link = "PCIe 3.0 x4"; }},
      {"disk_hot", [](MachineReport& r) { r.hardware.disks[0].temperature_c = 75; }},
      {"disk_full", [](MachineReport& r) { r.hardware.disks[0].free_bytes = kGiB; }},
      {"disk_unread", [](MachineReport& r) { r.disk_measured_on = "", r.disk_not_measured = "it is read-only"; }},
      {"disk_unmeasured", [](MachineReport& r) { r.disk_not_measured = "it is broken"; }},
      {"no_direct_io", [](MachineReport& r) { r.hardware.disks[0].direct_io = false; }},
      {"no_io_uring", [](MachineReport& r) { r.hardware.disks[0].io_uring = false; }},
      {"disk_slow", [](MachineReport& r) { r.hardware.disks[0].record_bytes_s = 4e8; }},
      {"gpu_link", [](MachineReport& r) { r.hardware.gpus[0].link = "PCIe 4.0 x8"; }},
      {"gpu_unusable", [](MachineReport& r) { r.hardware.gpus.clear(), r.displays = {{"0000:01:00.0", "NVIDIA", "", ""}}; }},
      {"pack_exceeds_memory", [](MachineReport& r) { r.pack_bytes = 80 * kGiB; }},
  };
  for (const auto& [code, change] : defects) {
    MachineReport report = fine_machine();
    change(report);
    EXPECT_EQ(codes(report), std::vector<std::string>{code});
  }
}

TEST(Judge, WarningsComeBeforeNotes) {
  MachineReport report = fine_machine();
  report.load = 8;
  report.hardware.memory.swap_bytes = kGiB;
  EXPECT_EQ(codes(report), (std::vector<std::string>{"swap", "busy"}));
}

TEST(ExamineMachine, DescribesWithoutMeasuring) {
  const testing_support::TempDirectory directory;
  MachineQuestion question;
  question.directory = directory.path();
  question.measure = false;
  question.tool_version = "test";
  std::vector<std::string> steps;
  question.on_step = [&](const char* what) { steps.push_back(what); };
  const MachineReport report = examine_machine(question);
  const HardwareProfile& h = report.hardware;
  EXPECT_EQ(h.tool_version, "test");
  EXPECT_EQ(h.measured_at.size(), 20u);
  ASSERT_FALSE(h.cpu.isa.empty());
  EXPECT_EQ(h.cpu.isa.front(), kernels::best().name);
  EXPECT_EQ(h.cpu.isa.back(), "reference");
  EXPECT_GT(h.memory.total_bytes, 0u);
  EXPECT_EQ(h.memory.read_bytes_s, 0);
  ASSERT_EQ(h.disks.size(), 1u);
  EXPECT_NE(h.disk_of(directory.path()), nullptr);
  EXPECT_FALSE(h.disks[0].filesystem.empty());
  EXPECT_EQ(h.disks[0].sequential_bytes_s, 0);
  EXPECT_TRUE(h.kernels.empty());
  EXPECT_EQ(encode_hardware(parse_hardware(encode_hardware(h), "h")), encode_hardware(h));
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  EXPECT_EQ(steps, (std::vector<std::string>{"the disk", "GPUs"}));
  question.directory = directory / "none";
  EXPECT_THROW(examine_machine(question), Error);
}

}  // namespace
}  // namespace tierpack::hardware

#include "runtime/hardware/gpu_probe.h"

#include <gtest/gtest.h>

#include "tests/runtime/hardware/fake_machine.h"

namespace tierpack::hardware {
namespace {

using testing_support::FakeMachine;

void add_function(FakeMachine& machine, const std::string& address, const char* kind, const char* vendor) {
  const std::string device = "sys/devices/pci0000:00/" + address;
  machine.put(device + "/class", kind);
  machine.put(device + "/vendor", vendor);
  machine.link("sys/bus/pci/devices/" + address, device);
}

TEST(DisplayControllers, ByClassInOrderOfAddresses) {
  FakeMachine machine;
  add_function(machine, "0000:41:00.0", "0x030200", "0x10de");
  add_function(machine, "0000:03:00.0", "0x030000", "0x1002");
  add_function(machine, "0000:03:00.1", "0x040300", "0x1002");  // its sound
  add_function(machine, "0000:00:1f.2", "0x010601", "0x8086");
  const std::string card = "sys/devices/pci0000:00/0000:41:00.0";
  machine.put(card + "/current_link_speed", "2.5 GT/s PCIe");
  machine.put(card + "/current_link_width", "8");
  machine.put(card + "/max_link_speed", "32.0 GT/s PCIe");
  machine.put(card + "/max_link_width", "16");
  const std::vector<PciDisplay> displays = display_controllers(machine.root());
  ASSERT_EQ(displays.size(), 2u);
  EXPECT_EQ(displays[0].address, "0000:03:00.0");
  EXPECT_EQ(displays[0].vendor, "AMD");
  EXPECT_EQ(displays[0].link, "");
  EXPECT_EQ(displays[1].vendor, "NVIDIA");
  EXPECT_EQ(displays[1].link, "PCIe 1.0 x8");
  EXPECT_EQ(displays[1].link_max, "PCIe 5.0 x16");
  EXPECT_TRUE(display_controllers(machine.root() / "none").empty());
}

TEST(GpuProbe, SaysWhyThereIsNone) {
  const GpuAnswer answer = probe_gpus({}, false);
  EXPECT_EQ(answer.unavailable.empty(), !answer.gpus.empty());
}

}  // namespace
}  // namespace tierpack::hardware

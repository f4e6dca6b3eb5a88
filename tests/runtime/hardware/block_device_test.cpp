#include "runtime/hardware/block_device.h"

#include <sys/sysmacros.h>

#include <gtest/gtest.h>

#include "tests/runtime/hardware/fake_machine.h"

namespace tierpack::hardware {
namespace {

using testing_support::FakeMachine;
using Names = std::vector<std::string>;

constexpr const char* kNvme = "sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0";

void add_nvme(FakeMachine& machine) {
  const std::string pci = kNvme;
  machine.put(pci + "/current_link_speed", "8.0 GT/s PCIe");
  machine.put(pci + "/current_link_width", "4");
  machine.put(pci + "/max_link_speed", "16.0 GT/s PCIe");
  machine.put(pci + "/max_link_width", "4");
  machine.put(pci + "/nvme/nvme0/model", "Some SSD 980          ");
  machine.put(pci + "/nvme/nvme0/hwmon3/temp1_input", "41850");
  machine.put(pci + "/nvme/nvme0/nvme0n1/queue/rotational", "0");
  machine.put(pci + "/nvme/nvme0/nvme0n1/nvme0n1p2/partition", "2");
  machine.link("sys/class/nvme/nvme0", pci + "/nvme/nvme0");
  machine.link("sys/dev/block/259:2", pci + "/nvme/nvme0/nvme0n1/nvme0n1p2");
}

TEST(BlockDevice, PartitionOfAnNvmeDisk) {
  FakeMachine machine;
  add_nvme(machine);
  const BlockDevice device = describe_block_device(machine.root(), makedev(259, 2), "");
  EXPECT_EQ(device.disks, Names{"nvme0n1"});
  EXPECT_EQ(device.model, "Some SSD 980");
  EXPECT_EQ(device.link, "PCIe 3.0 x4");
  EXPECT_EQ(device.link_max, "PCIe 4.0 x4");
  EXPECT_FALSE(device.rotational);
  EXPECT_EQ(device.temperature_c, 41.85);
}

TEST(BlockDevice, NvmeWithSeveralPathsIsFoundByItsController) {
  FakeMachine machine;
  add_nvme(machine);
  machine.folder("sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1");
  machine.link("sys/dev/block/259:5", "sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1");
  EXPECT_EQ(describe_block_device(machine.root(), makedev(259, 5), "").link, "PCIe 3.0 x4");
}

TEST(BlockDevice, MappedDevicesLeadToTheirDisks) {
  FakeMachine machine;
  add_nvme(machine);
  const std::string sata = "sys/devices/pci0000:00/0000:00:17.0/ata2/host1/target1:0:0/1:0:0:0/block/sdb";
  machine.put(sata + "/queue/rotational", "1");
  machine.put(sata + "/device/model", "OLD DISK");
  // LUKS over LVM over a partition and a whole disk
  machine.folder("sys/devices/virtual/block/dm-1");
  machine.link("sys/devices/virtual/block/dm-1/slaves/dm-0", "sys/devices/virtual/block/dm-0");
  machine.link("sys/devices/virtual/block/dm-0/slaves/nvme0n1p2", std::string(kNvme) + "/nvme/nvme0/nvme0n1/nvme0n1p2");
  machine.link("sys/devices/virtual/block/dm-0/slaves/sdb", sata);
  machine.link("sys/dev/block/253:1", "sys/devices/virtual/block/dm-1");
  const BlockDevice device = describe_block_device(machine.root(), makedev(253, 1), "");
  EXPECT_EQ(device.disks, (Names{"nvme0n1", "sdb"}));
  EXPECT_EQ(device.link, "PCIe 3.0 x4");
  EXPECT_TRUE(device.rotational);
}

TEST(BlockDevice, LinksByThePath) {
  const std::pair<const char*, const char*> links[] = {
      {"pci0000:00/0000:00:17.0/ata2/host1/target1:0:0/1:0:0:0/block/sda", "SATA"},
      {"pci0000:00/0000:00:05.0/virtio3/block/sda", "virtio"},
      {"pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sda", "USB 5 Gb/s"},
      {"pci0000:00/0000:00:1a.0/mmc_host/mmc0/mmc0:0001/block/sda", "MMC"},
      {"virtual/block/sda", ""}};
  for (const auto& [path, link] : links) {
    FakeMachine machine;
    machine.folder(std::string("sys/devices/") + path);
    machine.put("sys/devices/pci0000:00/0000:00:14.0/usb2/2-1/speed", "5000");
    machine.put("sys/devices/pci0000:00/0000:00:14.0/usb2/2-1/busnum", "2");
    machine.link("sys/dev/block/8:0", std::string("sys/devices/") + path);
    machine.put(std::string("sys/devices/") + path + "/queue/rotational", "1");
    const BlockDevice device = describe_block_device(machine.root(), makedev(8, 0), "");
    EXPECT_EQ(device.link, link) << path;
    EXPECT_EQ(device.rotational, std::string(link) != "virtio") << path;
  }
}

TEST(BlockDevice, FoundByTheMountWhereTheNumberIsNone) {
  FakeMachine machine;
  add_nvme(machine);
  machine.link("sys/class/block/nvme0n1p2", std::string(kNvme) + "/nvme/nvme0/nvme0n1/nvme0n1p2");
  machine.put("dev/nvme0n1p2", "");
  machine.link("dev/mapper/root", "dev/nvme0n1p2");
  EXPECT_EQ(describe_block_device(machine.root(), makedev(0, 44), "/dev/nvme0n1p2").disks, Names{"nvme0n1"});
  EXPECT_EQ(describe_block_device(machine.root(), makedev(0, 44), "/dev/mapper/root").disks, Names{"nvme0n1"});
  EXPECT_EQ(describe_block_device(machine.root(), makedev(0, 44), "overlay").disks, Names{});
}

TEST(BlockDevice, EndlessMappingsEnd) {
  FakeMachine machine;
  machine.link("sys/devices/virtual/block/dm-0/slaves/dm-0", "sys/devices/virtual/block/dm-0");
  machine.link("sys/dev/block/253:0", "sys/devices/virtual/block/dm-0");
  EXPECT_EQ(describe_block_device(machine.root(), makedev(253, 0), "").disks, Names{});
}

TEST(MountOf, TheLongestPointAndTheLatestMount) {
  FakeMachine machine;
  machine.put("proc/self/mountinfo",
              "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
              "23 22 8:2 / /data rw shared:3 - ext4 /dev/sdb1 rw\n"
              "24 23 8:3 / /data/my\\040models rw - xfs /dev/sdc1 rw\n"
              "25 23 8:4 / /data rw - btrfs /dev/sdd1 rw");
  EXPECT_EQ(mount_of(machine.root(), "/home")->type, "ext4");
  EXPECT_EQ(mount_of(machine.root(), "/")->point, "/");
  EXPECT_EQ(mount_of(machine.root(), "/database")->point, "/");
  EXPECT_EQ(mount_of(machine.root(), "/data")->type, "btrfs");
  EXPECT_EQ(mount_of(machine.root(), "/data/my models/x")->source, "/dev/sdc1");
  EXPECT_EQ(mount_of(machine.root() / "none", "/"), std::nullopt);
}

}  // namespace
}  // namespace tierpack::hardware

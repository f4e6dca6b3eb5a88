#include "base/mount_table.h"

#include <gtest/gtest.h>

#include "tests/support/temp_directory.h"

namespace tierpack {
namespace {

using namespace testing_support;

TEST(MountTable, EveryLineOfTheKernel) {
  const TempDirectory directory;
  std::filesystem::create_directories(directory / "proc/self");
  write_file(directory / "proc/self/mountinfo",
             "22 1 259:2 / / rw,relatime shared:1 master:2 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro\n"
             "23 22 0:44 /@home /home rw - btrfs /dev/mapper/a\\040b rw,subvol=/@home\n"
             "not a mount\n"
             "24 22 0:45 / /back\\134slash\\04 rw - tmpfs tmpfs rw\n");
  const std::vector<Mount> mounts = read_mounts(directory.path());
  ASSERT_EQ(mounts.size(), 3u);
  EXPECT_EQ(mounts[0].point, "/");
  EXPECT_EQ(mounts[0].type, "ext4");
  EXPECT_EQ(mounts[0].options, "rw,errors=remount-ro");
  EXPECT_EQ(mounts[1].top, "/@home");
  EXPECT_EQ(mounts[1].source, "/dev/mapper/a b");
  EXPECT_EQ(mounts[2].point, "/back\\slash\\04");
  EXPECT_TRUE(read_mounts(directory / "none").empty());
}

TEST(MountTable, OfThisProcess) { EXPECT_FALSE(read_mounts().empty()); }

}  // namespace
}  // namespace tierpack

#include "base/memory_limits.h"

#include <gtest/gtest.h>

#include "tests/support/temp_directory.h"

namespace tierpack {
namespace {

using namespace testing_support;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr const char* kUnlimitedV1 = "9223372036854771712\n";

class MemoryLimitsOf : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& content) {
    const std::filesystem::path file = directory_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    write_file(file, content);
  }
  void put_v2_group(const std::string& group, const std::string& max, uint64_t current, uint64_t cache) {
    put(group + "/memory.max", max);
    put(group + "/memory.current", std::to_string(current) + "\n");
    put(group + "/memory.stat", "anon 1\nfile 999999999\nactive_file " + std::to_string(cache / 2) + "\ninactive_file " +
                                    std::to_string(cache / 2) + "\n");
  }
  void v2(const std::string& own, const std::string& top = "/") {
    put("proc/self/cgroup", "0::" + own + "\n");
    put("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:26 " + top +
                                   " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  MemoryLimits read() { return read_memory_limits(directory_.path()); }

  TempDirectory directory_;
};

TEST_F(MemoryLimitsOf, NothingReadableIsNoLimit) {
  const MemoryLimits limits = read();
  EXPECT_EQ(limits.cgroup_limit_bytes, std::nullopt);
  EXPECT_EQ(limits.cgroup_room_bytes, std::nullopt);
  EXPECT_EQ(limits.memlock_bytes, std::nullopt);
  EXPECT_EQ(limits.available_bytes, 0u);
}

TEST_F(MemoryLimitsOf, TheMachine) {
  put("proc/meminfo", "MemTotal:       24000000 kB\nMemFree: 1 kB\nMemAvailable:   20000000 kB\nSwapTotal:  1024 kB\n");
  EXPECT_EQ(read().total_bytes, uint64_t{24000000} * 1024);
  EXPECT_EQ(read().available_bytes, uint64_t{20000000} * 1024);
  EXPECT_EQ(read().swap_bytes, kMiB);
}

TEST_F(MemoryLimitsOf, LockedMemory) {
  put("proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units     \n"
                          "Max locked memory         8388608              9999999              bytes     \n");
  EXPECT_EQ(read().memlock_bytes, 8 * kMiB);
  put("proc/self/status", "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n");
  EXPECT_EQ(read().memlock_bytes, 8 * kMiB);
  put("proc/self/status", "CapEff:\t0000000000004000\n");
  EXPECT_EQ(read().memlock_bytes, std::nullopt);
  put("proc/self/status", "CapEff:\t0000000000000000\n");
  put("proc/self/limits", "Max locked memory         unlimited            unlimited            bytes     \n");
  EXPECT_EQ(read().memlock_bytes, std::nullopt);
}

TEST_F(MemoryLimitsOf, AGroupAboveBindsToo) {
  v2("/user/job/step");
  put_v2_group("sys/fs/cgroup/user/job/step", "max\n", 100 * kMiB, 0);
  put_v2_group("sys/fs/cgroup/user/job", std::to_string(4096 * kMiB), 3000 * kMiB, 1000 * kMiB);
  put_v2_group("sys/fs/cgroup/user", std::to_string(8192 * kMiB), 7000 * kMiB, 0);
  EXPECT_EQ(read().cgroup_limit_bytes, 4096 * kMiB);
  EXPECT_EQ(read().cgroup_held_bytes, 2000 * kMiB);
  EXPECT_EQ(read().cgroup_room_bytes, 1192 * kMiB);  // the outer group is nearer to its limit
}

TEST_F(MemoryLimitsOf, OnlyOwnGroupsCount) {
  v2("/a");
  put_v2_group("sys/fs/cgroup/a", "max\n", 0, 0);
  put_v2_group("sys/fs/cgroup/b", "1048576\n", 0, 0);
  EXPECT_EQ(read().cgroup_limit_bytes, std::nullopt);
}

TEST_F(MemoryLimitsOf, ThrottlingIsALimit) {
  v2("/a");
  put_v2_group("sys/fs/cgroup/a", std::to_string(64 * kMiB), 0, 0);
  put("sys/fs/cgroup/a/memory.high", std::to_string(32 * kMiB));
  EXPECT_EQ(read().cgroup_limit_bytes, 32 * kMiB);
}

TEST_F(MemoryLimitsOf, FullGroupHasNoRoom) {
  v2("/a");
  put_v2_group("sys/fs/cgroup/a", std::to_string(64 * kMiB), 65 * kMiB, 0);
  EXPECT_EQ(read().cgroup_room_bytes, 0u);
}

TEST_F(MemoryLimitsOf, AContainerSeesItsGroupAtTheMount) {
  v2("/docker/abc", "/docker/abc");
  put_v2_group("sys/fs/cgroup", std::to_string(64 * kMiB), kMiB, 0);
  EXPECT_EQ(read().cgroup_limit_bytes, 64 * kMiB);
  v2("/docker/abc/in", "/docker/abc");
  put_v2_group("sys/fs/cgroup/in", std::to_string(16 * kMiB), kMiB, 0);
  EXPECT_EQ(read().cgroup_limit_bytes, 16 * kMiB);
  v2("/../other", "/");  // outside of the container's namespace
  EXPECT_EQ(read().cgroup_limit_bytes, 64 * kMiB);
}

TEST_F(MemoryLimitsOf, VersionOneBesideVersionTwo) {
  put("proc/self/cgroup", "4:cpu,memory:/batch/job 7\n1:name=systemd:/x\n0::/y\n");
  put("proc/self/mountinfo",
      "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
      "35 31 0:32 / /sys/fs/my\\040groups rw - cgroup cgroup rw,cpu,memory\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  const std::string job = "sys/fs/my groups/batch/job 7/";
  put(job + "memory.limit_in_bytes", std::to_string(512 * kMiB));
  put(job + "memory.usage_in_bytes", std::to_string(300 * kMiB));
  put(job + "memory.stat",
      "active_file 1\ninactive_file 1\ntotal_active_file " + std::to_string(50 * kMiB) + "\ntotal_inactive_file " +
          std::to_string(50 * kMiB) + "\n");
  put("sys/fs/my groups/memory.limit_in_bytes", kUnlimitedV1);
  EXPECT_EQ(read().cgroup_limit_bytes, 512 * kMiB);
  EXPECT_EQ(read().cgroup_held_bytes, 200 * kMiB);
  EXPECT_EQ(read().cgroup_room_bytes, 312 * kMiB);

  put(job + "memory.limit_in_bytes", kUnlimitedV1);
  EXPECT_EQ(read().cgroup_limit_bytes, std::nullopt);
  put(job + "memory.stat", "hierarchical_memory_limit " + std::to_string(256 * kMiB) + "\n");
  EXPECT_EQ(read().cgroup_limit_bytes, 256 * kMiB);
}

TEST(MemoryLimits, OfThisProcess) {
  const MemoryLimits limits = read_memory_limits();
  EXPECT_GT(limits.total_bytes, 64 * kMiB);
  EXPECT_GT(limits.available_bytes, 0u);
  EXPECT_LE(limits.available_bytes, limits.total_bytes);
}

}  // namespace
}  // namespace tierpack

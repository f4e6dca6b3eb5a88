#include "runtime/hardware/cpu_probe.h"

#include <gtest/gtest.h>

#include "base/threads.h"
#include "tests/runtime/hardware/fake_machine.h"

namespace tierpack::hardware {
namespace {

using testing_support::FakeMachine;

// Two packages of two cores with two threads each: 0-3 and their siblings 4-7.
void add_cpus(FakeMachine& machine) {
  machine.put("proc/cpuinfo", "processor\t: 0\nmodel name\t: A Fine CPU @ 3 GHz\nflags\t\t: avx2");
  for (int cpu = 0; cpu < 8; ++cpu) {
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu);
    machine.put(folder + "/topology/physical_package_id", std::to_string(cpu % 4 / 2));
    machine.put(folder + "/topology/core_id", std::to_string(cpu % 2));
    const std::pair<const char*, const char*> caches[] = {{"Data", "48K"}, {"Instruction", "32K"}, {"Unified", "2048K"}, {"Unified", "36M"}};
    for (int i = 0; i < 4; ++i) {
      const std::string cache = folder + "/cache/index" + std::to_string(i);
      machine.put(cache + "/level", std::to_string(std::max(1, i)));
      machine.put(cache + "/type", caches[i].first);
      machine.put(cache + "/size", caches[i].second);
    }
  }
  machine.put("sys/devices/system/node/has_memory", "0-1");
  machine.put("sys/devices/system/node/node0/cpulist", "0-1,4-5");
  machine.put("sys/devices/system/node/node1/cpulist", "2-3,6-7");
}

TEST(CpuProbe, WholeMachine) {
  FakeMachine machine;
  add_cpus(machine);
  const CpuPlace cpu = describe_cpu(machine.root(), {0, 1, 2, 3, 4, 5, 6, 7}, 0);
  EXPECT_EQ(cpu.info.model, "A Fine CPU @ 3 GHz");
  EXPECT_EQ(cpu.info.cores, 4u);
  EXPECT_EQ(cpu.info.threads, 8u);
  EXPECT_EQ(cpu.info.l1d_bytes, 48u << 10);
  EXPECT_EQ(cpu.info.l2_bytes, 2u << 20);
  EXPECT_EQ(cpu.info.l3_bytes, 36u << 20);
  EXPECT_EQ(cpu.info.numa_nodes, 2u);
  EXPECT_EQ(cpu.nodes_usable, 2u);
}

TEST(CpuProbe, OnlyWhatTheProcessMayUse) {
  FakeMachine machine;
  add_cpus(machine);
  const CpuPlace pinned = describe_cpu(machine.root(), {2, 3, 6}, 0);
  EXPECT_EQ(pinned.info.cores, 2u);
  EXPECT_EQ(pinned.info.threads, 3u);
  EXPECT_EQ(pinned.info.numa_nodes, 2u);
  EXPECT_EQ(pinned.nodes_usable, 1u);
  const CpuPlace limited = describe_cpu(machine.root(), {0, 1, 2, 3, 4, 5, 6, 7}, 3);
  EXPECT_EQ(limited.info.cores, 3u);
  EXPECT_EQ(limited.info.threads, 3u);
}

TEST(CpuProbe, NothingReadable) {
  const FakeMachine machine;
  const CpuPlace cpu = describe_cpu(machine.root(), {0, 1}, 0);
  EXPECT_EQ(cpu.info.model, "");
  EXPECT_EQ(cpu.info.cores, 2u);
  EXPECT_EQ(cpu.info.l3_bytes, 0u);
  EXPECT_EQ(cpu.info.numa_nodes, 1u);
}

TEST(CpuProbe, ThisMachine) {
  const auto limit = static_cast<uint32_t>(usable_cores());
  const CpuPlace cpu = describe_cpu("/", allowed_cpus(), limit);
  EXPECT_EQ(cpu.info.cores, limit);
  EXPECT_GE(cpu.info.threads, cpu.info.cores);
}

}  // namespace
}  // namespace tierpack::hardware

#include "runtime/machine_probe.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace tierpack {
namespace {

TEST(ReadProbe, MeasuresARateThatMemoryCanHave) {
  for (const int threads : {1, 2}) {
    ThreadTeam team(threads);
    ReadProbe probe(team, (uint64_t{8} << 20) - 5);
    EXPECT_EQ(probe.bytes(), uint64_t{8} << 20);  // whole pieces
    const double rate = probe.measure(0.01);
    EXPECT_GT(rate, 1e7);
    EXPECT_LT(rate, 1e13);
  }
}

TEST(Int8Rate, WiderInstructionsAreNotSlower) {
  ThreadTeam team(1);
  const double plain = measure_int8_rate(team, "reference", 0.02);
  EXPECT_GT(plain, 1e6);
  EXPECT_LT(plain, 1e12);
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (__builtin_cpu_supports("avx2")) {
    EXPECT_GT(measure_int8_rate(team, "avx2", 0.02), plain);
  }
#endif
}

TEST(PeakResidentBytes, GrowsWithWhatIsTouched) {
  const uint64_t before = peak_resident_bytes();
  ASSERT_GT(before, 0u);
  std::vector<char> block(before + (64 << 20));
  std::memset(block.data(), 1, block.size());
  EXPECT_GE(peak_resident_bytes(), block.size());
  EXPECT_EQ(block[block.size() / 2], 1);
}

TEST(MachineInfo, KnowsCoresAndMemory) {
  const MachineInfo info = machine_info();
  EXPECT_EQ(info.cores, usable_cores());
  EXPECT_GT(info.memory_bytes, uint64_t{1} << 28);
  EXPECT_GE(info.load, 0);
}

}  // namespace
}  // namespace tierpack

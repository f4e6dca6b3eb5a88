#include "runtime/model/gpu/miss_share.h"

#include <gtest/gtest.h>

namespace tierpack::model {
namespace {

using Side = MissShare::Side;

constexpr uint64_t kRecord = 5'000'000;

// How many of `count` misses of one token go to the CPU.
int to_cpu(MissShare& share, int count, uint32_t tokens = 1) {
  share.begin_layer();
  int cpu = 0;
  for (int i = 0; i < count; ++i) cpu += share.choose(kRecord, tokens) == Side::kCpu;
  return cpu;
}

void measure(MissShare& share, double cpu_bytes_s, double copy_bytes_s) {
  for (int i = 0; i < 200; ++i) {
    share.measured_cpu(static_cast<double>(kRecord), static_cast<double>(kRecord) / cpu_bytes_s);
    share.measured_copy(kRecord, static_cast<double>(kRecord) / copy_bytes_s);
  }
}

TEST(MissShare, BothSidesGetWorkInTheProportionOfTheirSpeeds) {
  MissShare share(0);
  measure(share, 30e9, 10e9);
  EXPECT_EQ(to_cpu(share, 8), 6);
  measure(share, 10e9, 30e9);
  EXPECT_EQ(to_cpu(share, 8), 2);
  measure(share, 20e9, 20e9);
  EXPECT_EQ(to_cpu(share, 8), 4);
}

TEST(MissShare, MeasurementsReplaceWhatWasAssumed) {
  MissShare share(50e9);
  EXPECT_NEAR(share.copy_bytes_s(), 50e9, 1);
  measure(share, 12e9, 25e9);
  EXPECT_NEAR(share.cpu_bytes_s(), 12e9, 0.1e9);
  EXPECT_NEAR(share.copy_bytes_s(), 25e9, 0.1e9);
}

// A copy costs the same for any number of tokens, the CPU's work grows with them.
TEST(MissShare, ManyTokensOfAnExpertSpeakForACopy) {
  MissShare share(0);
  measure(share, 20e9, 20e9);
  EXPECT_EQ(to_cpu(share, 8, 64), 0);
  EXPECT_GT(to_cpu(share, 8, 2), 2);
}

TEST(MissShare, OneMissGoesToTheFasterSide) {
  MissShare share(0);
  measure(share, 30e9, 10e9);
  EXPECT_EQ(to_cpu(share, 1), 1);
  measure(share, 5e9, 25e9);
  EXPECT_EQ(to_cpu(share, 1), 0);
}

TEST(MissShare, NothingMeasuredIsNothingLearned) {
  MissShare share(10e9);
  share.measured_copy(0, 0);
  share.measured_cpu(0, 1);
  share.measured_copy(1000, 0);
  EXPECT_NEAR(share.copy_bytes_s(), 10e9, 1);
}

}  // namespace
}  // namespace tierpack::model

#include "runtime/hardware/disk_probe.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "tests/support/temp_directory.h"

namespace tierpack::hardware {
namespace {

using namespace testing_support;

class DiskProbe : public testing::Test {
 protected:
  DiskProbe() {
    question_.directory = directory_.path();
    question_.record_bytes = 100'000;
    question_.temporary_bytes = uint64_t{4} << 20;
    question_.window_seconds = 0.005;
  }
  TempDirectory directory_;
  DiskQuestion question_;
};

void expect_measured(const DiskInfo& disk) {
  EXPECT_GT(disk.sequential_bytes_s, 0);
  EXPECT_GT(disk.record_bytes_s, 0);
  EXPECT_GT(disk.record_latency_us, 0);
  EXPECT_GT(disk.page_reads_s, 0);
  EXPECT_GT(disk.page_latency_us, 0);
}

TEST_F(DiskProbe, MeasuresOnATemporaryFile) {
  const DiskAnswer answer = probe_disk(question_);
  EXPECT_EQ(answer.not_measured, "");
  EXPECT_EQ(answer.info.record_bytes, 100'000u);
  EXPECT_GT(answer.info.free_bytes, 0u);
  expect_measured(answer.info);
  // The mount point holds the directory.
  EXPECT_TRUE(directory_.path().string().starts_with(answer.info.path)) << answer.info.path;
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(DiskProbe, MeasuresOnAGivenFileAndLeavesItAsItIs) {
  const std::string content(uint64_t{3} << 20, 'x');
  question_.file = directory_ / "experts.bin";
  write_file(question_.file, content);
  const DiskAnswer answer = probe_disk(question_);
  EXPECT_EQ(answer.measured_on, question_.file.string());
  expect_measured(answer.info);
  EXPECT_EQ(read_file(question_.file), content);
}

TEST_F(DiskProbe, DescribesOnly) {
  question_.measure = false;
  const DiskAnswer answer = probe_disk(question_);
  EXPECT_EQ(answer.info.sequential_bytes_s, 0);
  EXPECT_NE(answer.not_measured, "");
  EXPECT_FALSE(answer.info.filesystem.empty());
}

TEST_F(DiskProbe, WhatCannotBeReadIsAnAnswer) {
  question_.file = directory_ / "none";
  DiskAnswer answer = probe_disk(question_);
  EXPECT_NE(answer.not_measured.find("none"), std::string::npos) << answer.not_measured;
  EXPECT_EQ(answer.measured_on, "");
  EXPECT_FALSE(answer.info.filesystem.empty());
  question_.file.clear();
  question_.directory = "/proc";  // nobody writes there
  answer = probe_disk(question_);
  EXPECT_NE(answer.not_measured, "");
  EXPECT_EQ(answer.info.path, "/proc");
  EXPECT_EQ(answer.info.device, "");
}

TEST_F(DiskProbe, InterruptionEndsIt) {
  request_interrupt();
  EXPECT_THROW(probe_disk(question_), Error);
  EXPECT_TRUE(take_interrupt());
}

}  // namespace
}  // namespace tierpack::hardware

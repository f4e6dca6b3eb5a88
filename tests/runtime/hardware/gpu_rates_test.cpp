// Measuring a GPU that can be used; without one, the stand-in of tests/support/cuda_on_cpu.
#include <gtest/gtest.h>

#include "runtime/hardware/gpu_probe.h"

namespace tierpack::hardware {
namespace {

TEST(GpuRates, CopiesToTheDeviceAndInsideItAreMeasured) {
  const GpuAnswer answer = probe_gpus({}, true);
  ASSERT_FALSE(answer.gpus.empty()) << answer.unavailable;
  const GpuInfo& gpu = answer.gpus.front();
  EXPECT_GT(gpu.pinned_bytes_s, 0);
  EXPECT_GT(gpu.pageable_bytes_s, 0);
  EXPECT_GT(gpu.memory_bytes_s, 0);
}

TEST(GpuRates, NothingIsMeasuredUnasked) {
  const GpuAnswer answer = probe_gpus({}, false);
  ASSERT_FALSE(answer.gpus.empty()) << answer.unavailable;
  EXPECT_EQ(answer.gpus.front().pinned_bytes_s, 0);
  EXPECT_EQ(answer.gpus.front().memory_bytes_s, 0);
}

}  // namespace
}  // namespace tierpack::hardware

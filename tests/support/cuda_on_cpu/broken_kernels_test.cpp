// The emulator catches kernels that are broken on purpose, says what is wrong with them, and lets their healthy twins through.
#include <atomic>
#include <numeric>
#include <ostream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/cuda_on_cpu/broken_kernels.h"
#include "tests/support/cuda_on_cpu/fiber_engine.h"
#include "tests/support/device_arrays.h"

namespace tierpack::kernels::cuda {
namespace {

using device::DeviceBuffer;
using device::Event;
using device::OnDevice;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr size_t kInputs = 4 * kBrokenThreads;
constexpr uint32_t kOrders = 20;  // of execution, each tried

std::vector<int> inputs() {
  std::vector<int> values(kInputs);
  std::iota(values.begin(), values.end(), 100);
  return values;
}

using Kernel = void (*)(Stream&, const int*, int*, bool);

std::vector<int> run(Kernel kernel, bool broken) {
  Stream stream;
  const OnDevice<int> in(stream, inputs()), out(stream, kInputs);
  kernel(stream, in.data(), out.data(), broken);
  return out.get();
}

// What the kernel is found to do wrong; empty: nothing.
std::string complaint(Kernel kernel, bool broken, uint32_t order) {
  cuda_on_cpu::seed_order(order);
  try {
    run(kernel, broken);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kCuda);
    return e.what();
  }
  return {};
}

struct Case {
  const char* name;
  Kernel kernel;
  const char* message;  // an extended regular expression
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class Broken : public ::testing::TestWithParam<Case> {};

TEST_P(Broken, IsCaughtInEveryOrder) {
  for (uint32_t order = 0; order < kOrders; ++order) EXPECT_THAT(complaint(GetParam().kernel, true, order), ContainsRegex(GetParam().message));
}

TEST_P(Broken, HealthyTwinPasses) {
  for (uint32_t order = 0; order < kOrders; ++order) EXPECT_EQ(complaint(GetParam().kernel, false, order), "");
}

const Case kCases[] = {
    {"MissingBarrier", reverse, "kernel reverse, block \\(0, 0, 0\\), thread [0-9]+: tile\\[[0-9]+\\]: "},
    {"MissingWarpBarrier", reverse_warps, "tile\\[[0-9]+\\]: "},
    {"WrongIndex", shift, "thread 63: tile\\[64\\]: write of 4 bytes outside the array of 64 elements"},
    {"BarrierForSome", barrier_for_some, "cannot go on: threads 0-31 wait at __syncthreads, threads 32-39 wait at __syncthreads|threads 40-63 wait in __syncwarp with mask 0xffffffff"},
    {"BarrierOfTheRest", barrier_of_the_rest, "cannot go on: threads 0-31 wait at __syncthreads, threads 32-63 returned"},
    {"MissingLanes", warp_sum, "cannot go on: threads 0-30 wait in __shfl_xor_sync with mask 0xffffffff, threads 31-31 returned"},
    {"DivergedCollectives", split_warp, "__(any|shfl_xor)_sync with mask 0xffffffff, while lanes 0x[0-9a-f]+ of warp [01] are in __(any|shfl_xor)_sync"},
    {"LaneOutsideMask", read_other_half, "__shfl_sync with mask 0x.*: lane [0-9]+ reads lane (3|19), which the mask leaves out"},
    {"ReadBeforeWait", copy_in_background, "tile\\[[0-9]+\\]: thread [0-9]+ reads what copy_async_16 of thread [0-9]+ brings, which has not been waited for"},
    {"YoungerGroup", copy_two_groups, "tile\\[[0-9]+\\]: thread [0-9]+ reads what copy_async_16 of thread [0-9]+ brings, which has not been waited for"},
    {"Unwritten", sum_unwritten, "tile\\[0\\]: thread [0-9]+ reads what no thread of the block has written"},
    {"ReusedBuffer", reuse_buffer, "tile\\[[0-9]+\\]: a race: thread [0-9]+ (writes|reads) what thread [0-9]+ (writes|reads), and no (__syncthreads|collective of their warp) lies between"},
    {"LostCounts", count_values, "counts\\[[0-3]\\]: a race: thread [0-9]+ (writes|reads) what thread [0-9]+ (writes|reads)"},
    {"MisalignedSharedVector", shared_vectors, "tile\\[[0-9]+\\]: access of 16 bytes at byte [0-9]+ of the array, which is no multiple"},
#ifndef TIERPACK_SANITIZED
    {"MisalignedVector", device_vectors, "thread [0-9]+: address 0x[0-9a-f]+ is no multiple of 16 \\(broken_kernels.cu:[0-9]+\\)"},
#endif
    {"DynamicViews", dynamic_views, "(words|bytes)\\[[0-9]+\\]: "},
};

INSTANTIATE_TEST_SUITE_P(Kernels, Broken, ::testing::ValuesIn(kCases), [](const auto& one) { return std::string(one.param.name); });

TEST(HealthyKernel, ComputesWhatItShould) {
  const std::vector<int> in = inputs(), reversed = run(reverse, false), sums = run(warp_sum, false), split = run(split_warp, false);
  const std::vector<int> halves = run(read_other_half, false), copied = run(copy_in_background, false), counts = run(count_values, false);
  for (size_t i = 0; i < kBrokenThreads; ++i) {
    EXPECT_EQ(reversed[i], in[kBrokenThreads - 1 - i]);
    EXPECT_EQ(sums[i], std::accumulate(in.begin() + i / 32 * 32, in.begin() + i / 32 * 32 + 32, 0));
    EXPECT_EQ(split[i], in[i ^ (i % 2 != 0 ? 2 : 4)]);
    EXPECT_EQ(halves[i], in[i / 16 * 16 + 3]);
    EXPECT_EQ(counts[i], 16);
  }
  for (size_t i = 0; i < kInputs; ++i) EXPECT_EQ(copied[i], in[(i + 8) % kInputs]);
}

TEST(BrokenLaunch, HostPointer) {
  Stream stream;
  const std::vector<int> in = inputs();
  const OnDevice<int> out(stream, kInputs);
  try {
    reverse(stream, in.data(), out.data(), false);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("kernel reverse: argument 1 is 0x"));
  }
}

TEST(BrokenLaunch, AddressOfAFreedBuffer) {
  Stream stream;
  const OnDevice<int> in(stream, inputs());
  int* stale = nullptr;
  {
    const OnDevice<int> out(stream, kInputs);
    stale = out.data();
  }
  EXPECT_THROW(copy_elements(stream, in.data(), stale, 64), Error);
}

TEST(BrokenLaunch, GoesOnAfterAFailure) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(complaint(barrier_for_some, true, 7), "");
    EXPECT_EQ(complaint(barrier_for_some, false, 7), "");
  }
}

TEST(BrokenLaunchDeathTest, OverrunOfABuffer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Stream stream;
  const OnDevice<int> in(stream, inputs()), out(stream, 60);
  copy_elements(stream, in.data(), out.data(), 60);
  stream.synchronize();
  EXPECT_DEATH(
      {
        copy_elements(stream, in.data(), out.data(), 64);
        stream.synchronize();
      },
      "kernel copy_elements, block \\(0, 0, 0\\), thread 6[0-3] touches [0-9]+ bytes behind a buffer of 240 bytes");
}

void write_a_freed_buffer() {
  Stream stream;
  const OnDevice<int> in(stream, inputs());
  int* stale = nullptr;
  {
    const OnDevice<int> out(stream, kInputs);
    stale = out.data();
  }
  copy_arrays(stream, {in.data(), stale}, 64);
  stream.synchronize();
}

TEST(BrokenLaunchDeathTest, FreedBuffer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(write_a_freed_buffer(),
      "kernel copy_arrays, .* touches byte [0-9]+ of a freed buffer of 1024 bytes");
}

// Two streams, one writes and one reads.
int across_streams(bool waits) {
  Stream writer, reader;
  const OnDevice<int> in(writer, inputs());
  const OnDevice<int> between(writer, kInputs), out(reader, kInputs);
  writer.synchronize();
  Event written;
  copy_elements(writer, in.data(), between.data(), 64);
  writer.record(written);
  if (waits) reader.wait(written);
  copy_elements(reader, between.data(), out.data(), 64);
  const int found = out.get()[5];
  writer.synchronize();
  return found;
}

TEST(BrokenStreams, MissingWait) {
  EXPECT_EQ(across_streams(false), 0);
  EXPECT_EQ(across_streams(true), 105);
}

TEST(BrokenStreams, HostBufferThatChangesTooEarly) {
  Stream stream;
  DeviceBuffer buffer(16);
  std::vector<int> values = {1, 2, 3, 4}, found(4);
  stream.copy_to_device(buffer, 0, std::as_bytes(std::span(values)));
  values[0] = 9;
  stream.copy_to_host(std::as_writable_bytes(std::span(found)), buffer, 0);
  EXPECT_EQ(found[0], 0);
  stream.synchronize();
  EXPECT_EQ(found[0], 9);
}

TEST(BrokenStreams, EventsAreReachedByPolling) {
  Stream stream;
  const OnDevice<int> in(stream, inputs()), out(stream, kInputs);
  Event event, never;
  EXPECT_TRUE(never.done());
  copy_elements(stream, in.data(), out.data(), 64);
  copy_elements(stream, in.data(), out.data(), 64);
  stream.record(event);
  int polls = 1;
  while (!event.done()) ++polls;
  EXPECT_GT(polls, 1);
  EXPECT_EQ(out.get()[1], 101);
}

TEST(BrokenStreams, FailureReachesWhoeverWaits) {
  Stream failing, waiting;
  const OnDevice<int> in(failing, inputs()), out(failing, kInputs);
  Event event;
  barrier_for_some(failing, in.data(), out.data(), true);
  failing.record(event);
  waiting.wait(event);
  EXPECT_THROW(waiting.synchronize(), Error);
  EXPECT_THROW(event.synchronize(), Error);
  EXPECT_THROW(failing.synchronize(), Error);
}

TEST(BrokenStreams, SeveralHostThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&right, t] {
      for (int i = 0; i < 20; ++i) {
        if (t == 3) {
          right += complaint(warp_sum, true, 5).empty() ? 0 : 1;
        } else {
          right += run(reverse, false)[2] == 161 ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 80);
}

TEST(BrokenStreams, FreeingMemoryWaitsForWork) {
  Stream stream;
  const OnDevice<int> in(stream, inputs()), out(stream, kInputs);
  {
    const OnDevice<int> between(stream, kInputs);
    copy_elements(stream, in.data(), between.data(), 64);
    copy_elements(stream, between.data(), out.data(), 64);
  }
  EXPECT_EQ(out.get()[63], 163);
}

void fail_alone() {
  Stream stream;
  const OnDevice<int> in(stream, inputs());
  const OnDevice<int> out(stream, kInputs);
  barrier_for_some(stream, in.data(), out.data(), true);
}

TEST(BrokenStreamsDeathTest, FailureThatNoOneWaitsFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(fail_alone(),
      "a stream ends with a failure that no one waited for: kernel barrier_for_some");
}

TEST(BrokenStreamsDeathTest, HostReadsDeviceMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Stream stream;
  const OnDevice<int> in(stream, inputs());
  EXPECT_DEATH(EXPECT_EQ(in.data()[3], 103), "the host, or a copy of a stream, touches byte 12 of a buffer of 1024 bytes");
}

TEST(BrokenStreams, CopyOutsideABuffer) {
  Stream stream;
  const DeviceBuffer buffer(16);
  std::vector<int> values(8);
  EXPECT_THROW(stream.copy_to_device(buffer.address(), std::as_bytes(std::span(values))), Error);
  EXPECT_THROW(stream.copy_to_host(std::as_writable_bytes(std::span(values)), values.data()), Error);
  EXPECT_THROW(stream.copy_on_device(buffer.address() + 4, buffer.address(), 8), Error);
}

}  // namespace
}  // namespace tierpack::kernels::cuda

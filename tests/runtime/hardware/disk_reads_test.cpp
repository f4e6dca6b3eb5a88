#include "runtime/hardware/disk_reads.h"

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "runtime/hardware/read_queue.h"
#include "tests/support/temp_directory.h"

namespace tierpack::hardware {
namespace {

using namespace testing_support;

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct Alignment {
  void operator()(std::byte* memory) const { std::free(memory); }
};

// Every way to read gives every byte of the file to the slot that asked.
TEST(ReadQueue, EverySlotGetsItsBytes) {
  const TempDirectory directory;
  File file = make_probe_file(directory.path(), 4 * kMiB);
  std::vector<std::byte> whole(4 * kMiB);
  {
    std::unique_ptr<std::byte, Alignment> aligned(static_cast<std::byte*>(std::aligned_alloc(4096, whole.size())));
    file.read_at(0, {aligned.get(), whole.size()});
    std::memcpy(whole.data(), aligned.get(), whole.size());
  }
  EXPECT_NE(std::count(whole.begin(), whole.end(), std::byte{0}), static_cast<ptrdiff_t>(whole.size()));

  constexpr uint32_t kSlots = 8, kBytes = 64 << 10;
  const std::unique_ptr<std::byte, Alignment> memory(static_cast<std::byte*>(std::aligned_alloc(4096, kSlots * kBytes)));
  for (const auto make : {make_uring_queue, make_thread_queue}) {
    const std::unique_ptr<ReadQueue> queue = make(file, memory.get(), kSlots, kBytes);
    if (!queue) continue;  // no io_uring here
    uint64_t offsets[kSlots] = {};
    uint64_t next = 0;
    uint32_t under_way = 0, finished = 0;
    for (; under_way < kSlots; ++under_way, next += kBytes) queue->submit(under_way, offsets[under_way] = next, kBytes);
    while (under_way > 0) {
      const ReadQueue::Done done = queue->wait();
      --under_way;
      ++finished;
      ASSERT_EQ(done.result, kBytes);
      EXPECT_EQ(std::memcmp(memory.get() + done.slot * kBytes, whole.data() + offsets[done.slot], kBytes), 0);
      if (next == whole.size()) continue;
      queue->submit(done.slot, offsets[done.slot] = next, kBytes);
      next += kBytes;
      ++under_way;
    }
    EXPECT_EQ(finished, whole.size() / kBytes);
  }
}

TEST(ReadQueue, EndingWaitsForReads) {
  const TempDirectory directory;
  const File file = make_probe_file(directory.path(), kMiB);
  const std::unique_ptr<std::byte, Alignment> memory(static_cast<std::byte*>(std::aligned_alloc(4096, kMiB)));
  for (const auto make : {make_uring_queue, make_thread_queue}) {
    const std::unique_ptr<ReadQueue> queue = make(file, memory.get(), 2, kMiB / 2);
    if (queue) queue->submit(1, 0, kMiB / 2);
  }
}

class DiskReads : public testing::TestWithParam<ReadOptions> {};

TEST_P(DiskReads, MeasuresEveryPattern) {
  const TempDirectory directory;
  File file = make_probe_file(directory.path(), 24 * kMiB);
  DiskReader reader(file, 24 * kMiB, GetParam());
  EXPECT_TRUE(GetParam().io_uring || !reader.io_uring());
  EXPECT_TRUE(GetParam().direct || !reader.direct());
  // Rates no machine has would mean that bytes or seconds are counted wrongly; a busy disk may answer after seconds.
  const auto plausible = [](double bytes_s) { return bytes_s > 100 && bytes_s < 1e12; };
  EXPECT_PRED1(plausible, reader.sequential(0.02));
  EXPECT_PRED1(plausible, reader.random(3 * kMiB + 5, 0.02) * 3.0 * kMiB);
  EXPECT_PRED1(plausible, reader.random(4096, 0.02) * 4096);
  for (const uint64_t record : {uint64_t{4096}, 2 * kMiB, 11 * kMiB}) {
    const std::vector<double> each = reader.latencies(record, 0.01);
    ASSERT_FALSE(each.empty());
    EXPECT_PRED1(plausible, static_cast<double>(record) / (*std::min_element(each.begin(), each.end()) / 1e6));
  }
  EXPECT_PRED1(plausible, reader.sequential(0.01));  // back from pages to pieces
}

INSTANTIATE_TEST_SUITE_P(Ways, DiskReads, testing::Values(ReadOptions{}, ReadOptions{false, true}, ReadOptions{true, false}, ReadOptions{false, false}));

TEST(DiskReads, FileSmallerThanARecord) {
  const TempDirectory directory;
  File file = make_probe_file(directory.path(), 10000);
  DiskReader reader(file, 10000);
  EXPECT_GT(reader.random(2 * kMiB, 0.001), 0);
  EXPECT_GT(reader.sequential(0.001), 0);
  File empty = make_probe_file(directory.path(), 100);
  EXPECT_THROW(DiskReader(empty, 100), Error);
}

TEST(DiskReads, ProbeFileHasNoName) {
  const TempDirectory directory;
  const File file = make_probe_file(directory.path(), 3 * kMiB + 4000);
  EXPECT_EQ(file.size(), 3 * kMiB + 4096);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  EXPECT_THROW(make_probe_file(directory / "none", kMiB), Error);
}

TEST(DiskReads, StopsWhenInterrupted) {
  const TempDirectory directory;
  File file = make_probe_file(directory.path(), kMiB);
  DiskReader reader(file, kMiB);
  request_interrupt();
  EXPECT_THROW(reader.sequential(60), Error);
  EXPECT_THROW(reader.latencies(4096, 60), Error);
  EXPECT_THROW(make_probe_file(directory.path(), kMiB), Error);
  EXPECT_TRUE(take_interrupt());
}

}  // namespace
}  // namespace tierpack::hardware

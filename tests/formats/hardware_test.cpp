#include "formats/hardware.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/temp_directory.h"

namespace tierpack {
namespace {

using namespace testing_support;

HardwareProfile example() {
  HardwareProfile h;
  h.tool_version = "0.1.0";
  h.measured_at = "2026-01-02T03:04:05Z";
  h.cpu = {"A \"fine\" CPU", 8, 16, {"avx512", "avx2", "reference"}, 32768, 1 << 20, uint64_t{32} << 20, 2};
  h.memory = {uint64_t{64} << 30, 0, 4.25e10};
  DiskInfo disk;
  disk.path = "/data";
  disk.device = "nvme0n1";
  disk.model = "Some SSD";
  disk.link = "PCIe 3.0 x4";
  disk.link_max = "PCIe 4.0 x4";
  disk.filesystem = "ext4";
  disk.free_bytes = 1;
  disk.direct_io = true;
  disk.sequential_bytes_s = 1.0 / 3;
  disk.record_bytes = 1769472;
  disk.record_bytes_s = 3e9;
  disk.record_latency_us = 700.5;
  disk.page_reads_s = 5e5;
  disk.page_latency_us = 80;
  disk.temperature_c = 41.85;
  h.disks.push_back(disk);
  disk.path = "/";
  disk.rotational = disk.io_uring = true;
  disk.temperature_c.reset();
  h.disks.push_back(disk);
  h.gpus.push_back({"GPU", uint64_t{24} << 30, "PCIe 4.0 x8", "PCIe 4.0 x16", 1.2e10, 6e9, 4.5e11});
  h.kernels = {{"Q4_K", 3e10, 1e12}, {"Q6_K", 2.5e10, 9e11}};
  h.limits.cgroup_bytes = uint64_t{4} << 30;
  return h;
}

template <typename Action>
ErrorKind kind_of(Action action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_GT(std::string(e.what()).size(), 20u);
    return e.kind();
  }
  return ErrorKind::kInternal;
}

TEST(Hardware, WrittenAndReadBackExactly) {
  const std::string text = encode_hardware(example());
  const HardwareProfile read = parse_hardware(text, "test");
  EXPECT_EQ(encode_hardware(read), text);
  EXPECT_EQ(read.measured_at, "2026-01-02T03:04:05Z");
  EXPECT_EQ(read.cpu.model, "A \"fine\" CPU");
  EXPECT_EQ(read.cpu.isa, example().cpu.isa);
  EXPECT_EQ(read.cpu.l2_bytes, 1u << 20);
  EXPECT_EQ(read.cpu.numa_nodes, 2u);
  EXPECT_EQ(read.memory.read_bytes_s, 4.25e10);
  ASSERT_EQ(read.disks.size(), 2u);
  EXPECT_EQ(read.disks[0].sequential_bytes_s, 1.0 / 3);
  EXPECT_TRUE(read.disks[0].direct_io);
  EXPECT_FALSE(read.disks[0].io_uring);
  EXPECT_EQ(read.disks[0].link_max, "PCIe 4.0 x4");
  EXPECT_EQ(read.disks[0].temperature_c, 41.85);
  EXPECT_EQ(read.disks[1].temperature_c, std::nullopt);
  EXPECT_TRUE(read.disks[1].rotational);
  ASSERT_EQ(read.gpus.size(), 1u);
  EXPECT_EQ(read.gpus[0].pageable_bytes_s, 6e9);
  EXPECT_EQ(read.gpus[0].memory_bytes_s, 4.5e11);
  EXPECT_EQ(read.limits.cgroup_bytes, uint64_t{4} << 30);
  EXPECT_EQ(read.limits.memlock_bytes, std::nullopt);
}

TEST(Hardware, TheRateOfAGpusMemoryMayBeMissing) {
  std::string text = encode_hardware(example());
  const size_t name = text.find(R"("memory_bytes_s")");
  ASSERT_NE(name, std::string::npos) << text;
  const size_t comma = text.rfind(',', name);  // the last member of its object
  text.erase(comma, text.find('}', name) - comma);
  EXPECT_EQ(parse_hardware(text, "test").gpus[0].memory_bytes_s, 0);
}

TEST(Hardware, AnythingUnknownCanBeWritten) {
  const std::string text = encode_hardware({});
  EXPECT_EQ(encode_hardware(parse_hardware(text, "test")), text);
}

TEST(Hardware, SavedAndReadInADirectoryThatWasNotThere) {
  const TempDirectory directory;
  const std::filesystem::path path = directory / "a/b/hardware.json";
  write_hardware(path, example());
  EXPECT_EQ(encode_hardware(read_hardware(path)), encode_hardware(example()));
  EXPECT_EQ(kind_of([&] { read_hardware(directory / "none.json"); }), ErrorKind::kIo);
  EXPECT_EQ(kind_of([] { write_hardware({}, example()); }), ErrorKind::kUsage);
}

TEST(Hardware, LooksUpKernels) {
  const HardwareProfile h = example();
  ASSERT_NE(h.kernel("Q6_K"), nullptr);
  EXPECT_EQ(h.kernel("Q6_K")->decode_bytes_s, 2.5e10);
  EXPECT_EQ(h.kernel("Q8_0"), nullptr);
}

TEST(Hardware, DiskOfTheLongestPathThatHoldsIt) {
  HardwareProfile h = example();
  EXPECT_EQ(h.disk_of("/data/models/x.tierpack"), &h.disks[0]);
  EXPECT_EQ(h.disk_of("/data/"), &h.disks[0]);
  EXPECT_EQ(h.disk_of("/database"), &h.disks[1]);
  EXPECT_EQ(h.disk_of("/data/../home"), &h.disks[1]);
  h.disks.pop_back();
  EXPECT_EQ(h.disk_of("/home"), nullptr);
}

TEST(Hardware, DiskOfAnotherFilesystemIsNotIt) {
  HardwareProfile h = example();
  h.disks.erase(h.disks.begin());  // "/" is left
  EXPECT_EQ(h.disk_of("/proc"), nullptr);
  EXPECT_EQ(h.disk_of("/"), &h.disks[0]);
}

TEST(Hardware, BadContentIsCorrupt) {
  const std::string good = encode_hardware(example());
  const auto edited = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::string bad[] = {
      edited("tierpack-hardware", "tierpack-profile"),
      edited("\"cores\": 8", "\"cores\": -8"),
      edited("\"cores\": 8", "\"cores\": 8.5"),
      edited("\"cores\": 8", "\"cores\": 4294967297"),
      edited("\"cores\": 8", "\"kernels_of_truth\": 8"),
      edited("\"avx2\"", "2"),
      edited("3000000000.0", "-1"),
      edited("3000000000.0", "1e999"),
      edited("3000000000.0", "null"),
      edited("\"direct_io\": true", "\"direct_io\": 1"),
      edited("41.85", "\"warm\""),
      edited("\"path\": \"/data\"", "\"path\": \"/\""),
      edited("\"dtype\": \"Q6_K\"", "\"dtype\": \"Q4_K\""),
      edited("\"dtype\": \"Q6_K\"", "\"dtype\": \"Q6_K\", \"dtype\": \"Q6_K\""),
      edited("\"cgroup_bytes\": 4294967296", "\"cgroup_bytes\": -1"),
      edited("\"limits\": {", "\"limits\": [{"),
      good.substr(0, good.size() - 3),
      "[]",
      "",
  };
  for (const std::string& text : bad) {
    EXPECT_EQ(kind_of([&] { parse_hardware(text, "test.json"); }), ErrorKind::kCorrupt) << text;
  }
  EXPECT_EQ(kind_of([&] { parse_hardware(edited("\"version\": 1,", "\"version\": 2,"), "t"); }), ErrorKind::kUnsupported);
}

TEST(Hardware, ErrorsNameThePlace) {
  std::string text = encode_hardware(example());
  const size_t at = text.find("\"record_bytes\": 1769472");
  ASSERT_NE(at, std::string::npos);
  try {
    parse_hardware(text.replace(at, 23, "\"record_bytes\": true"), "h.json");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "h.json: 'disks' 0: 'record_bytes': expected a non-negative integer, found boolean");
  }
}

}  // namespace
}  // namespace tierpack

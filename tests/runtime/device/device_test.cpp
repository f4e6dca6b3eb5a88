#include "runtime/device/device.h"

#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

// Which suites are registered is decided at configure time (CMakeLists.txt beside this file): DeviceHost for the host
// implementation, DeviceStreams where streams work, DeviceAbsent for a CUDA build on a machine without a device.

namespace tierpack::device {
namespace {

std::vector<std::byte> pattern(size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 131 + i / 251) & 255);
  return data;
}

TEST(Device, ListOrReason) {
  const std::vector<DeviceInfo> devices = enumerate();
  if (devices.empty()) {
    EXPECT_FALSE(unavailable_reason().empty());
    return;
  }
  EXPECT_TRUE(unavailable_reason().empty());
  for (const DeviceInfo& device : devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.memory_bytes, 0u);
    EXPECT_LE(device.free_bytes, device.memory_bytes);
    EXPECT_GE(device.compute_major, 1);
  }
}

TEST(DeviceHost, HasNoDevice) {
  ASSERT_STREQ(backend_name(), "host");
  EXPECT_TRUE(enumerate().empty());
  EXPECT_NE(unavailable_reason().find("without CUDA"), std::string::npos);
}

TEST(Device, PinnedMemoryIsPageAlignedAndWritable) {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{4095}, uint64_t{4096}, uint64_t{1} << 20}) {
    PinnedBuffer buffer(bytes);
    ASSERT_EQ(buffer.bytes().size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.bytes().data()) % 4096, 0u);
    std::memset(buffer.bytes().data(), 0x5A, bytes);
    EXPECT_EQ(buffer.bytes()[bytes - 1], std::byte{0x5A});
  }
}

TEST(Device, PinnedMemoryMoves) {
  PinnedBuffer first(100);
  const std::byte* address = first.bytes().data();
  PinnedBuffer second(std::move(first));
  EXPECT_EQ(second.bytes().data(), address);
  EXPECT_EQ(first.bytes().size(), 0u);  // NOLINT: a moved-from buffer is empty
  PinnedBuffer third;
  third = std::move(second);
  EXPECT_EQ(third.bytes().data(), address);
  EXPECT_EQ(third.bytes().size(), 100u);
}

TEST(Device, EmptyBuffersAreAllowed) {
  PinnedBuffer pinned(0);
  EXPECT_TRUE(pinned.bytes().empty());
  DeviceBuffer device(0);
  EXPECT_EQ(device.size(), 0u);
}

TEST(Device, ImpossibleSizesAreCapacityErrors) {
  for (const uint64_t bytes : {std::numeric_limits<uint64_t>::max(), std::numeric_limits<uint64_t>::max() / 4 + 1}) {
    try {
      PinnedBuffer buffer(bytes);
      FAIL() << "allocated " << bytes << " bytes";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kCapacity);
      EXPECT_NE(std::string(e.what()).find(std::to_string(bytes)), std::string::npos) << e.what();
    }
  }
}

TEST(DeviceStreams, CopiesGoToTheDeviceAndBack) {
  const std::vector<std::byte> data = pattern(100000);
  PinnedBuffer from(data.size());
  std::memcpy(from.bytes().data(), data.data(), data.size());
  DeviceBuffer device(data.size() + 64);
  Stream stream;
  stream.copy_to_device(device, 64, from.bytes());
  PinnedBuffer to(data.size() - 10);
  stream.copy_to_host(to.bytes(), device, 74);
  stream.synchronize();
  EXPECT_EQ(std::memcmp(to.bytes().data(), data.data() + 10, data.size() - 10), 0);
}

TEST(DeviceStreams, CopiesAreBoundedByTheBuffer) {
  DeviceBuffer device(100);
  std::vector<std::byte> host(101);
  Stream stream;
  EXPECT_THROW(stream.copy_to_device(device, 0, Bytes(host)), Error);
  EXPECT_THROW(stream.copy_to_device(device, 100, Bytes(host).first(1)), Error);
  EXPECT_THROW(stream.copy_to_device(device, std::numeric_limits<uint64_t>::max(), Bytes(host).first(2)), Error);
  EXPECT_THROW(stream.copy_to_host(MutableBytes(host), device, 0), Error);
  EXPECT_THROW(stream.copy_to_host(MutableBytes(host).first(1), device, 100), Error);
  stream.copy_to_device(device, 100, Bytes(host).first(0));
}

TEST(DeviceStreams, EventsOrderStreams) {
  const std::vector<std::byte> data = pattern(1 << 20);
  PinnedBuffer from(data.size());
  std::memcpy(from.bytes().data(), data.data(), data.size());
  DeviceBuffer device(data.size());
  PinnedBuffer to(data.size());
  Stream up;
  Stream down;
  Event uploaded;
  up.copy_to_device(device, 0, from.bytes());
  up.record(uploaded);
  down.wait(uploaded);
  down.copy_to_host(to.bytes(), device, 0);
  Event downloaded;
  down.record(downloaded);
  downloaded.synchronize();
  EXPECT_TRUE(downloaded.done());
  EXPECT_TRUE(uploaded.done());
  EXPECT_EQ(std::memcmp(to.bytes().data(), data.data(), data.size()), 0);
  Stream moved(std::move(up));
  Event moved_event(std::move(uploaded));
  moved.record(moved_event);
  moved.synchronize();
}

TEST(DeviceAbsent, StreamsFailWithASentence) {
  try {
    Stream stream;
    FAIL() << "a stream without a device";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kCuda);
    EXPECT_NE(std::string(e.what()).find("CUDA stream"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tierpack::device

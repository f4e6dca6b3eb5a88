#include "base/zstd.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/errors.h"

namespace tierpack {
namespace {

using testing::HasSubstr;
using testing_support::Thrown;
using testing_support::thrown_by;

// Bytes that compress, but not to nothing.
std::vector<std::byte> text(size_t bytes) {
  std::mt19937 random(1);
  std::vector<std::byte> out(bytes);
  for (std::byte& b : out) b = static_cast<std::byte>('a' + random() % 4);
  return out;
}

TEST(Zstd, ComesBack) {
  for (const size_t bytes : {0, 1, 100, 4096, 1 << 20}) {
    const std::vector<std::byte> data = text(bytes);
    const std::vector<std::byte> frame = zstd_compress(data);
    EXPECT_LE(frame.size(), zstd_bound(bytes));
    EXPECT_EQ(zstd_decompress(frame, bytes, "x"), data);
    std::vector<std::byte> out(bytes);
    zstd_decompress_into(frame, out, "x");
    EXPECT_EQ(out, data);
    EXPECT_EQ(zstd_compress(data), frame);
  }
}

TEST(Zstd, MoreThanTheLimitIsRefusedBeforeItIsAllocated) {
  const std::vector<std::byte> frame = zstd_compress(text(1000));
  const Thrown thrown = thrown_by([&] { zstd_decompress(frame, 999, "some/file"); });
  EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt);
  EXPECT_THAT(thrown.message, HasSubstr("some/file"));
  // A frame with a single segment whose header promises 2^62 bytes.
  std::vector<std::byte> huge{std::byte{0x28}, std::byte{0xB5}, std::byte{0x2F}, std::byte{0xFD}, std::byte{0xE0}};
  huge.resize(13);
  huge[12] = std::byte{0x40};
  EXPECT_EQ(thrown_by([&] { zstd_decompress(huge, uint64_t{1} << 30, "x"); }).kind, ErrorKind::kCorrupt);
}

TEST(Zstd, OtherSizesThanTheBuffersAreRefused) {
  const std::vector<std::byte> frame = zstd_compress(text(1000));
  for (const size_t bytes : {0, 999, 1001}) {
    std::vector<std::byte> out(bytes);
    EXPECT_EQ(thrown_by([&] { zstd_decompress_into(frame, out, "x"); }).kind, ErrorKind::kCorrupt) << bytes;
  }
}

TEST(Zstd, CutAndLengthenedFramesAreRefused) {
  const std::vector<std::byte> frame = zstd_compress(text(1000));
  for (size_t bytes = 0; bytes < frame.size(); ++bytes) {
    const Bytes cut = Bytes(frame).first(bytes);
    EXPECT_EQ(thrown_by([&] { zstd_decompress(cut, 1000, "x"); }).kind, ErrorKind::kCorrupt) << bytes;
  }
  std::vector<std::byte> longer = frame;
  longer.push_back(std::byte{0});
  EXPECT_EQ(thrown_by([&] { zstd_decompress(longer, 1000, "x"); }).kind, ErrorKind::kCorrupt);
  std::vector<std::byte> two = frame;
  two.insert(two.end(), frame.begin(), frame.end());
  EXPECT_EQ(thrown_by([&] { zstd_decompress(two, 2000, "x"); }).kind, ErrorKind::kCorrupt);
}

// A flipped bit gives an error or other bytes, never a crash: the SHA-256 of what holds the frame tells the rest.
TEST(Zstd, DamagedFramesDoNotComeBack) {
  const std::vector<std::byte> data = text(1000);
  const std::vector<std::byte> frame = zstd_compress(data);
  size_t refused = 0;
  for (size_t i = 0; i < frame.size(); ++i) {
    std::vector<std::byte> bad = frame;
    bad[i] ^= std::byte{0x10};
    const Thrown thrown = thrown_by([&] { zstd_decompress(bad, uint64_t{1} << 20, "x"); });
    if (!thrown.kind) continue;
    EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt) << i;
    ++refused;
  }
  EXPECT_GT(refused, 5u);
  const std::vector<std::byte> noise(100, std::byte{7});
  EXPECT_EQ(thrown_by([&] { zstd_decompress(noise, 1000, "x"); }).kind, ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace tierpack

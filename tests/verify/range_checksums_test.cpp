#include "verify/range_checksums.h"

#include <random>

#include <gtest/gtest.h>

namespace tierpack::verify {
namespace {

TEST(RangeChecksums, AreTheSameHoweverTheFileIsCut) {
  std::mt19937 random(4);
  std::vector<std::byte> file(5000);
  const std::vector<ByteRange> ranges{{0, 100}, {100, 1}, {512, 2000}, {4000, 900}};
  for (const ByteRange& range : ranges) {
    for (uint64_t i = 0; i < range.bytes; ++i) file[range.offset + i] = static_cast<std::byte>(random());
  }
  for (const size_t piece_max : {1, 7, 100, 511, 5000}) {
    RangeChecksums sums(ranges);
    std::vector<Xxh128> found;
    for (size_t at = 0; at < file.size();) {
      const size_t step = std::min<size_t>(piece_max, file.size() - at);
      sums.feed(
          Bytes(file).subspan(at, step),
          [&](size_t index, const Xxh128& sum) {
            EXPECT_EQ(index, found.size());
            found.push_back(sum);
          },
          [](uint64_t offset) { FAIL() << offset; });
      at += step;
    }
    ASSERT_EQ(found.size(), ranges.size());
    for (size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_EQ(found[i], xxh3_128(Bytes(file).subspan(ranges[i].offset, ranges[i].bytes))) << piece_max;
    }
  }
}

TEST(RangeChecksums, StrayBytesAreReportedWhereTheyAre) {
  std::vector<std::byte> file(300);
  for (const size_t offset : {0, 99, 150, 299}) {
    std::fill(file.begin(), file.end(), std::byte{0});
    file[offset] = std::byte{1};
    RangeChecksums sums({{100, 50}});
    std::vector<uint64_t> stray;
    sums.feed(file, [](size_t, const Xxh128&) {}, [&](uint64_t at) { stray.push_back(at); });
    EXPECT_EQ(stray, std::vector<uint64_t>{offset});
  }
}

}  // namespace
}  // namespace tierpack::verify

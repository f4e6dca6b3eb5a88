#include "base/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tierpack {
namespace {

TEST(ParseSize, ReadsBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_size("14GiB"), 14ull << 30);
  EXPECT_EQ(parse_size("14G"), 14ull << 30);
  EXPECT_EQ(parse_size("14GB"), 14'000'000'000ull);
  EXPECT_EQ(parse_size("1.5k"), 1536u);
  EXPECT_EQ(parse_size("512 MiB"), 512ull << 20);
  EXPECT_EQ(parse_size("77"), 77u);
  EXPECT_EQ(parse_size("77B"), 77u);
}

TEST(ParseSize, RefusesWhatIsNotASize) {
  for (const char* text : {"", "GiB", "-1G", "1X", "1GiBs", "nan", "inf", "1e30G"}) {
    EXPECT_THROW(parse_size(text), Error) << text;
  }
}

TEST(FormatSize, KeepsThreeDigits) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(999), "999 B");
  EXPECT_EQ(format_size(1536), "1.50 KiB");
  EXPECT_EQ(format_size(80ull << 30), "80.0 GiB");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(12), "12");
}

TEST(ByteReader, StopsAtTheEnd) {
  const std::string text("\x05\0\0\0\0\0\0\0hello", 13);
  ByteReader reader(as_bytes(text), "test", 100);
  EXPECT_EQ(reader.read_string(10, "name"), "hello");
  EXPECT_EQ(reader.remaining(), 0u);
  EXPECT_EQ(reader.position(), 113u);
  try {
    reader.read<uint32_t>("count");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kCorrupt);
    EXPECT_STREQ(e.what(), "test: count needs 4 bytes but only 0 remain at byte 113");
  }
}

TEST(ByteReader, RefusesALengthThatWouldWrap) {
  const std::string text(16, '\xff');
  ByteReader reader(as_bytes(text), "test");
  EXPECT_THROW(reader.read_string(~0ull, "name"), Error);
}

TEST(CheckedArithmetic, ReportsOverflow) {
  EXPECT_EQ(checked_add(1, 2), 3u);
  EXPECT_FALSE(checked_add(~0ull, 1));
  EXPECT_FALSE(checked_mul(1ull << 40, 1ull << 40));
  EXPECT_EQ(checked_align_up(33, 32), 64u);
  EXPECT_FALSE(checked_align_up(~0ull - 5, 32));
}

TEST(Hex, RoundTrips) {
  std::array<std::byte, 3> bytes{};
  EXPECT_TRUE(from_hex("00fFa5", bytes));
  EXPECT_EQ(to_hex(bytes), "00ffa5");
  EXPECT_FALSE(from_hex("00ffa", bytes));
  EXPECT_FALSE(from_hex("00ffag", bytes));
}

}  // namespace
}  // namespace tierpack

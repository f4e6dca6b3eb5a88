#include "runtime/experts/route_trace.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tierpack::experts {
namespace {

RouteTraceHeader small_header() {
  RouteTraceHeader header;
  header.routing_id = Sha256::of(as_bytes("router"));
  header.experts = 8;
  header.used = 2;
  header.layers = {{1, 8, 4096}, {3, 4, 8192}};
  return header;
}

const std::vector<uint16_t> kFirst = {0, 7, 3, 2, /* layer 1 */ 1, 0, 3, 2};
const std::vector<uint16_t> kSecond = {5, 6, 2, 1};

std::vector<std::byte> small_trace() {
  std::vector<std::byte> out;
  RouteTraceWriter writer(small_header(), [&](Bytes bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); });
  writer.add({2, true, kFirst});
  writer.add({1, false, kSecond});
  writer.finish();
  EXPECT_EQ(writer.tokens(), 3u);
  return out;
}

// Reads everything; the number of tokens.
uint64_t read_through(const std::vector<std::byte>& bytes) {
  const MemorySource source(bytes, "t.trace");
  RouteTraceReader reader(source);
  RouteChunk chunk;
  uint64_t tokens = 0;
  while (reader.next(chunk)) tokens += chunk.tokens;
  return tokens;
}

void expect_refused(const std::vector<std::byte>& bytes, ErrorKind kind, const char* text) {
  try {
    read_through(bytes);
    FAIL() << "accepted; expected: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind);
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

// With a value at an offset, and the checksum that belongs to it.
template <typename T>
std::vector<std::byte> with(std::vector<std::byte> bytes, size_t offset, T value) {
  store(bytes.data() + offset, value);
  const Xxh128 digest = xxh3_128(Bytes(bytes).first(bytes.size() - 16));
  store(bytes.data() + bytes.size() - 16, digest.low);
  store(bytes.data() + bytes.size() - 8, digest.high);
  return bytes;
}

constexpr size_t kLayersAt = 12, kExpertsAt = 16, kUsedAt = 20, kLayerTable = 56, kChunks = 88, kFirstIds = 92;

TEST(RouteTrace, GivesBackWhatWasWritten) {
  const std::vector<std::byte> bytes = small_trace();
  const MemorySource source(bytes, "t.trace");
  RouteTraceReader reader(source);
  EXPECT_EQ(reader.header(), small_header());
  RouteChunk chunk;
  ASSERT_TRUE(reader.next(chunk));
  EXPECT_EQ(chunk.tokens, 2u);
  EXPECT_TRUE(chunk.begins_text);
  EXPECT_EQ(std::vector(chunk.ids.begin(), chunk.ids.end()), kFirst);
  ASSERT_TRUE(reader.next(chunk));
  EXPECT_EQ(chunk.tokens, 1u);
  EXPECT_FALSE(chunk.begins_text);
  EXPECT_EQ(std::vector(chunk.ids.begin(), chunk.ids.end()), kSecond);
  EXPECT_FALSE(reader.next(chunk));
  EXPECT_FALSE(reader.next(chunk));
}

TEST(RouteTrace, ATruncatedRecordingIsRefusedAtEveryLength) {
  const std::vector<std::byte> bytes = small_trace();
  for (size_t size = 0; size < bytes.size(); ++size) {
    expect_refused({bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size)}, ErrorKind::kCorrupt, "ends at byte");
  }
}

TEST(RouteTrace, EveryChangedByteIsFound) {
  const std::vector<std::byte> bytes = small_trace();
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::vector<std::byte> changed = bytes;
    changed[i] ^= std::byte{0x40};
    EXPECT_THROW(read_through(changed), Error) << "byte " << i;
  }
}

TEST(RouteTrace, RefusesWhatIsNoRecordingOfThisVersion) {
  const std::vector<std::byte> bytes = small_trace();
  expect_refused(with(bytes, 0, 'X'), ErrorKind::kCorrupt, "does not begin with TPTRACE");
  expect_refused(with(bytes, 8, uint32_t{2}), ErrorKind::kUnsupported, "version 2");
}

TEST(RouteTrace, RefusesImpossibleShapes) {
  const std::vector<std::byte> bytes = small_trace();
  expect_refused(with(bytes, kLayersAt, uint32_t{0}), ErrorKind::kCorrupt, "is not a model");
  expect_refused(with(bytes, kLayersAt, uint32_t{4096}), ErrorKind::kCorrupt, "does not fit the rest");
  expect_refused(with(bytes, kLayersAt, uint32_t{0xffffffff}), ErrorKind::kCorrupt, "is not a model");
  expect_refused(with(bytes, kExpertsAt, uint32_t{9}), ErrorKind::kCorrupt, "no layer has the 9 experts");
  expect_refused(with(bytes, kUsedAt, uint32_t{0}), ErrorKind::kCorrupt, "is not a model");
  expect_refused(with(bytes, kUsedAt, uint32_t{5}), ErrorKind::kCorrupt, "block 3 with 4 experts");
  expect_refused(with(bytes, kLayerTable + 8, uint64_t{0}), ErrorKind::kCorrupt, "of 0 bytes");
  expect_refused(with(bytes, kLayerTable + 16, uint32_t{1}), ErrorKind::kCorrupt, "layer 1: block 1");
}

TEST(RouteTrace, RefusesImpossibleChunks) {
  const std::vector<std::byte> bytes = small_trace();
  expect_refused(with(bytes, kChunks, uint32_t{1} << 31), ErrorKind::kCorrupt, "a chunk of 0 tokens");
  expect_refused(with(bytes, kChunks, uint32_t{70000}), ErrorKind::kCorrupt, "a chunk of 70000 tokens");
  expect_refused(with(bytes, kChunks, uint32_t{60000}), ErrorKind::kCorrupt, "within a chunk");
  expect_refused(with(bytes, kFirstIds, uint16_t{8}), ErrorKind::kCorrupt, "expert 8 of block 1 does not exist");
  expect_refused(with(bytes, kFirstIds, uint16_t{7}), ErrorKind::kCorrupt, "expert 7 of block 1 was chosen twice");
  expect_refused(with(bytes, kFirstIds + 8, uint16_t{4}), ErrorKind::kCorrupt, "expert 4 of block 3 does not exist");
  expect_refused(with(bytes, bytes.size() - 24, uint64_t{4}), ErrorKind::kCorrupt, "were promised");
  std::vector<std::byte> longer = bytes;
  longer.push_back({});
  expect_refused(longer, ErrorKind::kCorrupt, "1 bytes follow");
}

}  // namespace
}  // namespace tierpack::experts

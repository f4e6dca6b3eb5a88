// Bytes that are not a good GGUF file: each must end in an Error with a sentence, in bounded memory. The executable
// replaces operator new to know how much memory was live at most.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

#include <gtest/gtest.h>

#include "formats/gguf.h"
#include "tests/support/errors.h"
#include "tests/support/gguf_builder.h"

namespace {

std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> peak_bytes{0};

}  // namespace

void* operator new(size_t bytes) {
  void* memory = std::malloc(bytes);
  if (!memory) throw std::bad_alloc();
  const int64_t live = live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  int64_t peak = peak_bytes;
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory) live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace tierpack {
namespace {

using testing_support::GgufBuilder;
using testing_support::Thrown;
using testing_support::thrown_by;

struct Outcome {
  Thrown thrown;
  int64_t peak_bytes = 0;  // of the parse alone
};

Outcome parse(const std::vector<std::byte>& file) {
  Outcome outcome;
  const MemorySource source(file, "test.gguf");
  const int64_t before = live_bytes;
  peak_bytes = before;
  outcome.thrown = thrown_by([&] { read_gguf_header(source); });
  outcome.peak_bytes = peak_bytes - before;
  return outcome;
}

// Refused with that kind, with a message that names the file and holds `part`, and using little memory.
void expect_refused(const std::vector<std::byte>& file, ErrorKind kind, const std::string& part) {
  const Outcome outcome = parse(file);
  EXPECT_EQ(outcome.thrown.kind, kind) << outcome.thrown.message;
  EXPECT_NE(outcome.thrown.message.find("test.gguf"), std::string::npos) << outcome.thrown.message;
  EXPECT_NE(outcome.thrown.message.find(part), std::string::npos) << outcome.thrown.message;
  EXPECT_LE(outcome.peak_bytes, static_cast<int64_t>(128 * 1024 + 16 * file.size()));
}
void expect_corrupt(const std::vector<std::byte>& file, const std::string& part) {
  expect_refused(file, ErrorKind::kCorrupt, part);
}
void expect_corrupt(const GgufBuilder& builder, const std::string& part) { expect_corrupt(builder.build(), part); }

GgufBuilder example() {
  GgufBuilder b;
  b.string("general.architecture", "test").u32("a", 1).strings("tokens", {"one", "two", "three"});
  b.f32s("scores", {1, 2, 3}).boolean("yes", true).u64("b", 2);
  for (int i = 0; i < 8; ++i) b.add_tensor(fmt::format("blk.{}.weight", i), DType::kQ4_K, {256, 4});
  return b;
}

// Raw bytes of an array value: element type, count, then whatever follows.
template <typename... T>
std::vector<std::byte> bytes_of(T... values) {
  std::vector<std::byte> out;
  const auto put = [&](auto v) {
    const auto* p = reinterpret_cast<const std::byte*>(&v);
    out.insert(out.end(), p, p + sizeof v);
  };
  (put(values), ...);
  return out;
}

constexpr uint64_t kHuge[] = {~uint64_t{0},      uint64_t{1} << 63, (uint64_t{1} << 63) - 1,
                              uint64_t{1} << 62, uint64_t{1} << 61, uint64_t{1} << 60,
                              uint64_t{1} << 40, uint64_t{1} << 32, (uint64_t{1} << 32) - 1,
                              uint64_t{1} << 31, 1'000'000};

TEST(GgufHostile, EveryTruncationIsCorrupt) {
  const std::vector<std::byte> file = example().build();
  ASSERT_FALSE(parse(file).thrown.kind);
  for (size_t size = 0; size < file.size(); ++size) {
    const std::vector<std::byte> cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(size));
    const Outcome outcome = parse(cut);
    ASSERT_EQ(outcome.thrown.kind, ErrorKind::kCorrupt) << size << ": " << outcome.thrown.message;
    ASSERT_LE(outcome.peak_bytes, 200'000) << size;
  }
}

TEST(GgufHostile, TruncatedPebbleIsCorrupt) {
  const File pebble =
      File::open(TIERPACK_SOURCE_DIR "/models/pebble/pebble-24M-A5M-MTP-Q4_K_M-00001-of-00002.gguf", File::Mode::kRead);
  const uint64_t head = read_gguf_header(pebble).data_offset;
  std::vector<std::byte> bytes(head + 4096);
  pebble.read_at(0, bytes);
  for (uint64_t size = 0; size <= bytes.size(); size += 64) {
    const Outcome outcome = parse({bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size)});
    ASSERT_EQ(outcome.thrown.kind, ErrorKind::kCorrupt) << size << ": " << outcome.thrown.message;
    ASSERT_LE(outcome.peak_bytes, static_cast<int64_t>(256 * 1024 + 16 * size)) << size;
  }
}

// Any single changed byte of the head gives a header or an Error; nothing else, and never much memory.
TEST(GgufHostile, EveryChangedByteEndsWell) {
  const std::vector<std::byte> file = example().build();
  const size_t head = example().build_head().size();
  for (size_t at = 0; at < head; ++at) {
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::vector<std::byte> changed = file;
      changed[at] = static_cast<std::byte>(value);
      const Outcome outcome = parse(changed);
      ASSERT_LE(outcome.peak_bytes, static_cast<int64_t>(128 * 1024 + 16 * file.size())) << at << " " << value;
      if (outcome.thrown.kind) {
        ASSERT_TRUE(outcome.thrown.kind == ErrorKind::kCorrupt || outcome.thrown.kind == ErrorKind::kUnsupported)
            << outcome.thrown.message;
      }
    }
  }
}

TEST(GgufHostile, OtherContentIsRecognised) {
  const auto file = [](std::string_view text) {
    const Bytes bytes = as_bytes(text);
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  expect_corrupt(file("version https://git-lfs.github.com/spec/v1\noid sha256:00\n"), "Git LFS pointer");
  expect_corrupt(file("<!DOCTYPE html><html></html>"), "web page");
  expect_corrupt(file("FUGG...................."), "reversed byte order");
  expect_corrupt(file("lmgg...................."), "before GGUF");
  expect_corrupt(file(std::string(64, '\0')), "begins with zeros");
  expect_corrupt(file("PK\x03\x04...................."), "does not begin with 'GGUF'");
  expect_corrupt(file(""), "the magic number");
}

TEST(GgufHostile, OtherVersions) {
  GgufBuilder b = example();
  b.version = 0;
  expect_corrupt(b, "version 0");
  for (const uint32_t version : {1u, 4u, 0xffffu}) {
    b.version = version;
    expect_refused(b.build(), ErrorKind::kUnsupported, fmt::format("version {}", version));
  }
  for (const uint32_t version : {0x02000000u, 0x03000000u}) {
    b.version = version;
    expect_refused(b.build(), ErrorKind::kUnsupported, "big-endian");
  }
}

// CVE-2024-21836, CVE-2024-23605, issue 15711: counts that overflow when multiplied, or exhaust memory.
TEST(GgufHostile, CountsBeyondTheFile) {
  for (const uint64_t count : kHuge) {
    GgufBuilder b = example();
    b.tensor_count = count;
    expect_corrupt(b, "tensors, which cannot be");
    b = example();
    b.key_count = count;
    expect_corrupt(b, "metadata keys, which cannot be");
  }
  GgufBuilder b = example();
  b.tensor_count = 9;  // the data is then read as a tensor info
  EXPECT_TRUE(parse(b.build()).thrown.kind);
  b = example();
  b.key_count = 7;
  EXPECT_TRUE(parse(b.build()).thrown.kind);
}

// CVE-2024-23496, PR 19856: string lengths that overflow or exhaust memory.
TEST(GgufHostile, StringsBeyondTheFile) {
  for (const uint64_t length : kHuge) {
    GgufBuilder b;
    b.raw("a", 8, bytes_of(length, uint64_t{0}));
    expect_corrupt(b, "a metadata value");
    GgufBuilder list;
    list.raw("a", 9, bytes_of(int32_t{8}, uint64_t{1}, length, uint64_t{0}));
    expect_corrupt(list, "an array element");
    std::vector<std::byte> file = GgufBuilder().u32("key", 1).build();
    store(file.data() + 24, length);
    expect_corrupt(file, "a metadata key");
    file = GgufBuilder().add_tensor("t", DType::kF32, {1}).build();
    store(file.data() + 24, length);
    expect_corrupt(file, "a tensor name");
  }
}

// CVE-2024-21825: count times element size overflows.
TEST(GgufHostile, ArraysBeyondTheFile) {
  for (int32_t type = 0; type <= 12; ++type) {
    if (type == 9) continue;
    for (const uint64_t count : kHuge) {
      GgufBuilder b;
      b.raw("a", 9, bytes_of(type, count, uint64_t{0}, uint64_t{0}));
      expect_corrupt(b, fmt::format("claims {} array elements", count));
    }
  }
}

TEST(GgufHostile, NestedArraysAreUnsupported) {
  GgufBuilder b;
  b.raw("a", 9, bytes_of(int32_t{9}, uint64_t{1}, int32_t{4}, uint64_t{1}, uint32_t{7}));
  expect_refused(b.build(), ErrorKind::kUnsupported, "array of arrays");
}

TEST(GgufHostile, ValueTypesOutsideTheTable) {
  for (const int32_t type : {-1, 13, 255, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    GgufBuilder b;
    b.raw("a", type, bytes_of(uint64_t{0}));
    expect_corrupt(b, fmt::format("is {}, which is no GGUF value type", type));
    GgufBuilder list;
    list.raw("a", 9, bytes_of(type, uint64_t{1}, uint64_t{0}));
    expect_corrupt(list, fmt::format("is {}, which is no GGUF value type", type));
  }
}

// Many array elements cost memory even where the file really holds them.
TEST(GgufHostile, ElementsOfAllArraysTogetherAreBounded) {
  GgufBuilder b;
  const std::vector<uint8_t> half(GgufLimits::kArrayElements / 2 + 1);
  b.u8s("a", half).u8s("b", half);
  const Outcome outcome = parse(b.build());
  EXPECT_EQ(outcome.thrown.kind, ErrorKind::kCorrupt);
  EXPECT_NE(outcome.thrown.message.find("array elements"), std::string::npos) << outcome.thrown.message;
}

TEST(GgufHostile, KeysAreUniquePlainText) {
  expect_corrupt(GgufBuilder().u32("a", 1).u32("b", 1).u8("a", 1), "'a' appears twice");
  expect_corrupt(GgufBuilder().u32("", 1), "is empty");
  expect_corrupt(GgufBuilder().u32(std::string_view("a\0b", 3), 1), "not plain text");
  expect_corrupt(GgufBuilder().u32("a\x1b[31m", 1), "not plain text");
  expect_corrupt(GgufBuilder().u32("\xff", 1), "not plain text");
  expect_corrupt(GgufBuilder().u32(std::string(70000, 'k'), 1), "more than the limit of 65535");
}

TEST(GgufHostile, TensorNamesAreUniquePlainText) {
  expect_corrupt(GgufBuilder().add_tensor("t", DType::kF32, {1}).add_tensor("t", DType::kF32, {1}),
                 "two tensors are named 't'");
  expect_corrupt(GgufBuilder().add_tensor("", DType::kF32, {1}).u32("x", 1), "is empty");
  expect_corrupt(GgufBuilder().add_tensor(std::string("t\0", 2), DType::kF32, {1}), "not plain text");
  expect_corrupt(GgufBuilder().add_tensor("t\n", DType::kF32, {1}), "not plain text");
  expect_corrupt(GgufBuilder().add_tensor(std::string(256, 'n'), DType::kF32, {1}), "more than the limit of 255");
}

// A hash set keeps names linear: a quarter of a million of them in a moment.
TEST(GgufHostile, ManyNamesTakeLinearTime) {
  GgufBuilder b;
  for (uint64_t i = 0; i < 100'000; ++i) {
    b.tensors.push_back({fmt::format("t{}", i), 0, {1}, std::vector<std::byte>(4), i * 32});
  }
  EXPECT_FALSE(parse(b.build()).thrown.kind);
  b.tensors.push_back(b.tensors.front());
  EXPECT_TRUE(parse(b.build()).thrown.kind);
}

GgufBuilder one_tensor(int32_t type, std::vector<uint64_t> shape, uint64_t offset = 0) {
  GgufBuilder b;
  b.tensors.push_back({"t", type, std::move(shape), std::vector<std::byte>(64), offset});
  return b;
}

// CVE-2024-21802 and its sisters: dimensions without a check.
TEST(GgufHostile, Dimensions) {
  expect_corrupt(one_tensor(0, {1, 1, 1, 1, 1}), "5 dimensions");
  std::vector<std::byte> file = one_tensor(0, {1}).build();
  for (const uint32_t dims : {5u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    store(file.data() + 24 + 8 + 1, dims);
    expect_corrupt(file, fmt::format("{} dimensions", dims));
  }
  for (size_t zero = 0; zero < 4; ++zero) {
    std::vector<uint64_t> shape{2, 2, 2, 2};
    shape[zero] = 0;
    expect_corrupt(one_tensor(0, shape), fmt::format("dimension {} is 0", zero));
  }
}

// CVE-2026-33298, issue 27203, PR 24759: products that wrap to something small.
TEST(GgufHostile, SizesThatWrap) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  for (const std::vector<uint64_t>& shape : {std::vector<uint64_t>{kMax, 2},
                                             {uint64_t{1} << 32, uint64_t{1} << 32},
                                             {uint64_t{1} << 63},
                                             {~uint64_t{0}},
                                             {1, ~uint64_t{0}, 2},
                                             {uint64_t{1} << 21, uint64_t{1} << 21, uint64_t{1} << 22, 1},
                                             {3, 6148914691236517206u}}) {
    expect_corrupt(one_tensor(0, shape), "the product of the dimensions overflows");
  }
  expect_corrupt(one_tensor(0, {uint64_t{1} << 62}), "the size in bytes overflows");
  expect_corrupt(one_tensor(0, {uint64_t{1} << 61, 2}), "the size in bytes overflows");
  expect_corrupt(one_tensor(28, {uint64_t{1} << 61}), "the size in bytes overflows");
  expect_corrupt(one_tensor(0, {(uint64_t{1} << 62) - 1}), "bytes at offset 0");
  expect_corrupt(one_tensor(24, {kMax}), "bytes at offset 0");
}

// CVE-2025-53630, CVE-2026-27940: sums of sizes that overflow; CVE-2026-7482: sizes beyond the file.
TEST(GgufHostile, RangesBeyondTheFile) {
  for (const uint64_t huge : kHuge) {
    expect_corrupt(one_tensor(0, {1}, huge & ~uint64_t{31}), "at offset");
  }
  expect_corrupt(one_tensor(0, {17}), "68 bytes at offset 0");
  expect_corrupt(one_tensor(0, {16}, 32), "64 bytes at offset 32");
  GgufBuilder b;
  for (int i = 0; i < 4; ++i) {
    b.tensors.push_back({fmt::format("t{}", i), 24, {uint64_t{1} << 62}, {}, static_cast<uint64_t>(i) << 62});
  }
  expect_corrupt(b, "at offset 0");
}

TEST(GgufHostile, OffsetsThatOverlapOrAreNotAligned) {
  expect_corrupt(one_tensor(0, {1}, 4), "not a multiple of the alignment 32");
  GgufBuilder b;
  b.add_tensor("a", DType::kF32, {16}).add_tensor("b", DType::kF32, {16}).add_tensor("c", DType::kF32, {16});
  b.tensors[2].offset = 32;
  expect_corrupt(b, "the data of tensors 'a' and 'c' overlap");
  b.tensors[2].offset = 64;
  expect_corrupt(b, "overlap");
  b.tensors[2].offset = 0;
  expect_corrupt(b, "overlap");
}

TEST(GgufHostile, TensorTypes) {
  for (const int32_t type : {-1, 4, 5, 31, 36, 38, 43, 97, 139, 212, 1000, std::numeric_limits<int32_t>::min(),
                             std::numeric_limits<int32_t>::max()}) {
    expect_refused(one_tensor(type, {256}).build(), ErrorKind::kUnsupported, fmt::format("type {}", type));
  }
  expect_corrupt(one_tensor(12, {255}), "not whole blocks of 256 (Q4_K)");
  expect_corrupt(one_tensor(2, {16, 2}), "not whole blocks of 32 (Q4_0)");
}

// PR 26318: an alignment key of another type.
TEST(GgufHostile, Alignments) {
  for (const uint32_t bad : {0u, 1u, 4u, 24u, 33u, 1u << 21, 1u << 31, 0xffffffffu}) {
    expect_corrupt(GgufBuilder().u32("general.alignment", bad).add_tensor("t", DType::kF32, {1}),
                   fmt::format("general.alignment is {}", bad));
  }
  expect_corrupt(GgufBuilder().u64("general.alignment", 32), "must be a u32");
  expect_corrupt(GgufBuilder().i32("general.alignment", 32), "must be a u32");
  expect_corrupt(GgufBuilder().string("general.alignment", "32"), "must be a u32");
  expect_corrupt(GgufBuilder().u32s("general.alignment", {32}), "must be a u32");
}

// A padded data section that would begin behind the end.
TEST(GgufHostile, HeadWithoutData) {
  GgufBuilder b;
  b.set_alignment(1 << 20).add_tensor("t", DType::kF32, {1});
  std::vector<std::byte> file = b.build();
  file.resize(1000);
  expect_corrupt(file, "ends before its tensor data begins");
}

}  // namespace
}  // namespace tierpack

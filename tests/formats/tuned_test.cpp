#include "formats/tuned.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/temp_directory.h"

namespace tierpack {
namespace {

TunedEntry entry(const char* model, const char* cpu, uint32_t cores, uint32_t threads) {
  return {Sha256::of(as_bytes(model)), cpu, cores, threads, 256, "avx2", 12.5, 1.0 / 3, "0.1.0", "2026-01-02T03:04:05Z"};
}

template <typename Action>
ErrorKind kind_of(Action action) {
  try {
    action();
  } catch (const Error& e) {
    return e.kind();
  }
  return ErrorKind::kInternal;
}

TEST(Tuned, WrittenAndReadBackExactly) {
  TunedFile file;
  file.set(entry("a", "CPU \"1\"", 8, 7));
  file.set(entry("b", "CPU \"1\"", 8, 8));
  const testing_support::TempDirectory directory;
  write_tuned(directory / "state/tuned.json", file);
  const TunedFile read = read_tuned(directory / "state/tuned.json");
  EXPECT_EQ(encode_tuned(read), encode_tuned(file));
  ASSERT_EQ(read.entries.size(), 2u);
  EXPECT_EQ(read.entries[0].prefill_tokens_s, 1.0 / 3);
  EXPECT_EQ(read.entries[0].chunk, 256u);
  EXPECT_EQ(read.entries[0].isa, "avx2");
  EXPECT_EQ(kind_of([&] { write_tuned({}, file); }), ErrorKind::kUsage);
}

TEST(Tuned, HoldsForOneModelProcessorAndNumberOfCores) {
  TunedFile file;
  file.set(entry("a", "CPU", 8, 7));
  file.set(entry("a", "CPU", 4, 3));
  const Sha256Digest a = Sha256::of(as_bytes("a"));
  ASSERT_NE(file.find(a, "CPU", 8), nullptr);
  EXPECT_EQ(file.find(a, "CPU", 8)->threads, 7u);
  EXPECT_EQ(file.find(a, "CPU", 4)->threads, 3u);
  EXPECT_EQ(file.find(a, "CPU", 2), nullptr);
  EXPECT_EQ(file.find(a, "Other", 8), nullptr);
  EXPECT_EQ(file.find(Sha256::of(as_bytes("b")), "CPU", 8), nullptr);
  file.set(entry("a", "CPU", 8, 5));
  EXPECT_EQ(file.entries.size(), 2u);
  EXPECT_EQ(file.find(a, "CPU", 8)->threads, 5u);
}

TEST(Tuned, BadContentIsCorrupt) {
  TunedFile file;
  file.set(entry("a", "CPU", 8, 7));
  const std::string good = encode_tuned(file);
  const auto edited = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  TunedFile twice = file;
  twice.entries.push_back(file.entries[0]);
  const std::string bad[] = {
      edited("tierpack-tuned", "tierpack-hardware"),
      edited("\"threads\": 7", "\"threads\": 0"),
      edited("\"threads\": 7", "\"threads\": 1025"),
      edited("\"chunk\": 256", "\"chunk\": 4097"),
      edited("\"chunk\": 256", "\"chunk\": -1"),
      edited("\"cores\": 8", "\"cores\": \"8\""),
      edited("12.5", "-12.5"),
      edited("12.5", "1e999"),
      edited("\"avx2\"", "[]"),
      edited(file.entries[0].routing_id.hex(), "12"),
      edited("\"entries\": [", "\"entries\": {\"a\": ["),
      encode_tuned(twice),
      good.substr(0, good.size() - 3),
      "",
  };
  for (const std::string& text : bad) {
    EXPECT_EQ(kind_of([&] { parse_tuned(text, "tuned.json"); }), ErrorKind::kCorrupt) << text;
  }
  EXPECT_EQ(kind_of([&] { parse_tuned(edited("\"version\": 1", "\"version\": 2"), "t"); }), ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace tierpack

#include "formats/lock.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tierpack {
namespace {

const std::string kHash(64, 'a');

template <typename Action>
std::pair<ErrorKind, std::string> error_of(Action action) {
  try {
    action();
  } catch (const Error& e) {
    return {e.kind(), e.what()};
  }
  return {ErrorKind::kInternal, "no error"};
}

Lock example() {
  Lock lock;
  lock.source = "hf:org/name";
  lock.endpoint = "https://huggingface.co";
  lock.revision = "0123456789012345678901234567890123456789";
  lock.files.push_back({"b/model.gguf", 1ull << 40, Sha256Digest::from_hex(kHash), "hub", {}, "https://x/b"});
  lock.files.push_back(
      {"README.md", 12, Sha256Digest::from_hex(kHash), "observed", std::string(40, '0'), "https://x/r"});
  return lock;
}

TEST(Lock, WrittenAndReadBack) {
  const std::string text = encode_lock(example());
  const Lock read = parse_lock(text, "test");
  EXPECT_EQ(read.source, "hf:org/name");
  EXPECT_EQ(read.endpoint, "https://huggingface.co");
  EXPECT_EQ(read.revision, example().revision);
  ASSERT_EQ(read.files.size(), 2u);
  EXPECT_EQ(read.files[0].path, "README.md");  // sorted
  EXPECT_EQ(read.files[0].git_sha1, std::string(40, '0'));
  EXPECT_EQ(read.files[1].path, "b/model.gguf");
  EXPECT_EQ(read.files[1].size, 1ull << 40);
  EXPECT_EQ(read.files[1].hash_origin, "hub");
  EXPECT_EQ(read.files[1].sha256.hex(), kHash);
  EXPECT_EQ(read.files[1].url, "https://x/b");
  EXPECT_FALSE(read.files[1].git_sha1);
  EXPECT_EQ(encode_lock(read), text);
}

TEST(Lock, SavedAtomicallyAndRead) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / kLockFileName;
  write_lock(path, example());
  EXPECT_EQ(encode_lock(read_lock(path)), encode_lock(example()));
  std::filesystem::remove(path);
}

// Each edit of a good lock file must be refused.
TEST(Lock, BadContentIsCorrupt) {
  const std::string good = encode_lock(example());
  const auto edited = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::string bad[] = {
      edited("tierpack-lock", "other"),
      edited("\"README.md\"", "\"../README.md\""),
      edited("\"README.md\"", "\"/etc/passwd\""),
      edited("\"README.md\"", "\"b/model.gguf\""),  // twice
      edited("\"README.md\"", "\"b\""),             // a file and a folder
      edited("\"README.md\"", "3"),
      edited(kHash, kHash.substr(1)),
      edited("\"observed\"", "\"rumour\""),
      edited(std::string(40, '0'), std::string(39, '0')),
      edited(": 12,", ": -12,"),
      edited(": 12,", ": 18446744073709551615,"),
      edited(": 12,", ": 1e3,"),
      edited("https://x/r", "https://x/r\\nHost: evil"),
      edited("\"files\": [", "\"files\": [1,"),
      edited("\"revision\"", "\"revisions\""),
      good.substr(0, good.size() / 2),
      "[]",
      "",
  };
  for (const std::string& text : bad) {
    const auto [kind, message] = error_of([&] { parse_lock(text, "test.json"); });
    EXPECT_EQ(kind, ErrorKind::kCorrupt) << message << "\n" << text;
    EXPECT_EQ(message.rfind("test.json: ", 0), 0u) << message;
  }
  EXPECT_EQ(error_of([&] { parse_lock(edited("\"version\": 1", "\"version\": 2"), "t"); }).first,
            ErrorKind::kUnsupported);
}

TEST(Lock, Sha256SumsLines) {
  const auto files = parse_sha256sums(kHash + "  ./b.gguf\r\n\n# note\n" + kHash + " *dir/a b.gguf", "SHA256SUMS");
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].path, "b.gguf");
  EXPECT_EQ(files[1].path, "dir/a b.gguf");
  EXPECT_EQ(files[0].hash_origin, "sums");
  EXPECT_EQ(files[0].size, 0u);
  const auto tagged = parse_sha256sums("SHA256 (dir/a (b).gguf) = " + kHash + "\n", "SHA256SUMS");
  ASSERT_EQ(tagged.size(), 1u);
  EXPECT_EQ(tagged[0].path, "dir/a (b).gguf");
  for (const std::string& bad : {"SHA256 () = " + kHash, "SHA256 (a) = " + kHash.substr(1), "SHA512 (a) = " + kHash,
                                 "SHA256 (../a) = " + kHash, kHash + " a", kHash + "\ta", kHash, kHash.substr(1) + "   a", kHash + "  ../a",
                                 kHash + "  a\n" + kHash + "  a", "\\" + kHash + "  a\\nb"}) {
    EXPECT_EQ(error_of([&] { parse_sha256sums(bad, "SHA256SUMS"); }).first, ErrorKind::kCorrupt) << bad;
  }
}

TEST(Lock, SafeRelativePaths) {
  for (const char* good : {"a", "a/b/c.gguf", "..a", "a..b", ".hidden", "ünïcode/文件", "a b"}) {
    EXPECT_TRUE(is_safe_relative_path(good)) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"), std::string("."),
        std::string("a/./b"), std::string(".."), std::string("../a"), std::string("a/.."), std::string("a\\b"),
        std::string("C:a"), std::string("c:/a"), std::string("a\nb"), std::string("a\0b", 3), std::string("a\x7f"),
        std::string(256, 'x'), std::string("a/") + std::string(256, 'x')}) {
    EXPECT_FALSE(is_safe_relative_path(bad)) << bad;
  }
}

}  // namespace
}  // namespace tierpack

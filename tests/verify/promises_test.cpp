#include "verify/promises.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "formats/lock.h"
#include "tests/support/errors.h"
#include "tests/support/temp_directory.h"

namespace tierpack::verify {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_support::TempDirectory;
using testing_support::thrown_by;
using testing_support::write_file;

std::string sums_line(const std::string& content, const std::string& name) {
  return Sha256::of(as_bytes(content)).hex() + "  " + name + "\n";
}

void write_lock_of(const fs::path& directory, const std::string& name, const std::string& content) {
  Lock lock;
  lock.source = "hf:org/name";
  lock.endpoint = "https://example.org";
  lock.files.push_back({name, content.size(), Sha256::of(as_bytes(content)), "hub", std::nullopt, "https://example.org/x"});
  write_lock(directory / kLockFileName, lock);
}

TEST(Promises, NoneIsNone) {
  const TempDirectory dir;
  EXPECT_FALSE(find_reference(dir.path()).has_value());
}

TEST(Promises, LockAndSumsAreJoined) {
  const TempDirectory dir;
  write_file(dir / kSumsFileName, sums_line("one", "a.gguf") + sums_line("two", "b.gguf"));
  write_lock_of(dir.path(), "a.gguf", "one");
  const Reference reference = *find_reference(dir.path());
  EXPECT_EQ(reference.origins.size(), 2u);
  ASSERT_EQ(reference.files.size(), 2u);
  EXPECT_EQ(reference.find("a.gguf")->bytes, 3u);
  EXPECT_FALSE(reference.find("b.gguf")->bytes.has_value());
  EXPECT_EQ(reference.find("b.gguf")->sha256, Sha256::of(as_bytes("two")));
  EXPECT_EQ(reference.find("c.gguf"), nullptr);
}

TEST(Promises, ContradictionIsCorrupt) {
  const TempDirectory dir;
  write_file(dir / kSumsFileName, sums_line("one", "a.gguf"));
  write_lock_of(dir.path(), "a.gguf", "other");
  const auto thrown = thrown_by([&] { find_reference(dir.path()); });
  EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt);
  EXPECT_THAT(thrown.message, HasSubstr("a.gguf"));
}

TEST(Promises, NearestDirectoryAboveCounts) {
  const TempDirectory dir;
  fs::create_directories(dir / "x/y/z");
  write_file(dir / kSumsFileName, sums_line("one", "x/y/z/a.gguf"));
  const auto found = find_reference_above(dir / "x/y/z", 3);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(fs::canonical(found->directory), fs::canonical(dir.path()));
  EXPECT_FALSE(find_reference_above(dir / "x/y/z", 2).has_value());
  write_file(dir / "x/y/SHA256SUMS", sums_line("two", "z/a.gguf"));
  EXPECT_EQ(find_reference_above(dir / "x/y/z", 3)->reference.files[0].path, "z/a.gguf");
}

TEST(Promises, RubbishIsCorrupt) {
  const TempDirectory dir;
  for (const char* text : {"", "hello\n", "{}", "{\"format\": 3}", "0123  a.gguf\n"}) {
    write_file(dir / kSumsFileName, text);
    EXPECT_EQ(thrown_by([&] { find_reference(dir.path()); }).kind, ErrorKind::kCorrupt) << text;
  }
}

}  // namespace
}  // namespace tierpack::verify

#include "repack/part_directory.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/errors.h"
#include "tests/support/temp_directory.h"

namespace tierpack::repack {
namespace {

namespace fs = std::filesystem;
using testing_support::read_file;
using testing_support::TempDirectory;
using testing_support::thrown_by;
using testing_support::write_file;

TEST(PartDirectory, IsNamedOnlyWhenPublished) {
  const TempDirectory dir;
  {
    PartDirectory part(dir / "deep/er/a");
    write_file(part.path() / "x", "1");
    EXPECT_FALSE(fs::exists(dir / "deep/er/a"));
    part.publish(false);
  }
  EXPECT_EQ(read_file(dir / "deep/er/a/x"), "1");
  EXPECT_FALSE(fs::exists(dir / "deep/er/a.part"));
}

TEST(PartDirectory, LeavesNothingWhenAbandoned) {
  const TempDirectory dir;
  {
    const PartDirectory part(dir / "a");
    write_file(part.path() / "x", "1");
  }
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(PartDirectory, KeepsWhatItFindsAndWhatItIsToldTo) {
  const TempDirectory dir;
  {
    PartDirectory part(dir / "a");
    write_file(part.path() / "x", "1");
    part.keep();
  }
  {
    PartDirectory part(dir / "a");
    EXPECT_EQ(read_file(part.path() / "x"), "1");
    part.keep();
    part.keep(false);
  }
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(PartDirectory, SharesAreWrittenAtTheSameTime) {
  const TempDirectory dir;
  PartDirectory one(dir / "a", PartDirectory::Lock::kShared);
  PartDirectory two(dir / "a", PartDirectory::Lock::kShared);
  EXPECT_EQ(thrown_by([&] { const PartDirectory alone(dir / "a"); }).kind, ErrorKind::kUsage);
  one.keep();
  two.keep();
  EXPECT_TRUE(fs::exists(dir / "a.part"));
}

TEST(PartDirectory, NeverReplacesUnasked) {
  const TempDirectory dir;
  PartDirectory part(dir / "a");
  fs::create_directories(dir / "a");
  write_file(dir / "a/x", "old");
  EXPECT_EQ(thrown_by([&] { part.publish(false); }).kind, ErrorKind::kIo);
  EXPECT_EQ(read_file(dir / "a/x"), "old");
  write_file(part.path() / "x", "new");
  part.publish(true);
  EXPECT_EQ(read_file(dir / "a/x"), "new");
  EXPECT_FALSE(fs::exists(dir / "a.part"));
}

TEST(PartDirectory, OneWriterAtATime) {
  const TempDirectory dir;
  {
    const PartDirectory part(dir / "a");
    EXPECT_EQ(thrown_by([&] { const PartDirectory second(dir / "a"); }).kind, ErrorKind::kUsage);
    EXPECT_TRUE(fs::exists(part.path()));
  }
  const PartDirectory again(dir / "a");
}

TEST(PartDirectory, RemovesOnlyPlainFiles) {
  const TempDirectory dir;
  fs::create_directories(dir / "a.part/folder");
  {
    PartDirectory part(dir / "a");
    EXPECT_EQ(thrown_by([&] { part.clear(); }).kind, ErrorKind::kUsage);
  }
  EXPECT_TRUE(fs::exists(dir / "a.part/folder"));
  fs::remove(dir / "a.part/folder");
  write_file(dir / "precious", "x");
  fs::create_symlink(dir / "precious", dir / "a.part/link");
  {
    PartDirectory part(dir / "a");
    part.clear();
    EXPECT_TRUE(fs::is_empty(part.path()));
  }
  EXPECT_EQ(read_file(dir / "precious"), "x");
  EXPECT_FALSE(fs::exists(dir / "a.part"));
  // A link in the part's place is not followed.
  fs::create_directories(dir / "elsewhere");
  write_file(dir / "elsewhere/x", "x");
  fs::create_directory_symlink(dir / "elsewhere", dir / "a.part");
  EXPECT_EQ(thrown_by([&] { const PartDirectory part(dir / "a"); }).kind, ErrorKind::kIo);
  EXPECT_EQ(read_file(dir / "elsewhere/x"), "x");
}

}  // namespace
}  // namespace tierpack::repack

#include "base/file.h"

#include <unistd.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tierpack {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / ("tierpack-file-test-" + std::to_string(::getpid()));
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  fs::path directory_;
};

TEST_F(FileTest, WritesAWholeFileOrNone) {
  const fs::path path = directory_ / "a.json";
  write_file_atomically(path, as_bytes("one"));
  write_file_atomically(path, as_bytes("three"));
  EXPECT_EQ(read_text_file(path, 100), "three");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 1);
  EXPECT_THROW(write_file_atomically(directory_ / "missing" / "b", as_bytes("x")), Error);
}

TEST_F(FileTest, WhatWasPlantedUnderATemporaryNameIsNotWrittenInto) {
  const fs::path path = directory_ / "a.json";
  const fs::path temporary = path.string() + ".tmp-" + std::to_string(::getpid());
  write_file_atomically(directory_ / "victim", as_bytes("precious"));
  fs::create_hard_link(directory_ / "victim", temporary);
  write_file_atomically(path, as_bytes("one"));
  EXPECT_EQ(read_text_file(directory_ / "victim", 100), "precious");
  fs::create_symlink(directory_ / "victim", temporary);
  write_file_atomically(path, as_bytes("two"));
  EXPECT_EQ(read_text_file(directory_ / "victim", 100), "precious");
  EXPECT_EQ(read_text_file(path, 100), "two");
}

TEST_F(FileTest, NeverWritesThroughASymbolicLink) {
  fs::create_symlink("/etc/hostname", directory_ / "link");
  EXPECT_THROW(File::open(directory_ / "link", File::Mode::kCreateOrTruncate), Error);
  EXPECT_THROW(File::open(directory_ / "link", File::Mode::kReadWrite), Error);
  EXPECT_NO_THROW(File::open(directory_ / "link", File::Mode::kRead));
}

TEST_F(FileTest, ReadsPastTheEndAreErrors) {
  const fs::path path = directory_ / "short";
  write_file_atomically(path, as_bytes("12345"));
  const File file = File::open(path, File::Mode::kRead);
  std::byte out[4];
  file.read_at(1, out);
  EXPECT_THROW(file.read_at(2, out), Error);
  EXPECT_THROW(read_text_file(path, 4), Error);
}

TEST_F(FileTest, BufferedWriterAlignsAndFlushes) {
  File file = File::open(directory_ / "out", File::Mode::kCreate);
  BufferedWriter writer(file, 0, 16);
  writer.write(as_bytes("abc"));
  writer.align_to(8);
  writer.write(as_bytes(std::string(40, 'z')));
  EXPECT_EQ(writer.position(), 48u);
  writer.flush();
  EXPECT_EQ(read_text_file(directory_ / "out", 100), std::string("abc\0\0\0\0\0", 8) + std::string(40, 'z'));
}

TEST_F(FileTest, LockIsExclusive) {
  auto first = FileLock::try_acquire(directory_ / "lock");
  ASSERT_TRUE(first);
  EXPECT_FALSE(FileLock::try_acquire(directory_ / "lock"));
  first.reset();
  EXPECT_TRUE(FileLock::try_acquire(directory_ / "lock"));
}

TEST_F(FileTest, FreeSpaceOfAPathThatDoesNotExistYet) {
  EXPECT_GT(free_disk_bytes(directory_ / "not" / "yet"), 0u);
}

}  // namespace
}  // namespace tierpack

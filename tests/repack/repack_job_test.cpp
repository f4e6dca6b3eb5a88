#include "repack/repack_job.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "repack/unpack_job.h"

namespace tierpack::repack {
namespace {

namespace fs = std::filesystem;

const fs::path kPebble = fs::path(TIERPACK_SOURCE_DIR) / "models/pebble";

class RepackTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / fmt::format("tierpack-repack-test-{}", ::getpid());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  fs::path dir_;
};

TEST_F(RepackTest, PebbleComesBackByteForByte) {
  RepackOptions options;
  options.source = kPebble;
  options.target = dir_ / "pebble.tierpack";
  options.jobs = 2;
  const RepackReport report = repack(options);
  EXPECT_EQ(report.outcome, RepackReport::Outcome::kWritten);
  EXPECT_EQ(report.proved_by.size(), 2u);
  EXPECT_NE(report.proved_by[0], "");
  for (const UnpackedShard& shard : unpack({options.target, dir_ / "out", 2, ProgressStyle::kSilent})) {
    const File before = File::open(kPebble / shard.path.filename(), File::Mode::kRead);
    const File after = File::open(shard.path, File::Mode::kRead);
    EXPECT_EQ(sha256_of(before), sha256_of(after)) << shard.path;
    EXPECT_EQ(before.size(), after.size());
  }
}

}  // namespace
}  // namespace tierpack::repack

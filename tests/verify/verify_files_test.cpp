#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/error.h"
#include "tests/support/errors.h"
#include "tests/support/moe_gguf.h"
#include "tests/support/temp_directory.h"
#include "verify/verify_path.h"

namespace tierpack::verify {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_support::MoeGgufWriter;
using testing_support::read_file;
using testing_support::read_tree;
using testing_support::TempDirectory;
using testing_support::thrown_by;
using testing_support::write_file;

Report verify_at(const fs::path& path, const fs::path& against = {}) {
  VerifyOptions options;
  options.path = path;
  options.against = against.string();
  options.jobs = 2;
  return verify_path(options);
}

void write_sums(const fs::path& directory) {
  std::string sums;
  for (const auto& [name, content] : read_tree(directory)) {
    if (name.ends_with(".gguf")) sums += Sha256::of(as_bytes(content)).hex() + "  " + name + "\n";
  }
  write_file(directory / "SHA256SUMS", sums);
}

// "kind where" of every finding.
std::vector<std::string> findings_of(const Report& report) {
  std::vector<std::string> out;
  for (const Finding& item : report.findings) out.push_back(fmt::format("{} {}", finding_kind_name(item.kind), item.where));
  return out;
}

class VerifyFiles : public testing::Test {
 protected:
  void SetUp() override {
    MoeGgufWriter({.seed = 3, .shards = 3}).write(dir_ / "m", "noise");
    write_sums(dir_ / "m");
  }
  void damage(const std::string& name, size_t offset) {
    std::string content = read_file(dir_ / "m" / name);
    content.at(offset) = static_cast<char>(content.at(offset) ^ 1);
    write_file(dir_ / "m" / name, content);
  }
  TempDirectory dir_;
};

TEST_F(VerifyFiles, LinksToThemselvesDoNotEndTheReport) {
  fs::create_symlink("loop", dir_ / "m" / "loop");
  fs::create_symlink("loop.gguf", dir_ / "m" / "loop.gguf");
  const Report report = verify_at(dir_ / "m");
  EXPECT_EQ(report.proved_files, 3u);
  EXPECT_THAT(findings_of(report), testing::Contains("unreadable loop.gguf"));
}

TEST_F(VerifyFiles, WholeDirectoryIsProved) {
  const Report report = verify_at(dir_ / "m");
  EXPECT_TRUE(report.ok());
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.files, 3u);
  EXPECT_EQ(report.proved_files, 3u);
  EXPECT_GT(report.hashed_bytes, 0u);
  EXPECT_EQ(report.references.size(), 1u);
}

TEST_F(VerifyFiles, OneFlippedBitIsFound) {
  const size_t size = fs::file_size(dir_ / "m/noise-00002-of-00003.gguf");
  for (const size_t offset : {size_t{0}, size / 2, size - 1}) {
    damage("noise-00002-of-00003.gguf", offset);
    const Report report = verify_at(dir_ / "m");
    EXPECT_FALSE(report.ok());
    EXPECT_EQ(report.proved_files, 2u);
    EXPECT_THAT(findings_of(report), testing::Contains("digest noise-00002-of-00003.gguf"));
    damage("noise-00002-of-00003.gguf", offset);
  }
}

TEST_F(VerifyFiles, MissingShardIsFoundTwice) {
  fs::remove(dir_ / "m/noise-00003-of-00003.gguf");
  EXPECT_THAT(findings_of(verify_at(dir_ / "m")),
              testing::ElementsAre("structure noise-00001-of-00003.gguf", "missing noise-00003-of-00003.gguf"));
}

TEST_F(VerifyFiles, WrongSizeNeedsNoHashing) {
  // A lock knows sizes.
  const std::string content = read_file(dir_ / "m/noise-00001-of-00003.gguf");
  write_file(dir_ / "lock.json",
             fmt::format(R"({{"format": "tierpack-lock", "version": 1, "source": "hf:a/b", "endpoint": "", "revision": "",
                          "files": [{{"path": "noise-00001-of-00003.gguf", "size": {}, "sha256": "{}", "hash_origin": "hub",
                          "url": ""}}]}})",
                         content.size() + 1, Sha256::of(as_bytes(content)).hex()));
  const Report report = verify_at(dir_ / "m", dir_ / "lock.json");
  EXPECT_EQ(report.hashed_bytes, 0u);
  EXPECT_THAT(findings_of(report), testing::ElementsAre("size noise-00001-of-00003.gguf", "unlisted noise-00002-of-00003.gguf",
                                                        "unlisted noise-00003-of-00003.gguf"));
}

TEST_F(VerifyFiles, NotesDoNotFail) {
  write_file(dir_ / "m/README.md", "hello");
  write_file(dir_ / "m/x.gguf.part", "half");
  MoeGgufWriter({.seed = 4}).write(dir_ / "m", "extra");
  const Report report = verify_at(dir_ / "m");
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(findings_of(report), testing::ElementsAre("unlisted ", "unlisted extra.gguf", "unfinished x.gguf.part"));
}

TEST_F(VerifyFiles, WithoutPromisesOnlyTheStructureIsChecked) {
  fs::remove(dir_ / "m/SHA256SUMS");
  Report report = verify_at(dir_ / "m");
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(findings_of(report), testing::ElementsAre("unproved "));
  fs::resize_file(dir_ / "m/noise-00002-of-00003.gguf", 5000);
  report = verify_at(dir_ / "m");
  EXPECT_THAT(findings_of(report), testing::Contains("structure noise-00002-of-00003.gguf"));
}

TEST_F(VerifyFiles, OneFileIsJudgedByItsDirectorysSums) {
  EXPECT_EQ(verify_at(dir_ / "m/noise-00002-of-00003.gguf").proved_files, 1u);
  damage("noise-00002-of-00003.gguf", 2000);
  EXPECT_THAT(findings_of(verify_at(dir_ / "m/noise-00002-of-00003.gguf")),
              testing::ElementsAre("digest noise-00002-of-00003.gguf"));
  EXPECT_TRUE(verify_at(dir_ / "m/noise-00001-of-00003.gguf").ok());
}

TEST_F(VerifyFiles, ReferenceMayLieElsewhere) {
  fs::rename(dir_ / "m/SHA256SUMS", dir_ / "sums");
  EXPECT_EQ(verify_at(dir_ / "m", dir_ / "sums").proved_files, 3u);
  EXPECT_EQ(thrown_by([&] { verify_at(dir_ / "m", dir_ / "nothing"); }).kind, ErrorKind::kUsage);
}

TEST_F(VerifyFiles, FilesInFoldersAreFound) {
  fs::create_directories(dir_ / "m/deep/er");
  fs::rename(dir_ / "m/noise-00001-of-00003.gguf", dir_ / "m/deep/er/noise-00001-of-00003.gguf");
  fs::rename(dir_ / "m/noise-00002-of-00003.gguf", dir_ / "m/deep/er/noise-00002-of-00003.gguf");
  fs::rename(dir_ / "m/noise-00003-of-00003.gguf", dir_ / "m/deep/er/noise-00003-of-00003.gguf");
  write_sums(dir_ / "m");
  const Report report = verify_at(dir_ / "m");
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.proved_files, 3u);
}

TEST(VerifyPath, NothingThereIsBadUsage) {
  EXPECT_EQ(thrown_by([] { verify_at("/nowhere/at/all"); }).kind, ErrorKind::kUsage);
}

}  // namespace
}  // namespace tierpack::verify

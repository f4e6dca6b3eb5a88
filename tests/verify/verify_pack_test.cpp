#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/error.h"
#include "tests/support/temp_directory.h"
#include "tests/support/tiny_pack.h"
#include "verify/verify_path.h"

namespace tierpack::verify {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing_support::read_file;
using testing_support::TempDirectory;
using testing_support::TinyPack;
using testing_support::write_file;

VerifyOptions options_for(const fs::path& path, bool deep, const std::string& against = {}) {
  VerifyOptions options;
  options.path = path;
  options.against = against;
  options.deep = deep;
  options.jobs = 2;
  return options;
}

class VerifyPack : public testing::Test {
 protected:
  void SetUp() override { tiny_.write(path_); }
  Report run(bool deep = false, std::optional<fs::path> against = std::nullopt) {
    return verify_path(options_for(path_, deep, against ? against->string() : ""));
  }
  // "kind where" of every problem.
  static std::vector<std::string> problems_of(const Report& report) {
    std::vector<std::string> out;
    for (const Finding& item : report.findings) {
      if (item.is_problem()) out.push_back(fmt::format("{} {}", finding_kind_name(item.kind), item.where));
    }
    return out;
  }
  void flip(const std::string& name, size_t offset) {
    std::string content = read_file(path_ / name);
    content.at(offset) = static_cast<char>(content.at(offset) ^ 0x40);
    write_file(path_ / name, content);
  }

  TempDirectory dir_;
  const TinyPack tiny_{true};
  const fs::path path_ = dir_ / "tiny.tierpack";
};

TEST_F(VerifyPack, WholePackIsProved) {
  const Report report = run(true);
  EXPECT_TRUE(report.ok());
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.what, "pack");
  EXPECT_EQ(report.files, 8u);
  EXPECT_EQ(report.proved_files, 8u);
  EXPECT_EQ(report.records, 5u);
  EXPECT_EQ(report.pages, 3u + 15u);
  EXPECT_EQ(report.shards, 2u);
}

TEST_F(VerifyPack, EveryFlippedByteIsFound) {
  std::vector<std::string> names{kPackManifestName};
  for (const auto& [name, bytes] : tiny_.files) names.push_back(name);
  for (const std::string& name : names) {
    const size_t size = fs::file_size(path_ / name);
    // First, last, and places between that hit records, padding, pages and text.
    std::vector<size_t> offsets{0, size - 1};
    for (size_t at = 1; at < size; at += 1 + size / 23) offsets.push_back(at);
    for (const size_t at : offsets) {
      flip(name, at);
      const Report report = run();
      EXPECT_FALSE(report.ok()) << name << " byte " << at;
      flip(name, at);
    }
  }
  EXPECT_TRUE(run().ok());
}

TEST_F(VerifyPack, DamageIsNamed) {
  flip("experts.bin", 5);
  Report report = run();
  EXPECT_THAT(problems_of(report), testing::UnorderedElementsAre("record experts.bin", "digest experts.bin"));
  EXPECT_THAT(report.findings[0].message + report.findings[1].message, HasSubstr("layer 0 expert 2"));
  flip("experts.bin", 5);

  flip("experts.bin", 7430);  // between the first record and the second
  EXPECT_THAT(problems_of(run()), Contains("padding experts.bin"));
  flip("experts.bin", 7430);

  flip("rows.bin", 4096 * 4);
  report = run();
  EXPECT_THAT(problems_of(report), Contains("page rows.bin"));
  EXPECT_THAT(report.findings[0].message + report.findings[1].message, HasSubstr("table_b"));
  flip("rows.bin", 4096 * 4);

  fs::remove(path_ / "source.bin");
  fs::resize_file(path_ / "dense.bin", 100);
  EXPECT_THAT(problems_of(run()), testing::UnorderedElementsAre("missing source.bin", "size dense.bin"));
}

TEST_F(VerifyPack, DamageThatTheManifestAgreesWithIsFoundByDepth) {
  // A writer that placed bytes wrongly: checksums and digests fit, the shard does not come back.
  TinyPack wrong;
  wrong.files["experts.bin"][100] ^= std::byte{1};
  for (Record& record : wrong.manifest.records) {
    if (record.segment != Segment::kExperts) continue;
    record.checksum = xxh3_128(Bytes(wrong.files["experts.bin"]).subspan(record.offset, record.bytes));
  }
  wrong.seal();
  wrong.write(dir_ / "wrong.tierpack");
  const VerifyOptions shallow = options_for(dir_ / "wrong.tierpack", false);
  EXPECT_TRUE(verify_path(shallow).ok());
  VerifyOptions deep = shallow;
  deep.deep = true;
  EXPECT_THAT(problems_of(verify_path(deep)), testing::ElementsAre("shard tiny-00001-of-00002.gguf"));
}

TEST_F(VerifyPack, SourcesAreHeldAgainstAReference) {
  const std::string first = Sha256::of(tiny_.shards[0]).hex() + "  quants/tiny-00001-of-00002.gguf\n";
  write_file(dir_ / "sums", first + Sha256::of(tiny_.shards[1]).hex() + "  quants/tiny-00002-of-00002.gguf\n");
  EXPECT_TRUE(run(false, dir_ / "sums").findings.empty());
  write_file(dir_ / "sums", first + std::string(64, 'a') + "  quants/tiny-00002-of-00002.gguf\n");
  EXPECT_THAT(problems_of(run(false, dir_ / "sums")), testing::ElementsAre("shard tiny-00002-of-00002.gguf"));
  write_file(dir_ / "sums", first);
  const Report report = run(false, dir_ / "sums");
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.findings.size(), 1u);
}

TEST_F(VerifyPack, StrayFilesAreNoted) {
  write_file(path_ / "notes.txt", "x");
  const Report report = run();
  EXPECT_TRUE(report.ok());
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].kind, Finding::Kind::kUnlisted);
}

TEST_F(VerifyPack, ManyDamagedPlacesAreCounted) {
  std::string rows = read_file(path_ / "rows.bin");
  rows.assign(rows.size(), 'x');
  write_file(path_ / "rows.bin", rows);
  const Report report = run();
  EXPECT_EQ(report.problems(), 3u + 5u + 1u);  // units of table_a, of table_b, the digest
}

TEST_F(VerifyPack, ProfileOfAnotherIdIsFound) {
  TinyPack wrong(true);
  wrong.manifest.profile_id = Sha256::of(as_bytes("another"));
  wrong.seal();
  wrong.write(dir_ / "wrong.tierpack");
  EXPECT_FALSE(verify_path(options_for(dir_ / "wrong.tierpack", false)).ok());
}

TEST_F(VerifyPack, NameAloneMakesAPack) {
  fs::create_directories(dir_ / "empty.tierpack");
  const Report report = verify_path(options_for(dir_ / "empty.tierpack", false));
  EXPECT_EQ(report.what, "pack");
  EXPECT_FALSE(report.ok());
}

}  // namespace
}  // namespace tierpack::verify

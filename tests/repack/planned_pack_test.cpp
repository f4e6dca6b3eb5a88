#include "repack/planned_pack.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "formats/gguf.h"
#include "repack/repack_job.h"
#include "tests/support/errors.h"
#include "tests/support/temp_directory.h"

namespace tierpack::repack {
namespace {

namespace fs = std::filesystem;
using testing_support::TempDirectory;
using testing_support::thrown_by;

const fs::path kPebble = fs::path(TIERPACK_SOURCE_DIR) / "models/pebble";

// What a plan of memory and rates looks at.
void expect_same_pack(const PackManifest& planned, const PackManifest& written) {
  ASSERT_EQ(planned.dense.size(), written.dense.size());
  for (size_t i = 0; i < planned.dense.size(); ++i) {
    EXPECT_EQ(planned.dense[i].name, written.dense[i].name);
    EXPECT_EQ(planned.dense[i].dtype, written.dense[i].dtype);
    EXPECT_EQ(planned.records[planned.dense[i].record].bytes, written.records[written.dense[i].record].bytes);
  }
  ASSERT_EQ(planned.expert_layers.size(), written.expert_layers.size());
  for (size_t i = 0; i < planned.expert_layers.size(); ++i) {
    EXPECT_EQ(planned.expert_layers[i].record_bytes, written.expert_layers[i].record_bytes);
    EXPECT_EQ(planned.expert_layers[i].experts, written.expert_layers[i].experts);
    EXPECT_EQ(planned.expert_layers[i].first_record, written.expert_layers[i].first_record);
    EXPECT_EQ(planned.expert_layers[i].down.dtype, written.expert_layers[i].down.dtype);
  }
  ASSERT_EQ(planned.rows.size(), written.rows.size());
  EXPECT_EQ(planned.records.size(), written.records.size());
}

Pack repacked(const fs::path& source, const fs::path& target) {
  RepackOptions options;
  options.source = source;
  options.target = target;
  options.tool_version = "test";
  options.allow_nonfinite = true;
  repack(options);
  return Pack::open(target);
}

TEST(PlannedPack, IsThePackThatRepackWrites) {
  TempDirectory directory;
  const Pack pack = repacked(kPebble, directory / "pebble.tierpack");
  const PlannedPack planned = planned_pack(kPebble, true);
  expect_same_pack(planned.manifest, pack.manifest());
  EXPECT_TRUE(planned.routers_read);
  EXPECT_EQ(planned.manifest.routing_id, pack.manifest().routing_id);
  EXPECT_EQ(planned.config.experts, 32u);
  uint64_t bytes = 0;
  for (const PackFile& file : pack.manifest().files) bytes += file.bytes;
  EXPECT_EQ(planned.pack_bytes, bytes);
}

TEST(PlannedPack, OfFilesElsewhereNeedsTheirHeadersAlone) {
  // Counts what is read behind the header.
  class Counted final : public ByteSource {
   public:
    Counted(const File& file, uint64_t data_offset) : file_(file), data_offset_(data_offset) {}
    uint64_t size() const override { return file_.size(); }
    const std::string& name() const override { return file_.name(); }
    void read_at(uint64_t offset, MutableBytes out) const override {
      if (offset >= data_offset_) data_bytes += out.size();
      file_.read_at(offset, out);
    }
    mutable uint64_t data_bytes = 0;

   private:
    const File& file_;
    uint64_t data_offset_;
  };
  TempDirectory directory;
  const Pack pack = repacked(kPebble, directory / "pebble.tierpack");
  const GgufSource gguf = open_gguf(kPebble);
  std::vector<std::unique_ptr<Counted>> sources;
  std::vector<NamedSource> files;
  for (size_t i = 0; i < gguf.files.size(); ++i) {
    sources.push_back(std::make_unique<Counted>(gguf.files[i], gguf.headers[i].data_offset));
    files.push_back({fmt::format("{}.gguf", i + 1), sources.back().get()});
  }
  const PlannedPack planned = planned_pack_of("hub:pebble", files);
  expect_same_pack(planned.manifest, pack.manifest());
  EXPECT_FALSE(planned.routers_read);
  for (const auto& source : sources) EXPECT_EQ(source->data_bytes, 0u);
}

TEST(PlannedPack, RefusesWhatHoldsNoModel) {
  EXPECT_EQ(thrown_by([] { planned_pack_of("hub:nothing", {}); }).kind, ErrorKind::kUsage);
}

}  // namespace
}  // namespace tierpack::repack

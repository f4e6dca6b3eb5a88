#include "verify/inspection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/errors.h"
#include "tests/support/moe_gguf.h"
#include "tests/support/temp_directory.h"
#include "tests/support/tiny_pack.h"

namespace tierpack::verify {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_support::GgufBuilder;
using testing_support::MoeGguf;
using testing_support::MoeGgufWriter;
using testing_support::TempDirectory;
using testing_support::thrown_by;
using testing_support::TinyPack;

const fs::path kPebble = fs::path(TIERPACK_SOURCE_DIR) / "models/pebble";

TEST(Inspection, PebbleIsWhatItsCardSays) {
  const Inspection model = inspect_path(kPebble.string(), {});
  ASSERT_TRUE(model.config.has_value());
  EXPECT_EQ(model.config->architecture, Architecture::kQwen4Exp);
  EXPECT_EQ(model.config->layers, 6u);
  EXPECT_EQ(model.config->mtp_layers, 1u);
  EXPECT_EQ(model.files.size(), 2u);
  EXPECT_EQ(model.bytes(), 16802944u + 709824u);
  EXPECT_EQ(model.tensors.size(), model.dense.tensors + model.experts.tensors + model.rows.tensors);
  EXPECT_NEAR(static_cast<double>(model.dense.elements + model.experts.elements + model.rows.elements), 23.78e6, 0.01e6);
  EXPECT_EQ(model.layers.size(), 7u);
  EXPECT_EQ(model.layers[3].down.dtype, DType::kIQ4_NL);
  uint64_t by_type = 0;
  for (const auto& [type, item] : model.by_type) by_type += item.bytes;
  EXPECT_EQ(by_type, model.dense.bytes + model.experts.bytes + model.rows.bytes);
  uint64_t token = 0;
  for (int layer = 0; layer < 6; ++layer) token += 4 * model.layers[static_cast<size_t>(layer)].record_bytes;
  EXPECT_EQ(model.expert_bytes_per_token(), token);
}

TEST(Inspection, PackWhoseShardsAreNoGgufIsCorrupt) {
  const TempDirectory dir;
  const TinyPack tiny(true);
  tiny.write(dir / "tiny.tierpack");
  EXPECT_EQ(thrown_by([&] { inspect_path((dir / "tiny.tierpack").string(), {}); }).kind, ErrorKind::kCorrupt);
}

TEST(Inspection, UnknownArchitecturesAreStillDescribed) {
  const TempDirectory dir;
  GgufBuilder builder;
  builder.string("general.architecture", "llama").string("general.name", "other");
  builder.add_tensor("token_embd.weight", DType::kF16, {32, 4});
  builder.write(dir / "m.gguf");
  const Inspection model = inspect_path((dir / "m.gguf").string(), {});
  ASSERT_TRUE(model.config.has_value());
  EXPECT_EQ(model.config->architecture, Architecture::kOther);
  EXPECT_EQ(model.config->architecture_text, "llama");
  EXPECT_TRUE(model.layers.empty());
  EXPECT_EQ(model.dense.bytes, 256u);
}

TEST(Inspection, RemoteShardsAreAskedByName) {
  const std::vector<std::vector<std::byte>> files = MoeGgufWriter({.seed = 2, .shards = 3}).build();
  std::vector<std::string> asked;
  const RemoteOpener remote = [&](const std::string& reference) {
    asked.push_back(reference);
    const size_t index = static_cast<size_t>(reference[reference.size() - std::string("1-of-00003.gguf").size()] - '1');
    std::vector<std::unique_ptr<ByteSource>> out;
    out.push_back(std::make_unique<MemorySource>(files.at(index), reference));
    return out;
  };
  const Inspection model = inspect_path("https://example.org/m-00001-of-00003.gguf", remote);
  EXPECT_THAT(asked, testing::ElementsAre("https://example.org/m-00001-of-00003.gguf",
                                          "https://example.org/m-00002-of-00003.gguf",
                                          "https://example.org/m-00003-of-00003.gguf"));
  EXPECT_EQ(model.files.size(), 3u);
  EXPECT_EQ(model.layers.size(), 2u);
  EXPECT_EQ(thrown_by([&] { inspect_path("https://example.org/m.gguf", {}); }).kind, ErrorKind::kUsage);
}

TEST(Inspection, NothingThereIsBadUsage) {
  EXPECT_EQ(thrown_by([] { inspect_path("/nowhere/at/all", {}); }).kind, ErrorKind::kUsage);
}

TEST(ProfileCoverage, CountsUsesOfTheHottestBytes) {
  std::vector<ExpertLayer> layers(2);
  for (uint32_t i = 0; i < 2; ++i) {
    layers[i].layer = i;
    layers[i].experts = 50;
    layers[i].record_bytes = 100;
  }
  Profile profile;
  profile.layers = 2;
  profile.experts = 50;
  profile.counts.assign(100, 0);
  profile.counts[7] = 60;
  profile.counts[77] = 30;
  profile.counts[8] = 10;
  const std::vector<CoveragePoint> points = profile_coverage(layers, profile);
  EXPECT_DOUBLE_EQ(points[0].bytes_share, 0.01);
  EXPECT_DOUBLE_EQ(points[0].uses_share, 0.6);
  EXPECT_DOUBLE_EQ(points[1].uses_share, 1.0);
}

}  // namespace
}  // namespace tierpack::verify

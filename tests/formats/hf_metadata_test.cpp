#include "formats/hf_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "formats/gguf.h"
#include "formats/model_config.h"
#include "tests/support/errors.h"
#include "tests/support/hf_texts.h"

namespace tierpack {
namespace {

using testing::HasSubstr;
using testing_support::config_with;
using testing_support::no_integers;
using testing_support::small_texts;
using testing_support::thrown_by;

std::string data_file(const char* name) {
  return read_text_file(std::string(TIERPACK_SOURCE_DIR "/tests/data/hf_pebble/") + name, uint64_t{1} << 20);
}

HfCheckpointTexts pebble_texts() {
  HfCheckpointTexts texts;
  texts.config = data_file("config.json");
  texts.generation_config = data_file("generation_config.json");
  texts.tokenizer = data_file("tokenizer.json");
  texts.tokenizer_config = data_file("tokenizer_config.json");
  texts.name = "pebble-24M-A5M";
  texts.source = "hf_pebble";
  return texts;
}

Metadata pebble_gguf() {
  GgufSource source = open_gguf(TIERPACK_SOURCE_DIR "/models/pebble/pebble-24M-A5M-MTP-Q4_K_M-00001-of-00002.gguf");
  return source.metadata();
}

// The hash constants as the checkpoint stores them.
std::optional<std::vector<int64_t>> pebble_integers(std::string_view name) {
  const std::string stem = "model.language_model.layers.1.ple.ple_embedding.";
  if (name == stem + "layer_multipliers") return {{2043359076095531, 1677619451946387, 1270917961443223}};
  if (name == stem + "ngram_heads_offsets") return {{0, 4001, 8004, 12011, 16024, 20043, 24064, 28091}};
  if (name == stem + "ngram_heads_vocab_sizes") return {{4001, 4003, 4007, 4013, 4019, 4021, 4027, 4049}};
  return std::nullopt;
}

bool same_value(const MetaValue& a, const MetaValue& b) {
  return a.type == b.type && a.element_type == b.element_type && a.value == b.value;
}

// Keys of the GGUF that a checkpoint's texts do not give: about the file, or read by nobody.
bool only_in_gguf(std::string_view key) {
  return key == "general.size_label" || key == "general.file_type" || key == "qwen4exp.feed_forward_length" ||
         key.starts_with("split.");
}

void expect_equal_but_for(const Metadata& ours, const Metadata& theirs) {
  for (const auto& [key, value] : theirs.entries()) {
    if (only_in_gguf(key)) {
      EXPECT_FALSE(ours.has(key)) << key << " is no difference";
      continue;
    }
    const MetaValue* found = ours.find(key);
    ASSERT_NE(found, nullptr) << key;
    EXPECT_TRUE(same_value(*found, value)) << key << ": " << found->text(200) << " where the GGUF has " << value.text(200);
  }
  std::vector<std::string> more;
  for (const auto& [key, value] : ours.entries()) {
    if (!theirs.has(key)) more.push_back(key);
  }
  EXPECT_THAT(more, testing::UnorderedElementsAre("general.sampling.temp", "general.sampling.top_p",
                                                  "general.sampling.top_k"));
}

TEST(HfMetadata, PebbleIsTheSameAsItsGguf) {
  const Metadata theirs = pebble_gguf();
  expect_equal_but_for(metadata_from_hf(pebble_texts(), pebble_integers, true), theirs);
  // The formula gives what the tensors hold.
  const Metadata ours = metadata_from_hf(pebble_texts(), no_integers, true);
  expect_equal_but_for(ours, theirs);
  EXPECT_NEAR(ours.f64("general.sampling.temp"), 0.7, 1e-6);
  EXPECT_EQ(ours.u64("general.sampling.top_k"), 20u);
}

TEST(HfMetadata, WithoutTokenizerJsonTheOlderFilesServe) {
  HfCheckpointTexts texts = pebble_texts();
  const Json tokenizer = Json::parse(texts.tokenizer);
  texts.vocab = tokenizer["model"]["vocab"].dump();
  texts.merges = "#version: 0.2\n";
  for (const Json& merge : tokenizer["model"]["merges"]) {
    texts.merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  }
  texts.tokenizer.clear();
  expect_equal_but_for(metadata_from_hf(texts, no_integers, true), pebble_gguf());
  texts.vocab.clear();
  EXPECT_EQ(thrown_by([&] { metadata_from_hf(texts, no_integers, true); }).kind, ErrorKind::kUnsupported);
}

TEST(HfMetadata, BlocksCountDraftBlocksOnlyWhenTheyAreThere) {
  const Metadata trunk = metadata_from_hf(pebble_texts(), no_integers, false);
  EXPECT_EQ(trunk.u64("qwen4exp.block_count"), 6u);
  EXPECT_FALSE(trunk.has("qwen4exp.nextn_predict_layers"));
  EXPECT_EQ(trunk.u64_array("qwen4exp.attention.compress_ratios").size(), 6u);
  const ModelConfig config = read_model_config(metadata_from_hf(pebble_texts(), no_integers, true));
  EXPECT_EQ(config.layers, 6u);
  EXPECT_EQ(config.mtp_layers, 1u);
  require_runnable(config, "pebble");
}

TEST(HfMetadata, HashConstantsMustBeThoseOfTheFormula) {
  const auto wrong = [](std::string_view name) {
    auto values = pebble_integers(name);
    if (values && name.ends_with("multipliers")) (*values)[1] += 2;
    return values;
  };
  auto thrown = thrown_by([&] { metadata_from_hf(pebble_texts(), wrong, true); });
  EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt);
  EXPECT_THAT(thrown.message, HasSubstr("layer_multipliers"));

  // Without the formula's parameters the tensors are all there is.
  HfCheckpointTexts texts = pebble_texts();
  Json config = Json::parse(texts.config);
  config["text_config"].erase("seed");
  texts.config = config.dump();
  const Metadata metadata = metadata_from_hf(texts, wrong, true);
  EXPECT_EQ(metadata.u64_array("qwen4exp.ple.layer_multipliers")[1], 1677619451946389u);
  EXPECT_EQ(thrown_by([&] { metadata_from_hf(texts, no_integers, true); }).kind, ErrorKind::kCorrupt);

  const auto short_one = [](std::string_view name) {
    auto values = pebble_integers(name);
    if (values && name.ends_with("offsets")) values->pop_back();
    return values;
  };
  EXPECT_EQ(thrown_by([&] { metadata_from_hf(texts, short_one, true); }).kind, ErrorKind::kCorrupt);
}

// The flagship: multipliers and primes as its published files have them.
TEST(HfMetadata, FlagshipHashConstants) {
  HfCheckpointTexts texts = pebble_texts();
  Json config = Json::parse(texts.config);
  Json& text = config["text_config"];
  text["vocab_size"] = 248320;
  text["hidden_size"] = 2560;
  text["ple_embed_dim"] = 2560;
  text["heads_per_ngram"] = 8;
  text["ngram_vocab_size_base"] = 20000000;
  texts.config = config.dump();
  const Metadata m = metadata_from_hf(texts, no_integers, false);
  EXPECT_EQ(m.u64_array("qwen4exp.ple.layer_multipliers"),
            (std::vector<uint64_t>{23703573157769, 20109073645365, 8052911324071}));
  const std::vector<uint64_t> sizes = m.u64_array("qwen4exp.ple.head_vocab_sizes");
  EXPECT_THAT(sizes, testing::ElementsAre(20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
                                          20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171));
  EXPECT_EQ(m.u64_array("qwen4exp.ple.head_offsets").back(), 300001275u);
  EXPECT_EQ(m.string_array("tokenizer.ggml.tokens").size(), 248320u);
  EXPECT_EQ(m.string_array("tokenizer.ggml.tokens").back(), "[PAD248319]");
  EXPECT_EQ(m.i64_array("tokenizer.ggml.token_type").back(), 5);
}

TEST(HfMetadata, NamesComeFromTheCallerOrTheConfiguration) {
  HfCheckpointTexts texts = small_texts("qwen3_moe");
  EXPECT_FALSE(metadata_from_hf(texts, no_integers, false).has("general.name"));
  texts.config = config_with(texts, R"({"_name_or_path": "/home/me/Qwen3-30B/"})");
  EXPECT_EQ(metadata_from_hf(texts, no_integers, false).string("general.name"), "Qwen3-30B");
  texts.name = "other";
  EXPECT_EQ(metadata_from_hf(texts, no_integers, false).string("general.name"), "other");
}

TEST(HfMetadata, SamplingMustBePossible) {
  HfCheckpointTexts texts = small_texts("qwen3_moe");
  texts.generation_config = R"({"do_sample": false, "temperature": 0.6})";
  EXPECT_FALSE(metadata_from_hf(texts, no_integers, false).has("general.sampling.temp"));
  for (const char* bad : {R"({"temperature": -1})", R"({"top_p": 1.5})", R"({"top_k": -3})", R"({"top_p": "all"})",
                          R"({"temperature": 1e300})", "[]", "{", R"({"do_sample": 1})"}) {
    texts.generation_config = bad;
    EXPECT_EQ(thrown_by([&] { metadata_from_hf(texts, no_integers, false); }).kind, ErrorKind::kCorrupt) << bad;
  }
}

}  // namespace
}  // namespace tierpack

#include "runtime/bench_work.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace tierpack {
namespace {

using namespace testing_support;

DenseTensor dense(PackManifest& manifest, const std::string& name, uint64_t in, uint64_t out, uint64_t bytes) {
  DenseTensor tensor;
  tensor.name = name;
  tensor.shape = {{in, out, 1, 1}, out == 1 ? 1u : 2u};
  tensor.record = static_cast<uint32_t>(manifest.records.size());
  manifest.records.push_back({0, bytes, Segment::kDense, {}});
  return tensor;
}

ExpertLayer experts(uint32_t layer, uint64_t bytes) {
  ExpertLayer e;
  e.layer = layer;
  e.record_bytes = bytes;
  e.gate = {"g", DType::kF32, 8, 4, 0, 0};
  e.up = {"u", DType::kF32, 8, 4, 0, 0};
  e.down = {"d", DType::kF32, 4, 8, 0, 0};
  return e;
}

// Two blocks, a drafting block after them, four experts of which a token uses two.
struct SmallModel {
  PackManifest manifest;
  ModelConfig config;
  explicit SmallModel(bool tied) {
    config.layers = 2;
    config.mtp_layers = 1;
    config.experts = 4;
    config.experts_used = 2;
    manifest.dense.push_back(dense(manifest, "token_embd.weight", 8, 100, 800));
    if (!tied) manifest.dense.push_back(dense(manifest, "output.weight", 8, 100, 1600));
    manifest.dense.push_back(dense(manifest, "blk.0.attn_norm.weight", 8, 1, 32));
    manifest.dense.push_back(dense(manifest, "blk.0.attn_q.weight", 8, 16, 256));
    manifest.dense.push_back(dense(manifest, "blk.1.attn_q.weight", 8, 16, 128));
    manifest.dense.push_back(dense(manifest, "blk.2.attn_q.weight", 8, 16, 100000));
    manifest.expert_layers = {experts(0, 1000), experts(1, 500), experts(2, 100000)};
  }
  PassWork work() const { return pass_work(manifest, config); }
};

TEST(PassWork, CountsTheTrunkOnce) {
  const PassWork work = SmallModel(false).work();
  EXPECT_EQ(work.output_bytes, 1600u);
  EXPECT_EQ(work.dense_bytes, 1600u + 800 / 100 + 32 + 256 + 128);  // one row of the embedding
  EXPECT_EQ(work.expert_bytes, 1500u);
  EXPECT_EQ(work.dense_products, 2 * 8 * 16u);
  EXPECT_EQ(work.output_products, 800u);
  EXPECT_EQ(work.expert_products, 2 * 3 * 32u);
  EXPECT_EQ(work.decode_bytes(), work.dense_bytes + 2 * 1500);
}

TEST(PassWork, ATiedEmbeddingIsTheOutputMatrix) {
  const PassWork work = SmallModel(true).work();
  EXPECT_EQ(work.output_bytes, 800u);
  EXPECT_EQ(work.dense_bytes, 800u + 32 + 256 + 128);
  EXPECT_EQ(work.output_products, 800u);
}

TEST(PassWork, TokensOfOnePassShareWhatTheyBothNeed) {
  const PassWork work = SmallModel(false).work();
  EXPECT_EQ(work.pass_bytes(2), work.dense_bytes + 4 * 1500);
  EXPECT_EQ(work.pass_bytes(100), work.dense_bytes + 4 * 1500);  // there are no more experts
}

TEST(PassWork, APromptReadsTheOutputMatrixOnce) {
  const PassWork work = SmallModel(false).work();
  EXPECT_EQ(work.prompt_bytes(1, 16), work.decode_bytes());
  EXPECT_EQ(work.prompt_bytes(16, 16), work.pass_bytes(16));
  EXPECT_EQ(work.prompt_bytes(17, 16), work.pass_bytes(16) - work.output_bytes + work.pass_bytes(1));
  EXPECT_EQ(work.prompt_bytes(48, 16), 3 * work.pass_bytes(16) - 2 * work.output_bytes);
  EXPECT_EQ(work.prompt_products(10), 10 * (work.dense_products + 2 * work.expert_products) + work.output_products);
}

TEST(Ceiling, IsTheSlowerOfReadingAndMultiplying) {
  const Ceiling memory = ceiling_of(1000, 10, 100, 10);
  EXPECT_DOUBLE_EQ(memory.seconds, 10);
  EXPECT_TRUE(memory.memory);
  const Ceiling arithmetic = ceiling_of(1000, 1000, 100, 10);
  EXPECT_DOUBLE_EQ(arithmetic.seconds, 100);
  EXPECT_FALSE(arithmetic.memory);
}

TEST(Samples, MedianAndRange) {
  Samples samples;
  samples.add(3);
  EXPECT_DOUBLE_EQ(samples.median(), 3);
  samples.add(1);
  EXPECT_DOUBLE_EQ(samples.median(), 2);
  samples.add(10);
  EXPECT_DOUBLE_EQ(samples.median(), 3);
  EXPECT_DOUBLE_EQ(samples.min(), 1);
  EXPECT_DOUBLE_EQ(samples.max(), 10);
  EXPECT_EQ(samples.values(), (std::vector<double>{3, 1, 10}));
}

TEST(ParseLengths, AcceptsWhatPeopleWrite) {
  EXPECT_EQ(parse_lengths("512", 100000), std::vector<uint32_t>{512});
  EXPECT_EQ(parse_lengths("4K,512,1k,512", 100000), (std::vector<uint32_t>{512, 1024, 4096}));
  EXPECT_EQ(parse_lengths("100000", 100000), std::vector<uint32_t>{100000});
}

TEST(ParseLengths, RefusesEverythingElse) {
  for (const char* text : {"", ",", "0", "0K", "512,", ",512", "1K,,2K", "K", "-1", "+1", "1.5K", " 1", "1 ", "1M", "0x10", "100001",
                           "98K", "18446744073709551616", "18446744073709551615K", "512;1024", "abc"}) {
    EXPECT_EQ(thrown_by([&] { parse_lengths(text, 100000); }).kind, ErrorKind::kUsage) << text;
  }
  std::string many = "1";
  for (int i = 2; i <= 65; ++i) many += "," + std::to_string(i);
  EXPECT_EQ(thrown_by([&] { parse_lengths(many, 100000); }).kind, ErrorKind::kUsage);
}

TEST(SeededTokens, AreFixedSpreadAndInRange) {
  const std::vector<uint32_t> tokens = seeded_tokens(1000, 50, 1);
  EXPECT_EQ(tokens, seeded_tokens(1000, 50, 1));
  EXPECT_NE(tokens, seeded_tokens(1000, 50, 2));
  const std::vector<uint32_t> longer = seeded_tokens(2000, 50, 1);
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), longer.begin()));
  std::vector<int> counts(50);
  for (const uint32_t token : tokens) {
    ASSERT_LT(token, 50u);
    ++counts[token];
  }
  for (const int count : counts) EXPECT_GT(count, 3);
}

}  // namespace
}  // namespace tierpack

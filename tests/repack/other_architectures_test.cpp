// Models that nothing here computes are packed, verified and given back like any other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/gguf.h"
#include "repack/repack_job.h"
#include "repack/unpack_job.h"
#include "tests/support/errors.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/temp_directory.h"
#include "verify/inspection.h"
#include "verify/verify_path.h"

namespace tierpack::repack {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_support::GgufBuilder;
using testing_support::read_file;
using testing_support::TempDirectory;
using testing_support::thrown_by;

GgufBuilder model(const std::string& architecture) {
  GgufBuilder b;
  b.string("general.architecture", architecture).string("general.name", architecture);
  return b;
}

void add_experts(GgufBuilder& b, const std::string& block, uint64_t hidden, uint64_t ff, uint64_t experts) {
  b.add_tensor(block + "ffn_gate_inp.weight", DType::kF32, {hidden, experts});
  b.add_tensor(block + "ffn_gate_exps.weight", DType::kQ8_0, {hidden, ff, experts});
  b.add_tensor(block + "ffn_up_exps.weight", DType::kQ8_0, {hidden, ff, experts});
  b.add_tensor(block + "ffn_down_exps.weight", DType::kQ8_0, {ff, hidden, experts});
}

// Packs `builder`, compares what comes back, and returns the pack's configuration.
ModelConfig round_trip(const GgufBuilder& builder) {
  const TempDirectory dir;
  builder.write(dir / "m.gguf");
  RepackOptions options;
  options.source = dir / "m.gguf";
  options.target = dir / "m.tierpack";
  options.tool_version = "test";
  options.allow_nonfinite = true;
  repack(options);
  for (const UnpackedShard& shard : unpack({dir / "m.tierpack", dir / "out", 1, ProgressStyle::kSilent})) {
    EXPECT_EQ(read_file(dir / "m.gguf"), read_file(shard.path));
  }
  verify::VerifyOptions deep;
  deep.path = dir / "m.tierpack";
  deep.deep = true;
  EXPECT_TRUE(verify::verify_path(deep).ok());
  const verify::Inspection seen = verify::inspect_path((dir / "m.tierpack").string(), {});
  EXPECT_THAT(read_file(dir / "m.tierpack" / "pack.json"), HasSubstr(seen.config.value().architecture_text));
  const Pack pack = Pack::open(dir / "m.tierpack");
  EXPECT_EQ(thrown_by([&] { require_runnable(pack.config(), "m"); }).kind, ErrorKind::kUnsupported);
  return pack.config();
}

TEST(OtherArchitectures, DenseModel) {
  GgufBuilder b = model("llama");
  b.u32("llama.block_count", 1).u32("llama.embedding_length", 64).u32("llama.context_length", 128);
  b.add_tensor("token_embd.weight", DType::kQ8_0, {64, 8}).add_tensor("output_norm.weight", DType::kF32, {64});
  b.add_tensor("blk.0.ffn_up.weight", DType::kQ4_0, {64, 96}).add_tensor("blk.0.ffn_down.weight", DType::kF16, {96, 64});
  const ModelConfig c = round_trip(b);
  EXPECT_EQ(c.architecture, Architecture::kOther);
  EXPECT_EQ(c.experts, 0u);
}

TEST(OtherArchitectures, Projector) {
  GgufBuilder b = model("clip");
  b.string("general.type", "mmproj").u32("clip.vision.block_count", 1);
  b.add_tensor("v.blk.0.attn_out.weight", DType::kF16, {32, 32}).add_tensor("mm.0.bias", DType::kF32, {32});
  EXPECT_EQ(round_trip(b).layers, 0u);
}

TEST(OtherArchitectures, UnknownOneWithExperts) {
  GgufBuilder b = model("dots9");
  b.add_tensor("token_embd.weight", DType::kF16, {64, 8});
  b.add_tensor("blk.0.ffn_norm_exps.weight", DType::kF32, {64});  // no stack
  add_experts(b, "blk.1.", 64, 32, 3);
  EXPECT_EQ(round_trip(b).architecture_text, "dots9");
  b.u32("dots9.block_count", 2).u32("dots9.expert_count", 3);
  EXPECT_EQ(round_trip(b).experts, 3u);
  b.u32("dots9.expert_used_count", 2);
  GgufBuilder wrong = model("dots9");
  wrong.u32("dots9.expert_count", 4);
  add_experts(wrong, "blk.1.", 64, 32, 3);
  EXPECT_EQ(thrown_by([&] { round_trip(wrong); }).kind, ErrorKind::kCorrupt);
}

GgufBuilder deepseek(uint32_t ff) {
  GgufBuilder b = model("deepseek2");
  const std::string a = "deepseek2.";
  b.u32(a + "block_count", 3).u32(a + "context_length", 128).u32(a + "embedding_length", 64).u32(a + "vocab_size", 8);
  b.u32(a + "nextn_predict_layers", 1).u32(a + "attention.head_count", 2).u32(a + "attention.head_count_kv", 1);
  b.u32(a + "attention.key_length", 48).u32(a + "attention.value_length", 32).u32(a + "rope.dimension_count", 16);
  b.f32(a + "attention.layer_norm_rms_epsilon", 1e-6f).f32(a + "rope.freq_base", 1e4f);
  b.u32(a + "leading_dense_block_count", 1).u32(a + "expert_count", 4).u32(a + "expert_used_count", 2);
  b.u32(a + "expert_feed_forward_length", ff).u32(a + "expert_shared_count", 1).u32(a + "expert_gating_func", 2);
  return b;
}

TEST(OtherArchitectures, DenseBlocksInFront) {
  GgufBuilder b = deepseek(32);
  b.add_tensor("token_embd.weight", DType::kF16, {64, 8});
  b.add_tensor("blk.0.ffn_up.weight", DType::kQ8_0, {64, 96});
  b.add_tensor("blk.1.attn_k_b.weight", DType::kQ8_0, {32, 32, 2});
  add_experts(b, "blk.1.", 64, 32, 4);
  const ModelConfig c = round_trip(b);
  EXPECT_EQ(c.dense_layers, 1u);
  EXPECT_EQ(c.layers, 2u);
  GgufBuilder wrong = deepseek(64);
  add_experts(wrong, "blk.1.", 64, 32, 4);
  EXPECT_EQ(thrown_by([&] { round_trip(wrong); }).kind, ErrorKind::kCorrupt);
  wrong = deepseek(32);
  add_experts(wrong, "blk.3.", 64, 32, 4);
  EXPECT_EQ(thrown_by([&] { round_trip(wrong); }).kind, ErrorKind::kCorrupt);
}

// Declares all blocks, ships the last one, and has no tokenizer.
TEST(OtherArchitectures, DraftBlockAlone) {
  GgufBuilder b = deepseek(32);
  b.add_tensor("blk.2.nextn.eh_proj.weight", DType::kF16, {128, 64});
  add_experts(b, "blk.2.", 64, 32, 4);
  EXPECT_EQ(round_trip(b).mtp_layers, 1u);
}

}  // namespace
}  // namespace tierpack::repack

// Quantised checkpoints: scales that follow their weights, and everything that is refused.
#include <gtest/gtest.h>

#include "repack/hf_mapping.h"
#include "tests/support/errors.h"
#include "tests/support/made_models.h"

namespace tierpack::repack {
namespace {

using namespace testing_support;
using Floats = std::vector<float>;
using Dims = MadeCheckpoint::Dims;

Mapped map(const MadeModel& model, const std::string& text, const QuantConfig& quant = {}) {
  return Mapped(SafetensorsSource::open_single(std::make_unique<MemorySource>(as_bytes(text), "made"), "made"),
                model.config, quant);
}

// Maps; each tensor of the pack times its scales is what the moves make of the decoded weights.
struct Scaled {
  explicit Scaled(const MadeModel& model) : text(model.checkpoint.file()), m(map(model, text)) {
    for (const TensorInfo& t : m.mapping.tensors) expect_same(t.name, m.unpacked(t.name), m.moved(t.name));
  }
  static void expect_same(const std::string& name, const Floats& got, const Floats& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], want[i]) << name << " at " << i;
  }
  // A tensor of type F32 as it is stored.
  Floats stored(const std::string& name) const {
    const SafetensorsTensor* tensor = m.source.find(name);
    Floats out(tensor->elements());
    m.source.read(*tensor, 0, std::as_writable_bytes(std::span(out)));
    return out;
  }
  std::string scale_shape(const std::string& base) const {
    const DerivedTensor* d = m.derived(base + ".scale");
    if (d == nullptr) return "none";
    EXPECT_EQ(d->op, DerivedOp::kScale);
    EXPECT_EQ(d->scaled, base + ".weight");
    EXPECT_EQ(d->target.dtype, DType::kF32);
    EXPECT_EQ(d->target.bytes, 4 * d->target.shape.elements());
    return d->target.shape.text();
  }
  DType type(const std::string& name) const { return m.tensor(name)->dtype; }
  std::string text;
  Mapped m;
};

Thrown refusal(const MadeModel& model, const QuantConfig& quant = {}) {
  const std::string text = model.checkpoint.file();
  return thrown_by([&] { map(model, text, quant); });
}

// qwen3moe wide enough for blocks of 128: hidden 256, heads 2 x 160, experts of `ff`.
MadeModel wide_model(uint32_t ff) {
  MadeModel m{moe_config(Architecture::kQwen3Moe, 1), {}};
  m.config.hidden = 256;
  m.config.head_dim = 160;
  m.config.expert_ff = ff;
  add_norms(m.checkpoint, "model.layers.0.", m.config);
  add_head_norms(m.checkpoint, "model.layers.0.", m.config);
  m.checkpoint.add("model.layers.0.mlp.gate.weight", {3, 256});
  add_ends(m.checkpoint, "model.", m.config);
  return m;
}
const std::string kBlock = "model.layers.0.", kAttention = kBlock + "self_attn.", kExperts = kBlock + "mlp.experts.";

void add_fp8_attention(MadeModel& m) {
  m.checkpoint.fp8(kAttention + "q_proj.weight", {320, 256}, {3, 2})
      .fp8(kAttention + "k_proj.weight", {160, 256}, {160, 1}, "_scale")
      .fp8(kAttention + "v_proj.weight", {160, 256}, {}, "_scale")
      .fp8(kAttention + "o_proj.weight", {256, 320}, {2, 3});
}

TEST(HfScales, Fp8OfEveryGrain) {
  MadeModel model = wide_model(200);
  add_fp8_attention(model);
  for (int e = 0; e < 3; ++e) {
    const std::string expert = fmt::format("{}{}.", kExperts, e);
    model.checkpoint.fp8(expert + "gate_proj.weight", {200, 256}, {2, 2})
        .fp8(expert + "up_proj.weight", {200, 256}, {200}, "_scale")
        .fp8(expert + "down_proj.weight", {256, 200}, {1}, "_scale");
  }
  const Scaled s(model);
  EXPECT_EQ(s.type("blk.0.attn_q.weight"), DType::kF8_E4M3);
  EXPECT_EQ(s.scale_shape("blk.0.attn_q"), "{2, 3}");
  EXPECT_EQ(s.scale_shape("blk.0.attn_k"), "{1, 160}");
  EXPECT_EQ(s.scale_shape("blk.0.attn_v"), "{1}");
  EXPECT_EQ(s.scale_shape("blk.0.attn_output"), "{3, 2}");
  EXPECT_EQ(s.scale_shape("blk.0.ffn_gate_exps"), "{2, 2, 3}");
  EXPECT_EQ(s.scale_shape("blk.0.ffn_up_exps"), "{1, 200, 3}");
  EXPECT_EQ(s.scale_shape("blk.0.ffn_down_exps"), "{1, 1, 3}");
  EXPECT_EQ(s.scale_shape("blk.0.ffn_gate_inp"), "none");
  EXPECT_EQ(s.m.values("blk.0.attn_q.scale"), s.stored(kAttention + "q_proj.weight_scale_inv"));
  EXPECT_EQ(s.m.values("blk.0.attn_k.scale"), s.stored(kAttention + "k_proj.weight_scale"));
  EXPECT_EQ(s.m.values("blk.0.attn_v.scale"), s.stored(kAttention + "v_proj.weight_scale"));
}

TEST(HfScales, Fp8FusedExperts) {
  for (const Dims& scales : {Dims{3, 4, 2}, Dims{3, 512, 1}, Dims{3, 1, 1}, Dims{3, 2}, Dims{3}, Dims{1}}) {
    MadeModel model = wide_model(256);
    add_fp8_attention(model);
    model.checkpoint.fp8(kExperts + "gate_up_proj", {3, 512, 256}, scales)
        .fp8(kExperts + "down_proj", {3, 256, 256}, {3, 2, 2});
    const Scaled s(model);
    const std::string want = scales == Dims{3, 4, 2}     ? "{2, 2, 3}"
                             : scales == Dims{3, 512, 1} ? "{1, 256, 3}"
                                                         : "{1, 1, 3}";
    EXPECT_EQ(s.scale_shape("blk.0.ffn_gate_exps"), want);
    EXPECT_EQ(s.scale_shape("blk.0.ffn_up_exps"), want);
    EXPECT_EQ(s.scale_shape("blk.0.ffn_down_exps"), "{2, 2, 3}");
  }
}

TEST(HfScales, Nvfp4OfBothWriters) {
  for (const bool divides : {false, true}) {
    MadeModel model = wide_model(64);
    for (const auto& [part, rows] : {std::pair{"q", 320u}, {"k", 160u}, {"v", 160u}}) {
      model.checkpoint.nvfp4(fmt::format("{}{}_proj", kAttention, part), {rows, 256}, {1}, divides);
    }
    model.checkpoint.nvfp4(kAttention + "o_proj", {256, 320}, {}, divides);
    for (int e = 0; e < 3; ++e) {
      const std::string expert = fmt::format("{}{}.", kExperts, e);
      model.checkpoint.nvfp4(expert + "gate_proj", {64, 256}, {}, divides)
          .nvfp4(expert + "up_proj", {64, 256}, {}, divides)
          .nvfp4(expert + "down_proj", {256, 64}, {}, divides);
    }
    const Scaled s(model);
    EXPECT_EQ(s.type("blk.0.attn_q.weight"), DType::kNVFP4);
    EXPECT_EQ(s.m.tensor("blk.0.attn_q.weight")->bytes, 320u * 256 / 64 * 36);
    EXPECT_EQ(s.scale_shape("blk.0.attn_q"), "{1}");
    EXPECT_EQ(s.scale_shape("blk.0.ffn_down_exps"), "{1, 1, 3}");
    const QuantWeight* q = s.m.catalog.find(kAttention + "q_proj.weight");
    EXPECT_EQ(s.m.values("blk.0.attn_q.scale"), second_scale_multipliers(s.m.source, *q));
  }
}

// A delta net with two K heads and six V heads of `head`, its big matrices quantised.
MadeModel quantised_delta_net(uint32_t head, bool nvfp4) {
  MadeModel m{delta_config(Architecture::kQwen35Moe, 1), {}};
  m.config.gdn.head_dim = head;
  add_norms(m.checkpoint, kBlock, m.config);
  add_delta_net(m.checkpoint, kBlock, m.config);
  add_fused_experts(m.checkpoint, kBlock, m.config);
  add_shared_expert(m.checkpoint, kBlock, m.config);
  add_ends(m.checkpoint, "model.", m.config);
  const uint64_t values = 6 * head, qkv = 10 * head, hidden = 64;
  for (const auto& [part, rows, columns] : {std::tuple{"in_proj_qkv", qkv, hidden},
                                            {"in_proj_z", values, hidden},
                                            {"in_proj_a", uint64_t{6}, hidden},
                                            {"out_proj", hidden, values}}) {
    const std::string base = fmt::format("{}linear_attn.{}", kBlock, part);
    m.checkpoint.remove(base + ".weight");
    if (nvfp4)
      m.checkpoint.nvfp4(base, {rows, columns});
    else
      m.checkpoint.fp8(base + ".weight", {rows, columns}, {ceil_div(rows, 128), ceil_div(columns, 128)});
  }
  return m;
}

TEST(HfScales, TiledHeadsTakeTheirScalesAlong) {
  const Scaled fp8(quantised_delta_net(128, false));
  EXPECT_EQ(fp8.scale_shape("blk.0.attn_qkv"), "{1, 10}");
  EXPECT_EQ(fp8.scale_shape("blk.0.attn_gate"), "{1, 6}");
  EXPECT_EQ(fp8.scale_shape("blk.0.ssm_out"), "{6, 1}");
  // V heads of the pack are 0, 3, 1, 4, 2, 5 of the checkpoint.
  const Floats scales = fp8.m.values("blk.0.ssm_out.scale");
  const Floats original = fp8.stored(kBlock + "linear_attn.out_proj.weight_scale_inv");
  EXPECT_EQ(scales, (Floats{original[0], original[3], original[1], original[4], original[2], original[5]}));

  const Scaled nvfp4(quantised_delta_net(64, true));
  EXPECT_EQ(nvfp4.type("blk.0.ssm_out.weight"), DType::kNVFP4);
  EXPECT_EQ(nvfp4.scale_shape("blk.0.ssm_out"), "{1}");
}

TEST(HfScales, TiledHeadsThatCutBlocksAreRefused) {
  const Thrown fp8 = refusal(quantised_delta_net(64, false));
  EXPECT_EQ(fp8.kind, ErrorKind::kUnsupported);
  EXPECT_NE(fp8.message.find("in_proj_qkv"), std::string::npos) << fp8.message;
  const Thrown nvfp4 = refusal(quantised_delta_net(32, true));
  EXPECT_EQ(nvfp4.kind, ErrorKind::kUnsupported);
  EXPECT_NE(nvfp4.message.find("heads of 32 columns"), std::string::npos) << nvfp4.message;
}

// Latent attention of two heads and vectors of 256, kv_b_proj in FP8.
MadeModel fp8_latent(uint64_t key, const Dims& scales, uint64_t value = 128) {
  MadeModel m = made_deepseek2(false, 0);
  m.config.heads = 2;
  m.config.layers = 1;
  m.checkpoint.remove_all("model.layers.1.");
  const uint64_t head = key + 16;
  for (const char* name : {"q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj"}) {
    m.checkpoint.remove(kAttention + name + ".weight");
  }
  m.checkpoint.add(kAttention + "q_b_proj.weight", {2 * head, 96})
      .add(kAttention + "kv_a_proj_with_mqa.weight", {256 + 16, 64})
      .add(kAttention + "kv_a_layernorm.weight", {256})
      .add(kAttention + "o_proj.weight", {64, 2 * value})
      .fp8(kAttention + "kv_b_proj.weight", {2 * (key + value), 256}, scales);
  return m;
}

TEST(HfScales, TransposedKeysTakeTheirScalesAlong) {
  const Scaled s(fp8_latent(256, {6, 2}));
  EXPECT_EQ(s.type("blk.0.attn_k_b.weight"), DType::kF8_E4M3);
  EXPECT_EQ(s.scale_shape("blk.0.attn_k_b"), "{2, 2, 2}");
  EXPECT_EQ(s.scale_shape("blk.0.attn_v_b"), "{2, 1, 2}");
  const Scaled one(fp8_latent(96, {}));
  EXPECT_EQ(one.scale_shape("blk.0.attn_k_b"), "{1, 1, 2}");
  const Scaled uneven(fp8_latent(192, {4, 2}, 64));
  EXPECT_EQ(uneven.scale_shape("blk.0.attn_k_b"), "{2, 2, 2}");
  EXPECT_EQ(uneven.scale_shape("blk.0.attn_v_b"), "{2, 1, 2}");
  EXPECT_EQ(refusal(fp8_latent(128, {3, 2}, 64)).kind, ErrorKind::kUnsupported) << "keys of the second head are cut";
  EXPECT_EQ(refusal(fp8_latent(96, {4, 2})).kind, ErrorKind::kUnsupported) << "blocks of 128 are cut";
  EXPECT_EQ(refusal(fp8_latent(256, {768})).kind, ErrorKind::kUnsupported) << "a scale a row becomes one a column";
}

// ---- refusals

void expect_refusal(const MadeModel& model, ErrorKind kind, const std::string& part, const QuantConfig& quant = {}) {
  const Thrown thrown = refusal(model, quant);
  EXPECT_EQ(thrown.kind, kind) << thrown.message;
  EXPECT_NE(thrown.message.find(part), std::string::npos) << thrown.message;
}

MadeModel with(const std::string& name, const Dims& shape, HfType type) {
  MadeModel m = made_qwen3moe();
  m.checkpoint.remove(name);
  m.checkpoint.add(name, shape, type);
  return m;
}

TEST(HfMappingErrors, Architecture) {
  MadeModel m = made_qwen3moe();
  m.config.architecture = Architecture::kOther;
  expect_refusal(m, ErrorKind::kUnsupported, "known are qwen3moe");
}

TEST(HfMappingErrors, UnknownTensorsAreNamed) {
  MadeModel m = made_qwen3moe();
  m.checkpoint.add("model.layers.1.mlp.extra.weight", {4, 4});
  expect_refusal(m, ErrorKind::kUnsupported,
                 "1 tensor is not known of the architecture qwen3moe: 'model.layers.1.mlp.extra");
  for (int i = 2; i < 6; ++i) m.checkpoint.add(fmt::format("model.layers.{}.x", i), {4});
  expect_refusal(m, ErrorKind::kUnsupported, "5 tensors are");
  MadeModel more = made_qwen3moe();
  more.config.experts = 2;
  more.checkpoint.remove("model.layers.0.mlp.gate.weight");
  more.checkpoint.remove("model.layers.1.mlp.gate.weight");
  more.checkpoint.add("model.layers.0.mlp.gate.weight", {2, 64}).add("model.layers.1.mlp.gate.weight", {2, 64});
  expect_refusal(more, ErrorKind::kUnsupported, "mlp.experts.2.gate_proj.weight");
}

// A configuration with too few blocks must not pass for one that leaves draft blocks out.
TEST(HfMappingErrors, BlocksBeyondTheConfiguration) {
  MadeModel m = made_deepseek2(false, 0);
  m.config.layers = 1;
  expect_refusal(m, ErrorKind::kUnsupported, "'model.layers.1.");
}

TEST(HfMappingErrors, MissingTensors) {
  for (const char* name : {"model.embed_tokens.weight", "model.norm.weight", "model.layers.1.self_attn.k_proj.weight",
                           "model.layers.0.mlp.experts.2.up_proj.weight", "model.layers.1.mlp.gate.weight"}) {
    MadeModel m = made_qwen3moe();
    m.checkpoint.remove(name);
    expect_refusal(m, ErrorKind::kCorrupt, fmt::format("'{}' is missing", name));
  }
  MadeModel tied = made_qwen3moe();
  tied.checkpoint.remove("lm_head.weight");
  EXPECT_EQ(Scaled(tied).m.tensor("output.weight"), nullptr);
  MadeModel short_table = made_qwen4exp();
  short_table.checkpoint.remove("model.language_model.layers.0.ple.ple_embedding.ngram_embedding.shard_2.weight");
  expect_refusal(short_table, ErrorKind::kCorrupt, "have 10 rows together");
  MadeModel lite = made_deepseek2(true, 0);
  lite.checkpoint.remove("model.layers.1.self_attn.q_proj.weight");
  expect_refusal(lite, ErrorKind::kCorrupt, "q_a_proj.weight' is missing");
}

TEST(HfMappingErrors, Shapes) {
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  expect_refusal(with(q, {64, 32}, HfType::kBF16), ErrorKind::kCorrupt, "[64, 32]");
  expect_refusal(with(q, {64, 64, 2}, HfType::kBF16), ErrorKind::kCorrupt, "[64, 64, 2]");
  expect_refusal(with(q, {4096}, HfType::kBF16), ErrorKind::kCorrupt, "[4096]");
  expect_refusal(with(q, {0, 64}, HfType::kBF16), ErrorKind::kCorrupt, "[0, 64]");
  expect_refusal(with(q, {64, 64, 1}, HfType::kBF16), ErrorKind::kCorrupt, "rows of 64 elements");
  expect_refusal(with("model.norm.weight", {63}, HfType::kBF16), ErrorKind::kCorrupt, "[63]");
  expect_refusal(with("model.layers.1.mlp.experts.1.down_proj.weight", {64, 95}, HfType::kBF16), ErrorKind::kCorrupt,
                 "[64, 95]");
  MadeModel dense = made_deepseek2(false, 0);
  dense.checkpoint.remove("model.layers.0.mlp.up_proj.weight");
  dense.checkpoint.add("model.layers.0.mlp.up_proj.weight", {128, 64});
  expect_refusal(dense, ErrorKind::kCorrupt, "ask for [160, 64]");
  MadeModel indexer = made_qwen4exp();
  indexer.checkpoint.remove("model.language_model.layers.1.self_attn.indexer.index_qk_proj.weight");
  indexer.checkpoint.add("model.language_model.layers.1.self_attn.indexer.index_qk_proj.weight", {80, 64});
  expect_refusal(indexer, ErrorKind::kCorrupt, "has 80 rows, expected 64");
  MadeModel heads = made_qwen3next(Architecture::kQwen35Moe, 1);
  heads.config.gdn = {4, 64, 4, 6};
  EXPECT_EQ(refusal(heads).kind, ErrorKind::kCorrupt);
  MadeModel latent = made_deepseek2(false, 0);
  latent.config.heads = 5;
  expect_refusal(latent, ErrorKind::kCorrupt, "do not fit 5 heads");
}

TEST(HfMappingErrors, Types) {
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  expect_refusal(with(q, {64, 64}, HfType::kI32), ErrorKind::kUnsupported, "of type I32");
  expect_refusal(with(q, {64, 64}, HfType::kF8E5M2), ErrorKind::kUnsupported, "of type F8_E5M2");
  expect_refusal(with("model.norm.weight", {64}, HfType::kI64), ErrorKind::kUnsupported, "of type I64");
  MadeModel mxfp8 = with(q, {64, 64}, HfType::kF8E4M3);
  mxfp8.checkpoint.add(q + "_scale", {64, 2}, HfType::kU8);
  expect_refusal(mxfp8, ErrorKind::kUnsupported, "MXFP8");
  const std::string expert = "model.layers.0.mlp.experts.1.up_proj.weight";
  expect_refusal(with(expert, {96, 64}, HfType::kF16), ErrorKind::kUnsupported, "must have the same type");
  MadeModel narrow = made_qwen3moe();
  narrow.checkpoint.remove("model.layers.0.mlp.experts.0.down_proj.weight");
  narrow.checkpoint.nvfp4("model.layers.0.mlp.experts.0.down_proj", {64, 96});
  expect_refusal(narrow, ErrorKind::kUnsupported, "must have the same type");
  MadeModel gptq = made_qwen3moe();
  gptq.checkpoint.add("model.layers.0.x.qweight", {4, 4}, HfType::kI32);
  expect_refusal(gptq, ErrorKind::kUnsupported, "GPTQ");
}

TEST(HfMappingErrors, ScalesThatWouldBeCut) {
  MadeModel fused = wide_model(160);
  add_fp8_attention(fused);
  fused.checkpoint.fp8(kExperts + "gate_up_proj", {3, 320, 256}, {3, 3, 2})
      .fp8(kExperts + "down_proj", {3, 256, 160}, {3, 2, 2});
  expect_refusal(fused, ErrorKind::kUnsupported, "gate_up_proj");
  QuantConfig blocks;
  blocks.block_rows = blocks.block_columns = 64;
  MadeModel other = wide_model(64);
  other.checkpoint.fp8(kAttention + "q_proj.weight", {320, 256}, {5, 4});
  other.checkpoint.add(kAttention + "k_proj.weight", {160, 256}).add(kAttention + "v_proj.weight", {160, 256});
  expect_refusal(other, ErrorKind::kUnsupported, "64 x 64", blocks);
  MadeModel draft = made_qwen4exp();
  for (const char* half : {"embedding", "hidden"}) {
    const std::string name = fmt::format("mtp.fc_{}.weight", half);
    draft.checkpoint.remove(name);
    draft.checkpoint.fp8(name, {64, 64}, {}, "_scale");
  }
  expect_refusal(draft, ErrorKind::kUnsupported, "nextn.eh_proj");
}

// ---- check_mapping

TEST(HfMappingCheck, FindsEveryViolation) {
  const MadeModel model = made_gpt_oss(true);
  const std::string text = model.checkpoint.file();
  const Mapped m = map(model, text);
  const auto broken = [&](const auto& change) {
    HfMapping mapping = m.mapping;
    change(mapping);
    return thrown_by([&] { check_mapping(m.catalog, mapping); }).kind;
  };
  EXPECT_EQ(broken([](HfMapping&) {}), std::nullopt);
  EXPECT_EQ(broken([](HfMapping& x) { x.moves.pop_back(); }), ErrorKind::kInternal) << "a target is not filled";
  EXPECT_EQ(broken([](HfMapping& x) { x.moves.push_back(x.moves[0]); }), ErrorKind::kInternal) << "twice";
  EXPECT_EQ(broken([](HfMapping& x) { --x.moves[0].rows; }), ErrorKind::kInternal);
  EXPECT_EQ(broken([](HfMapping& x) { ++x.moves[0].rows; }), ErrorKind::kInternal);
  EXPECT_EQ(broken([](HfMapping& x) { ++x.moves[1].target_row[0]; }), ErrorKind::kInternal);
  EXPECT_EQ(broken([](HfMapping& x) { ++x.moves[1].source_row; }), ErrorKind::kInternal);
  EXPECT_EQ(broken([](HfMapping& x) { x.moves[1].source_row = ~uint64_t{0}; }), ErrorKind::kInternal);
  EXPECT_EQ(broken([](HfMapping& x) { x.moves[1].target[0] = 1000; }), ErrorKind::kInternal);
  EXPECT_EQ(broken([](HfMapping& x) { x.moves[1].weight = 1000; }), ErrorKind::kInternal);
  EXPECT_EQ(broken([](HfMapping& x) { x.moves[1].tiles = {2, 3, 5}; }), ErrorKind::kInternal);
  EXPECT_EQ(broken([](HfMapping& x) { x.derived.pop_back(); }), ErrorKind::kInternal) << "a weight without a place";
  EXPECT_EQ(broken([&](HfMapping& x) { x.kept_only.emplace_back(m.catalog.weights[0].name); }), ErrorKind::kInternal);
  // Halves that change places still fill the target.
  EXPECT_EQ(broken([](HfMapping& x) {
              RowMove second = x.moves[0];
              const uint64_t half = second.rows / 2;
              x.moves[0].rows = half;
              x.moves[0].target_row[0] = second.rows - half;
              second.source_row = half;
              second.rows -= half;
              second.target_row[0] = 0;
              x.moves.push_back(second);
            }),
            std::nullopt);
}

}  // namespace
}  // namespace tierpack::repack

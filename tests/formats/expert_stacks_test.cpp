#include "formats/expert_stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/errors.h"

namespace tierpack {
namespace {

using testing::HasSubstr;
using testing_support::thrown_by;

TensorInfo tensor(const std::string& name, DType dtype, std::vector<uint64_t> dims) {
  TensorInfo out;
  out.name = name;
  out.dtype = dtype;
  out.shape.dims = static_cast<uint32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), out.shape.ne.begin());
  out.bytes = row_bytes(dtype, out.shape.ne[0]) * out.shape.rows();
  return out;
}

std::vector<TensorInfo> block(int number) {
  const std::string prefix = "blk." + std::to_string(number) + ".";
  return {tensor(prefix + "ffn_down_exps.weight", DType::kQ8_0, {96, 256, 5}),
          tensor(prefix + "ffn_gate_exps.weight", DType::kQ4_K, {256, 96, 5}),
          tensor(prefix + "ffn_up_exps.weight", DType::kQ6_K, {256, 96, 5})};
}

TEST(ExpertStacks, BlockNumbersAreRead) {
  EXPECT_EQ(block_of("blk.0.attn_q.weight"), 0);
  EXPECT_EQ(block_of("blk.47.ffn_gate_exps.weight"), 47);
  for (const char* name : {"output.weight", "blk.", "blk.x.attn", "blk.3", "blk.-1.attn", "blk.99999999999.attn", "xblk.3.attn"}) {
    EXPECT_EQ(block_of(name), -1) << name;
  }
}

TEST(ExpertStacks, TensorsAreToldApart) {
  EXPECT_EQ(classify(tensor("blk.1.ffn_up_exps.weight", DType::kF16, {32, 32, 2})), TensorClass::kExpertStack);
  EXPECT_EQ(classify(tensor("blk.1.ffn_gate_up_exps.weight", DType::kF16, {32, 32, 2})), TensorClass::kExpertStack);
  EXPECT_EQ(classify(tensor("blk.1.ffn_up_shexp.weight", DType::kF16, {32, 32})), TensorClass::kDense);
  EXPECT_EQ(classify(tensor("blk.1.ffn_gate_exps.scale", DType::kF32, {2})), TensorClass::kDense);
  EXPECT_EQ(classify(tensor("ffn_up_exps.weight", DType::kF16, {32, 32, 2})), TensorClass::kDense);
  EXPECT_EQ(classify(tensor("per_layer_token_embd.weight", DType::kQ4_0, {160, 1000})), TensorClass::kRows);
  EXPECT_EQ(classify(tensor("per_layer_token_embd.weight", DType::kF32, {16384, 10})), TensorClass::kRows);
  EXPECT_EQ(classify(tensor("per_layer_token_embd.weight", DType::kF32, {16385, 10})), TensorClass::kDense);
}

TEST(ExpertStacks, PartsArePlacedInARecord) {
  std::vector<TensorInfo> tensors = block(3);
  const std::vector<TensorInfo> more = block(1);
  tensors.insert(tensors.end(), more.begin(), more.end());
  tensors.push_back(tensor("output.weight", DType::kF16, {256, 8}));
  const std::vector<ExpertLayer> layers = expert_layers(tensors, "test");
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].layer, 1u);
  EXPECT_EQ(layers[1].layer, 3u);
  EXPECT_EQ(layers[0].experts, 5u);
  EXPECT_EQ(layers[0].gate.bytes, 96u * 144);
  EXPECT_EQ(layers[0].up.offset, 96u * 144);          // a multiple of 64 already
  EXPECT_EQ(layers[0].down.offset, align_up(96u * 144 + 96u * 210, 64));
  EXPECT_EQ(layers[0].record_bytes, layers[0].down.offset + 256u * 3 * 34);
  EXPECT_EQ(layers[0].down.tensor, "blk.1.ffn_down_exps.weight");
}

TEST(ExpertStacks, MergedGateAndUpAreTwoParts) {
  const std::vector<ExpertLayer> layers = expert_layers({tensor("blk.0.ffn_gate_up_exps.weight", DType::kQ4_K, {256, 192, 5}),
                                                         tensor("blk.0.ffn_down_exps.weight", DType::kQ8_0, {96, 256, 5})},
                                                        "test");
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0].gate.tensor, layers[0].up.tensor);
  EXPECT_EQ(layers[0].gate.out, 96u);
  EXPECT_EQ(layers[0].up.out, 96u);
}

TEST(ExpertStacks, WhatDoesNotFitTogetherIsRefused) {
  const auto refused = [](std::vector<TensorInfo> tensors) {
    return thrown_by([&] { expert_layers(tensors, "test"); });
  };
  std::vector<TensorInfo> tensors = block(0);
  tensors.pop_back();
  EXPECT_EQ(refused(tensors).kind, ErrorKind::kCorrupt);
  EXPECT_THAT(refused(tensors).message, HasSubstr("block 0"));
  tensors = block(0);
  tensors.push_back(tensor("blk.0.ffn_gate_up_exps.weight", DType::kQ4_K, {256, 192, 5}));
  EXPECT_EQ(refused(tensors).kind, ErrorKind::kCorrupt);
  tensors = block(0);
  tensors[0] = tensor("blk.0.ffn_down_exps.weight", DType::kQ8_0, {96, 256, 4});
  EXPECT_EQ(refused(tensors).kind, ErrorKind::kCorrupt);
  tensors[0] = tensor("blk.0.ffn_down_exps.weight", DType::kQ8_0, {64, 256, 5});
  EXPECT_EQ(refused(tensors).kind, ErrorKind::kCorrupt);
  tensors[0] = tensor("blk.0.ffn_down_exps.weight", DType::kQ8_0, {96, 128, 5, 2});
  EXPECT_EQ(refused(tensors).kind, ErrorKind::kCorrupt);
  tensors = block(0);
  tensors.push_back(tensor("blk.0.ffn_side_exps.weight", DType::kQ8_0, {96, 256, 5}));
  EXPECT_EQ(classify(tensors.back()), TensorClass::kDense);
  EXPECT_EQ(expert_layers(tensors, "m").size(), 1u);
  EXPECT_EQ(refused({tensor("blk.0.ffn_gate_up_exps.weight", DType::kF16, {256, 191, 5}),
                     tensor("blk.0.ffn_down_exps.weight", DType::kF16, {95, 256, 5})})
                .kind,
            ErrorKind::kCorrupt);
}

TEST(ExpertStacks, LoadOrderIsTheOrderOfUse) {
  std::vector<TensorInfo> tensors;
  for (const char* name : {"output.weight", "output_norm.weight", "blk.10.a", "blk.2.b", "token_embd.weight", "blk.2.a", "rope_freqs"}) {
    tensors.push_back(tensor(name, DType::kF32, {1}));
  }
  std::vector<std::string> names;
  for (const TensorInfo& item : in_load_order(tensors)) names.push_back(item.name);
  EXPECT_THAT(names, testing::ElementsAre("token_embd.weight", "rope_freqs", "blk.2.b", "blk.2.a", "blk.10.a", "output.weight",
                                          "output_norm.weight"));
}

}  // namespace
}  // namespace tierpack

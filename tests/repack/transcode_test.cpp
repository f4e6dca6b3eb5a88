#include "repack/transcode.h"

#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "formats/dequant.h"
#include "formats/quantize.h"
#include "repack/repack_plan.h"
#include "tests/support/errors.h"

namespace tierpack::repack {
namespace {

using testing::HasSubstr;
using testing_support::thrown_by;

TensorInfo tensor(const std::string& name, DType type, std::vector<uint64_t> dims) {
  TensorInfo out;
  out.name = name;
  out.dtype = type;
  out.shape.dims = static_cast<uint32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), out.shape.ne.begin());
  return out;
}

TEST(TranscodeRules, AreParsed) {
  const TranscodeRule rule = parse_transcode_rule("a=b|ffn_.*_exps=q4_k");
  EXPECT_EQ(rule.names.pattern(), "a=b|ffn_.*_exps");
  EXPECT_EQ(rule.to, DType::kQ4_K);
  EXPECT_TRUE(rule.names.found_in("blk.3.ffn_up_exps.weight"));
  EXPECT_FALSE(rule.names.found_in("blk.3.ffn_up_shexp.weight"));
  for (const char* bad : {"", "=", "exps", "=Q4_K", "exps=", "exps=Q2_K", "exps=Q9", "(exps=Q4_K", "exps=I32"}) {
    EXPECT_EQ(thrown_by([&] { parse_transcode_rule(bad); }).kind, ErrorKind::kUsage) << bad;
  }
}

TEST(TranscodeRules, TheFirstThatFitsDecides) {
  const std::vector<TensorInfo> tensors{tensor("blk.0.ffn_down_exps.weight", DType::kBF16, {96, 64, 4}), tensor("blk.0.ffn_up_exps.weight", DType::kBF16, {256, 96, 4}),
                                        tensor("blk.0.attn_norm.weight", DType::kF32, {256}), tensor("blk.0.ssm_conv1d.weight", DType::kF32, {4, 256}),
                                        tensor("output.weight", DType::kQ6_K, {256, 100})};
  const auto types = [&](std::vector<std::string> rules) {
    std::vector<TranscodeRule> parsed;
    for (const std::string& rule : rules) parsed.push_back(parse_transcode_rule(rule));
    return transcoded_types(parsed, tensors, "model");
  };
  const auto found = types({"down=Q8_0", ".*=Q6_K"});
  EXPECT_EQ(found.size(), 2u);  // output has the type already, vectors and convolutions keep theirs
  EXPECT_EQ(found.at("blk.0.ffn_down_exps.weight"), DType::kQ8_0);
  EXPECT_EQ(found.at("blk.0.ffn_up_exps.weight"), DType::kQ6_K);
  EXPECT_THAT(thrown_by([&] { types({".*=Q6_K"}); }).message, HasSubstr("whole blocks of Q6_K"));
  EXPECT_THAT(thrown_by([&] { types({"attn_norm=Q8_0"}); }).message, HasSubstr("no matrix"));
  EXPECT_EQ(thrown_by([&] { types({"nothing=Q8_0"}); }).kind, ErrorKind::kUsage);
}

TEST(TranscodeRules, WhatCannotBeCodedAnewIsRefused) {
  const auto refused = [&](const TensorInfo& item) {
    return thrown_by([&] { transcoded_types({parse_transcode_rule(".*=Q8_0")}, {item}, "model"); });
  };
  EXPECT_THAT(refused(tensor("per_layer_token_embd.weight", DType::kF16, {64, 1000})).message, HasSubstr("lookup table"));
  EXPECT_EQ(refused(tensor("a.weight", DType::kF8_E4M3, {64, 64})).kind, ErrorKind::kUnsupported);
  EXPECT_EQ(refused(tensor("a.weight", DType::kNVFP4, {64, 64})).kind, ErrorKind::kUnsupported);
}

TEST(Transcoder, CodesRowsAndMeasuresTheError) {
  constexpr uint64_t kColumns = 256, kRows = 5;
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> values(kColumns * kRows);
  for (float& value : values) value = normal(random);
  for (const DType to : {DType::kQ8_0, DType::kQ6_K, DType::kQ4_K, DType::kIQ4_NL, DType::kBF16, DType::kF32}) {
    std::vector<std::byte> expected(kRows * row_bytes(to, kColumns)), found(expected.size());
    quantize_rows(to, kRows, kColumns, values, {}, expected);
    std::vector<float> scratch(values.size());
    const CodingError sums = Transcoder(std::nullopt).encode({"a.weight", DType::kF32, to, kColumns, kRows}, std::as_bytes(std::span(values)), scratch, found);
    EXPECT_EQ(found, expected);
    double error = 0, square = 0;
    std::vector<float> coded(kColumns);
    for (uint64_t r = 0; r < kRows; ++r) {
      dequantize_row(to, expected.data() + r * row_bytes(to, kColumns), coded.data(), kColumns);
      for (uint64_t c = 0; c < kColumns; ++c) {
        error += std::pow(double{values[r * kColumns + c]} - coded[c], 2);
        square += std::pow(double{values[r * kColumns + c]}, 2);
      }
    }
    EXPECT_DOUBLE_EQ(sums.error, error);
    EXPECT_DOUBLE_EQ(sums.square, square);
  }
}

TEST(Transcoder, SecondScalesLieBesideNvfp4) {
  std::vector<TensorInfo> tensors{tensor("blk.0.ffn_up_exps.weight", DType::kBF16, {64, 32, 4}), tensor("blk.0.attn_q.weight", DType::kBF16, {64, 32}),
                                  tensor("blk.0.attn_k.weight", DType::kBF16, {64, 32})};
  const auto scales = second_scales({{"blk.0.ffn_up_exps.weight", DType::kNVFP4}, {"blk.0.attn_q.weight", DType::kNVFP4}, {"blk.0.attn_k.weight", DType::kQ8_0}},
                                    tensors);
  ASSERT_EQ(scales.size(), 2u);
  EXPECT_EQ(scales[0].name, "blk.0.ffn_up_exps.scale");
  EXPECT_EQ(scales[0].shape.ne[2], 4u);
  EXPECT_EQ(scales[1].name, "blk.0.attn_q.scale");
  EXPECT_EQ(scales[1].shape.elements(), 1u);
}

}  // namespace
}  // namespace tierpack::repack

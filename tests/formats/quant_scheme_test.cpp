#include "formats/quant_scheme.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>

#include "formats/quant_decode.h"

namespace tierpack {
namespace {

struct Item {
  std::string name;
  HfType dtype;
  std::vector<uint64_t> shape;
  std::vector<uint8_t> bytes = {};  // zeros when empty
};

// A checkpoint of one file in memory.
class Made {
 public:
  explicit Made(const std::vector<Item>& items) {
    std::string header = "{", data;
    for (const Item& item : items) {
      uint64_t bytes = hf_traits(item.dtype).bits / 8;
      for (const uint64_t n : item.shape) bytes *= n;
      std::string content(item.bytes.begin(), item.bytes.end());
      content.resize(bytes, '\0');
      header +=
          fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", header.size() > 1 ? "," : "",
                      item.name, hf_type_name(item.dtype), hf_shape_text(item.shape), data.size(), data.size() + bytes);
      data += content;
    }
    header += "}";
    const uint64_t length = header.size();
    text_ = std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
    source_ = SafetensorsSource::open_single(std::make_unique<MemorySource>(as_bytes(text_), "made"), "made");
  }
  const SafetensorsSource& source() const { return source_; }

 private:
  std::string text_;
  SafetensorsSource source_;
};

QuantCatalog recognise(const Made& made, const QuantConfig& config = {}) {
  return recognise_weights(made.source(), config);
}

// The only problem of a checkpoint.
QuantProblem problem_of(const std::vector<Item>& items, const QuantConfig& config = {}) {
  const Made made(items);
  const QuantCatalog catalog = recognise(made, config);
  EXPECT_EQ(catalog.problems.size(), 1u);
  return catalog.problems.empty() ? QuantProblem{} : catalog.problems.front();
}

QuantScheme scheme_of(const std::vector<Item>& items) {
  const Made made(items);
  const QuantCatalog catalog = recognise(made);
  EXPECT_TRUE(catalog.problems.empty()) << catalog.problems.front().message;
  EXPECT_EQ(catalog.weights.size(), 1u);
  return catalog.weights.at(0).scheme;
}

constexpr HfType kU8 = HfType::kU8, kF8 = HfType::kF8E4M3, kF32 = HfType::kF32, kBF16 = HfType::kBF16;

TEST(QuantScheme, EveryTensorHasOnePlace) {
  const Made made({{"a.weight", kBF16, {4, 32}},
                   {"b.weight", kU8, {4, 16}},
                   {"b.weight_scale", kF8, {4, 2}},
                   {"b.weight_scale_2", kF32, {}},
                   {"b.input_scale", kF32, {}},
                   {"c.weight", kF8, {200, 100}},
                   {"c.weight_scale_inv", kF32, {2, 1}},
                   {"k_proj.k_scale", kF32, {}},
                   {"experts.w_blocks", kU8, {2, 3, 1, 16}},
                   {"experts.w_scales", kU8, {2, 3, 1}},
                   {"d.weight_packed", kU8, {4, 8}},
                   {"d.weight_scale", kF8, {4, 1}},
                   {"d.weight_global_scale", kF32, {1}},
                   {"hash.multipliers", HfType::kI64, {3}}});
  const QuantCatalog catalog = recognise(made);
  EXPECT_NO_THROW(catalog.require_readable("made"));
  ASSERT_EQ(catalog.weights.size(), 6u);
  EXPECT_EQ(catalog.ignored.size(), 2u);
  EXPECT_EQ(catalog.find("a.weight")->scheme, QuantScheme::kPlain);
  EXPECT_EQ(catalog.find("b.weight")->scheme, QuantScheme::kNvfp4);
  EXPECT_EQ(hf_shape_text(catalog.find("b.weight")->shape), "[4, 32]");
  EXPECT_FALSE(catalog.find("b.weight")->scale_2_divides);
  EXPECT_EQ(catalog.find("c.weight")->scheme, QuantScheme::kFp8Block);
  EXPECT_EQ(catalog.find("experts.w")->scheme, QuantScheme::kMxfp4);
  EXPECT_EQ(hf_shape_text(catalog.find("experts.w")->shape), "[2, 3, 32]");
  EXPECT_EQ(catalog.find("experts.w")->rows(), 6u);
  EXPECT_EQ(catalog.find("d.weight")->scheme, QuantScheme::kNvfp4);
  EXPECT_TRUE(catalog.find("d.weight")->scale_2_divides);
  EXPECT_EQ(catalog.find("d.weight_packed"), nullptr);
  EXPECT_EQ(catalog.find("hash.multipliers")->scheme, QuantScheme::kPlain);
}

TEST(QuantScheme, DecidesFp8ByTheShapeOfTheScales) {
  const auto fp8 = [](std::vector<uint64_t> weight, std::vector<uint64_t> scale, HfType type = kF32) {
    return scheme_of({{"a.weight", kF8, weight}, {"a.weight_scale", type, scale}});
  };
  EXPECT_EQ(fp8({300, 200}, {}), QuantScheme::kFp8Tensor);
  EXPECT_EQ(fp8({300, 200}, {1}), QuantScheme::kFp8Tensor);
  EXPECT_EQ(fp8({300, 200}, {300}), QuantScheme::kFp8Channel);
  EXPECT_EQ(fp8({300, 200}, {300, 1}), QuantScheme::kFp8Channel);
  EXPECT_EQ(fp8({300, 200}, {3, 2}), QuantScheme::kFp8Block);
  EXPECT_EQ(fp8({300, 200}, {3, 1, 2, 1}, kBF16), QuantScheme::kFp8Block);
  EXPECT_EQ(fp8({4, 512}, {1, 4}), QuantScheme::kFp8Block) << "as many blocks as rows";
  EXPECT_EQ(fp8({4, 512}, {4, 1}), QuantScheme::kFp8Channel);
  EXPECT_EQ(fp8({5, 300, 200}, {5}), QuantScheme::kFp8Tensor);
  EXPECT_EQ(fp8({5, 300, 200}, {5, 1, 1}), QuantScheme::kFp8Tensor);
  EXPECT_EQ(fp8({5, 300, 200}, {5, 3, 2}), QuantScheme::kFp8Block);
  EXPECT_EQ(fp8({5, 300, 200}, {5, 300, 1}), QuantScheme::kFp8Channel);
  EXPECT_EQ(fp8({300, 64}, {300, 2}, HfType::kU8), QuantScheme::kMxfp8);
  EXPECT_EQ(fp8({300, 256}, {3, 2}, HfType::kF8E8M0), QuantScheme::kFp8Block);
}

TEST(QuantScheme, Fp8WithoutScaleIsPlain) {
  EXPECT_EQ(scheme_of({{"ple.ngram_embedding.shard_0.weight", kF8, {10, 4}}}), QuantScheme::kPlain);
}

TEST(QuantScheme, TheConfigurationGivesTheBlockSize) {
  const std::vector<Item> items = {{"a.weight", kF8, {300, 200}}, {"a.weight_scale_inv", kF32, {5, 4}}};
  EXPECT_EQ(problem_of(items).kind, ErrorKind::kUnsupported);
  const Made made(items);
  const QuantCatalog catalog =
      recognise(made, parse_quant_config(R"({"quantization_config":{"weight_block_size":[64,50]}})", "", "test"));
  EXPECT_TRUE(catalog.problems.empty());
  EXPECT_EQ(catalog.weights[0].block_rows, 64u);
  EXPECT_EQ(catalog.weights[0].block_columns, 50u);
}

TEST(QuantScheme, NamesWhatIsMissingOrContradictory) {
  EXPECT_EQ(problem_of({{"a.weight", kU8, {4, 16}}, {"a.weight_scale", kF8, {4, 2}}}).kind, ErrorKind::kCorrupt);
  EXPECT_EQ(problem_of({{"a.weight", kU8, {4, 16}},
                        {"a.weight_scale", kF8, {4, 2}},
                        {"a.weight_scale_2", kF32, {}},
                        {"a.weight_global_scale", kF32, {}}})
                .kind,
            ErrorKind::kCorrupt);
  EXPECT_EQ(
      problem_of({{"a.weight", kU8, {4, 16}}, {"a.weight_scale", kF8, {4, 2}}, {"a.weight_scale_2", kF32, {3}}}).kind,
      ErrorKind::kCorrupt);
  EXPECT_EQ(problem_of({{"a.weight_packed", kU8, {4, 16}}, {"a.weight_global_scale", kF32, {1}}}).kind,
            ErrorKind::kCorrupt);
  EXPECT_EQ(problem_of({{"a.weight", kBF16, {4, 16}}, {"a.weight_scale", kF8, {4, 1}}}).tensor, "a.weight_scale");
  EXPECT_EQ(problem_of({{"w_blocks", kU8, {4, 2, 16}}}).kind, ErrorKind::kCorrupt);
  EXPECT_EQ(problem_of({{"w_blocks", kU8, {4, 2, 8}}, {"w_scales", kU8, {4, 2}}}).kind, ErrorKind::kCorrupt);
  EXPECT_EQ(problem_of({{"w_blocks", kU8, {4, 2, 16}}, {"w_scales", kU8, {4, 3}}}).kind, ErrorKind::kCorrupt);
  // The transposed stacks of Llama 4 are not mistaken for ours.
  EXPECT_EQ(
      problem_of({{"experts.gate_up_proj", kU8, {2, 16, 64}}, {"experts.gate_up_proj_weight_scale", kF8, {2, 2, 64}}})
          .kind,
      ErrorKind::kUnsupported);
  EXPECT_EQ(problem_of({{"a.weight", kF8, {4, 16}}, {"a.weight_scale", kF32, {4, 16}}}).kind, ErrorKind::kUnsupported);
  EXPECT_EQ(problem_of({{"a.weight", kF8, {4, 16}}, {"a.weight_scale", kU8, {4}}}).kind, ErrorKind::kUnsupported);
  EXPECT_NE(problem_of({{"a.weight", kF8, {4, 16}}, {"a.weight_scale", kF32, {}}, {"a.weight_scale_inv", kF32, {}}})
                .message.find("already is the scale"),
            std::string::npos);
  EXPECT_NE(problem_of({{"a.weight", kBF16, {4, 16}},
                        {"a.weight_packed", kU8, {4, 8}},
                        {"a.weight_scale", kF8, {4, 1}},
                        {"a.weight_global_scale", kF32, {1}}})
                .message.find("twice"),
            std::string::npos);
}

TEST(QuantScheme, RefusesFormsThatItDoesNotImplement) {
  for (const std::vector<Item>& items :
       std::vector<std::vector<Item>>{{{"a.qweight", HfType::kI32, {4, 2}}},
                                      {{"a.weight", kBF16, {2, 2}}, {"a.pre_quant_scale", kBF16, {2}}},
                                      {{"a.weight_packed", HfType::kI32, {4, 2}},
                                       {"a.weight_scale", kBF16, {4, 1}},
                                       {"a.weight_shape", HfType::kI64, {2}}},
                                      {{"a.weight", HfType::kI8, {4, 2}}, {"a.weight_scale", kF32, {4}}},
                                      {{"a.weight", kU8, {8, 1}}, {"a.weight.absmax", kF32, {1}}},
                                      {{"a.weight", kU8, {8, 2}}, {"a.weight_scale", kF32, {8}}},
                                      {{"a.trellis", HfType::kI16, {8, 2}}},
                                      {{"a.weight_quantizer._svdquant_lora_a", kBF16, {2, 2}}}}) {
    EXPECT_EQ(problem_of(items).kind, ErrorKind::kUnsupported) << items[0].name;
  }
  QuantConfig config;
  config.method = "gptq";
  EXPECT_NE(problem_of({{"a.weight", kBF16, {2}}}, config).message.find("'gptq'"), std::string::npos);
  const Made made({{"a.qweight", HfType::kI32, {4, 2}}, {"a.qzeros", HfType::kI32, {4, 2}}});
  try {
    recognise(made).require_readable("model");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUnsupported);
    EXPECT_NE(std::string(e.what()).find("(1 more such problems)"), std::string::npos) << e.what();
  }
}

TEST(QuantScheme, ReadsTheConfigurationsOfBothWriters) {
  const QuantConfig fp8 = parse_quant_config(
      R"({"text_config":{"quantization_config":{"quant_method":"fp8","weight_block_size":[64,32]}}})", "", "test");
  EXPECT_EQ(fp8.method, "fp8");
  EXPECT_EQ(fp8.block_rows, 64u);
  EXPECT_EQ(fp8.block_columns, 32u);
  const QuantConfig modelopt = parse_quant_config(
      "{}", R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"NVFP4","group_size":16}})", "test");
  EXPECT_EQ(modelopt.method, "modelopt");
  EXPECT_EQ(modelopt.algorithm, "NVFP4");
  EXPECT_EQ(modelopt.block_rows, 128u);
  EXPECT_EQ(parse_quant_config("", "", "test").method, "");
  EXPECT_EQ(parse_quant_config(R"({"quantization_config":{"weight_block_size":null}})", "", "test").block_rows, 128u);
  for (const char* bad : {R"({"quantization_config":{"weight_block_size":[0,128]}})",
                          R"({"quantization_config":{"weight_block_size":[128]}})",
                          R"({"quantization_config":{"weight_block_size":[-1,2]}})",
                          R"({"quantization_config":{"weight_block_size":"x"}})", "{"}) {
    EXPECT_THROW(parse_quant_config(bad, "", "test"), Error) << bad;
  }
}

// One weight worked by hand: codes 1 and 10 (0.5 and -1), block scale 0x40 = 2, second scale 3.
TEST(QuantDecode, Nvfp4ByHand) {
  std::vector<uint8_t> codes(8, 0xA1);
  const std::vector<uint8_t> three = {0, 0, 0x40, 0x40};
  const Made multiply({{"a.weight", kU8, {1, 8}, codes},
                       {"a.weight_scale", kF8, {1, 1}, {0x40}},
                       {"a.weight_scale_2", kF32, {}, three}});
  const Made divide({{"a.weight_packed", kU8, {1, 8}, codes},
                     {"a.weight_scale", kF8, {1, 1}, {0x40}},
                     {"a.weight_global_scale", kF32, {1}, three}});
  std::vector<float> out(16);
  const QuantCatalog first = recognise(multiply), second = recognise(divide);
  decode_rows(multiply.source(), first.weights[0], 0, 1, out);
  EXPECT_EQ(out[0], 3.0f);
  EXPECT_EQ(out[1], -6.0f);
  decode_rows(divide.source(), second.weights[0], 0, 1, out);
  EXPECT_EQ(out[14], 1.0f / 3.0f);
  EXPECT_EQ(out[15], -2.0f / 3.0f);
  EXPECT_EQ(second_scale_multipliers(multiply.source(), first.weights[0]), std::vector<float>{3.0f});
  EXPECT_EQ(second_scale_multipliers(divide.source(), second.weights[0]), std::vector<float>{1.0f / 3.0f});
}

TEST(QuantDecode, TheTwoReadingsOfAGlobalScaleDifferByAtMostOneUnit) {
  int different = 0;
  for (int global = 1; global <= 100; ++global) {
    const auto bits = std::bit_cast<std::array<uint8_t, 4>>(static_cast<float>(global));
    const Made made({{"a.weight_packed", kU8, {1, 8}, {0x77, 0x77}},
                     {"a.weight_scale", kF8, {1, 1}, {0x7E}},
                     {"a.weight_global_scale", kF32, {1}, {bits.begin(), bits.end()}}});
    const QuantCatalog catalog = recognise(made);
    std::vector<float> exact(16), product(16);
    decode_rows(made.source(), catalog.weights[0], 0, 1, exact);
    decode_rows(made.source(), catalog.weights[0], 0, 1, product, GlobalScale::kMultiplyByReciprocal);
    const float divisor = static_cast<float>(global);
    EXPECT_EQ(exact[0], 2688.0f / divisor);
    EXPECT_EQ(product[0], 2688.0f * (1.0f / divisor));
    EXPECT_LE(std::abs(exact[0] - product[0]), std::nextafter(exact[0], HUGE_VALF) - exact[0]);
    different += exact[0] != product[0];
  }
  EXPECT_GT(different, 0);
}

TEST(QuantDecode, RefusesTypesThatAreNoNumbers) {
  for (const HfType type : {HfType::kC64, HfType::kF4, HfType::kF6E2M3, HfType::kF8E4M3Fnuz}) {
    std::vector<float> out(8);
    const std::vector<std::byte> raw(64);
    EXPECT_FALSE(is_decodable(type));
    EXPECT_THROW(decode_plain(type, raw.data(), out.data(), 8), Error) << hf_type_name(type);
  }
}

}  // namespace
}  // namespace tierpack

// What a pack must hold for an engine to open it: a change of one tensor at a time.
#include "runtime/model/weights.h"

#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "formats/dequant.h"
#include "tests/runtime/model/model_fixture.h"
#include "tests/runtime/model/random_model.h"
#include "tests/support/tiny_pack.h"

namespace tierpack {
namespace {

using namespace testing_support;

Thrown opening(const RandomModel& model) {
  TempDirectory directory;
  model.gguf.write(directory.path() / "random.gguf");
  return thrown_by([&] {
    EngineOptions options;
    options.pack = make_pack(directory.path() / "random.gguf", directory.path());
    options.threads = 1;
    Engine::open(options);
  });
}

GgufBuilder::Tensor& find(RandomModel& model, const std::string& name) {
  for (GgufBuilder::Tensor& tensor : model.gguf.tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::runtime_error("no tensor " + name);
}

void expect_words(const std::string& message, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(message.find(word), std::string::npos) << message;
}

// Vectors for elementwise use may be of any type, and quantised ones with many rows lie in row groups.
TEST(Weights, GroupedRowsAreDecodedInOrder) {
  const TempDirectory directory;
  const TinyPack tiny(false, {{"m", DType::kQ8_0, {64, 17}}, {"s", DType::kQ4_0, {64, 16, 2}}, {"v", DType::kQ5_1, {64}}});
  tiny.write(directory / "tiny.tierpack");
  const Pack pack = Pack::open(directory / "tiny.tierpack");
  const model::DenseTensors tensors = model::DenseTensors::load(pack, {}, [](uint64_t) {});
  std::vector<std::unique_ptr<float[]>> decoded;
  model::TensorBinder binder(pack, tensors, decoded);
  for (const char* name : {"m", "s", "v"}) {
    const DenseTensor& tensor = *pack.find_dense(name);
    std::vector<float> want(tensor.shape.elements());
    dequantize_row(tensor.dtype, tiny.tensors.at(name).data(), want.data(), want.size());
    const float* const found = binder.floats(name, {tensor.shape});
    EXPECT_EQ(std::memcmp(found, want.data(), want.size() * sizeof(float)), 0) << name;
  }
}

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  const auto* first = reinterpret_cast<const std::byte*>(values.data());
  return {first, first + values.size() * sizeof(float)};
}

// Opens a pack with these tensors and binds "m.weight" {256, 130}.
kernels::MatrixView bind_matrix(const std::vector<ExtraTensor>& tensors, bool all,
                                std::vector<float>* scales = nullptr) {
  const TempDirectory directory;
  std::vector<ExtraTensor> extra = tensors;
  TinyPack(false, extra).write(directory / "tiny.tierpack");
  const Pack pack = Pack::open(directory / "tiny.tierpack");
  const model::DenseTensors dense = model::DenseTensors::load(pack, {}, [](uint64_t) {});
  std::vector<std::unique_ptr<float[]>> decoded;
  model::TensorBinder binder(pack, dense, decoded);
  const kernels::MatrixView w = binder.matrix("m.weight", 256, 130);
  EXPECT_TRUE(scales_fit(w));
  if (scales != nullptr && w.scales != nullptr) {
    const size_t lines = (w.rows + w.scale_rows - 1) / w.scale_rows,
                 columns = (w.cols + w.scale_cols - 1) / w.scale_cols;
    scales->assign(w.scales, w.scales + lines * columns);
  }
  if (all) {
    binder.matrix("token_embd.weight", 64, 4);
    binder.matrix("blk.0.ffn_gate_inp.weight", 64, 3);
    binder.require_all_bound();
  }
  return w;
}

TEST(Weights, ScalesBesideAMatrixBelongToIt) {
  struct Case {
    DType type;
    std::vector<uint64_t> shape;
    size_t count;
    uint32_t scale_rows, scale_cols;
  };
  for (const Case& c : {Case{DType::kF8_E4M3, {1}, 1, 130, 256},
                        {DType::kF8_E4M3, {1, 1}, 1, 130, 256},
                        {DType::kF8_E4M3, {1, 130}, 130, 1, 256},
                        {DType::kF8_E4M3, {2, 2}, 4, 128, 128},
                        {DType::kBF16, {2, 2}, 4, 128, 128},
                        {DType::kNVFP4, {1}, 1, 130, 256},
                        {DType::kQ8_0, {1}, 1, 130, 256}}) {
    std::vector<float> values(c.count), found;
    for (size_t i = 0; i < c.count; ++i) values[i] = 0.5f + static_cast<float>(i);
    const ExtraTensor weight{"m.weight", c.type, {256, 130}};
    const kernels::MatrixView w =
        bind_matrix({weight, {"m.scale", DType::kF32, c.shape, bytes_of(values)}, {"m.input_scale", DType::kBF16, {1}}},
                    true, &found);
    EXPECT_EQ(found, values) << dtype_name(c.type);
    EXPECT_EQ(w.scale_rows, c.scale_rows) << dtype_name(c.type);
    EXPECT_EQ(w.scale_cols, c.scale_cols) << dtype_name(c.type);
    EXPECT_EQ(bind_matrix({weight}, true).scales, nullptr);
  }
}

TEST(Weights, ScalesThatDoNotFitAreRefused) {
  const auto problem = [](DType type, std::vector<uint64_t> shape, std::vector<float> values,
                          DType scale_type = DType::kF32) {
    return thrown_by([&] {
      const bool noise = scale_type != DType::kF32;
      bind_matrix({{"m.weight", type, {256, 130}},
                   {"m.scale", scale_type, shape, noise ? std::vector<std::byte>() : bytes_of(values)}},
                  true);
    });
  };
  const std::vector<float> ones(260, 1.0f);
  const auto some = [&](size_t n) {
    return std::vector<float>(ones.begin(), ones.begin() + static_cast<ptrdiff_t>(n));
  };
  for (const std::vector<uint64_t>& shape :
       {std::vector<uint64_t>{130}, {2}, {2, 1}, {1, 2}, {3, 2}, {2, 130}, {1, 1, 2}}) {
    size_t count = 1;
    for (const uint64_t n : shape) count *= n;
    const auto [kind, message] = problem(DType::kF8_E4M3, shape, some(count));
    EXPECT_EQ(kind, ErrorKind::kCorrupt) << message;
    expect_words(message, {"m.scale", "m.weight", "F8_E4M3"});
  }
  EXPECT_EQ(problem(DType::kNVFP4, {1, 130}, some(130)).kind, ErrorKind::kCorrupt);
  EXPECT_EQ(problem(DType::kNVFP4, {2, 2}, some(4)).kind, ErrorKind::kCorrupt);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const auto [kind, message] = problem(DType::kF8_E4M3, {2, 2}, {1, 1, bad, 1});
    EXPECT_EQ(kind, ErrorKind::kCorrupt) << message;
    expect_words(message, {"m.scale", "scale 2"});
  }
  EXPECT_EQ(problem(DType::kF8_E4M3, {1}, {}, DType::kF16).kind, ErrorKind::kUnsupported);
}

TEST(Weights, ScalesOfNoMatrixAreRefused) {
  const auto [kind, message] = thrown_by([] {
    bind_matrix({{"m.weight", DType::kBF16, {256, 130}}, {"n.scale", DType::kF32, {1}, bytes_of({1})}}, true);
  });
  EXPECT_EQ(kind, ErrorKind::kUnsupported);
  expect_words(message, {"n.scale"});
}

TEST(Weights, RandomModelsOpen) {
  EXPECT_EQ(opening(random_qwen3moe()).message, "nothing was thrown");
  EXPECT_EQ(opening(random_qwen4exp()).message, "nothing was thrown");
}

TEST(Weights, EveryMissingDenseTensorIsNamed) {
  for (const RandomModel& whole : {random_qwen3moe(), random_qwen4exp()}) {
    for (const auto& [name, values] : whole.tensors) {
      // Tied embeddings and draft heads may lack these; experts and tables are the pack's own business.
      if (name == "output.weight" || name.find("_exps") != std::string::npos || name.find("per_layer") == 0) continue;
      if (name.find("blk.") == 0 && name.find("blk.1.") != 0 && name.find("ple") == std::string::npos &&
          name.find("nextn") == std::string::npos && name.find("ssm") == std::string::npos) {
        continue;  // one block of each kind is enough
      }
      RandomModel model = whole;
      model.remove(name);
      const auto [kind, message] = opening(model);
      EXPECT_EQ(kind, ErrorKind::kCorrupt) << name << ": " << message;
      expect_words(message, {name.c_str()});
    }
  }
}

TEST(Weights, AnotherShapeIsAnErrorWithBothShapes) {
  RandomModel model = random_qwen3moe();
  find(model, "blk.1.attn_k.weight").shape = {20, 40};
  const auto [kind, message] = opening(model);
  EXPECT_EQ(kind, ErrorKind::kCorrupt);
  expect_words(message, {"blk.1.attn_k.weight", "{20, 40}", "{40, 20}"});
}

TEST(Weights, ATensorTheGraphDoesNotKnowIsRefused) {
  RandomModel model = random_qwen3moe();
  model.add("blk.0.attn_q.bias", {60}, 1);
  const auto [kind, message] = opening(model);
  EXPECT_EQ(kind, ErrorKind::kUnsupported);
  expect_words(message, {"blk.0.attn_q.bias", "qwen3moe"});
}

TEST(Weights, ATypeNoProductReadsIsRefused) {
  RandomModel model = random_qwen3moe();
  GgufBuilder::Tensor& tensor = find(model, "blk.0.attn_q.weight");
  tensor.type = static_cast<int32_t>(DType::kI32);
  const auto [kind, message] = opening(model);
  EXPECT_EQ(kind, ErrorKind::kUnsupported);
  expect_words(message, {"blk.0.attn_q.weight", "I32"});
}

TEST(Weights, AGammaMayBeStoredFlatOrByStream) {
  RandomModel model = random_qwen4exp();
  find(model, "blk.1.hc_attn_norm.weight").shape = {120};
  find(model, "blk.0.ple_norm_key.weight").shape = {40, 3};
  EXPECT_EQ(opening(model).message, "nothing was thrown");
}

TEST(Weights, AnUnusedIndexerMayBeThereOrNot) {
  RandomModel model = random_qwen4exp();  // its draft block has ratio 0 and an indexer
  for (const char* name : {"q_proj", "k_proj", "q_norm", "k_norm"}) {
    model.remove("blk.4.indexer." + std::string(name) + ".weight");
  }
  EXPECT_EQ(opening(model).message, "nothing was thrown");
}

}  // namespace
}  // namespace tierpack

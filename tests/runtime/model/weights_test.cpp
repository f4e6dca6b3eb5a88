// What a pack must hold for an engine to open it: a change of one tensor at a time.
#include "runtime/model/weights.h"

#include <cstring>

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
  ThreadTeam team(1);
  const model::DenseTensors tensors = model::DenseTensors::load(pack, team, [](uint64_t) {});
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

// Products of quantised weights with f32 activations: a model whose matrices are NVFP4 with second scales gives the
// bits of the model of its decoded weights, and those of a plain computation nearly.
#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "formats/dequant.h"
#include "runtime/kernels/kernels.h"
#include "tests/runtime/model/model_fixture.h"
#include "tests/runtime/model/plain_model.h"
#include "tests/runtime/model/random_model.h"

namespace tierpack {
namespace {

using namespace testing_support;

// Replaces the matrices (but for routers) by random NVFP4 ones with a second scale beside them, one an expert for
// stacks, and `tensors` by what they decode to.
void quantise(RandomModel& model) {
  std::mt19937 random(3);
  std::vector<std::pair<std::string, std::vector<float>>> scales;
  for (GgufBuilder::Tensor& tensor : model.gguf.tensors) {
    if (tensor.shape.size() < 2 || tensor.name.find("ffn_gate_inp") != std::string::npos) continue;
    const uint64_t matrices = tensor.shape.size() == 3 ? tensor.shape[2] : 1;
    std::vector<float>& values = model.tensors[tensor.name];
    tensor.type = static_cast<int32_t>(DType::kNVFP4);
    tensor.bytes.resize(values.size() / 64 * 36);
    for (size_t i = 0; i < tensor.bytes.size(); ++i) {
      tensor.bytes[i] = static_cast<std::byte>(i % 36 < 4 ? 0x28 + random() % 24 : random() % 256);
    }
    dequantize_row(DType::kNVFP4, tensor.bytes.data(), values.data(), values.size());
    const std::string base = tensor.name.substr(0, tensor.name.size() - 7);
    std::vector<float> factors(matrices);
    for (float& f : factors)
      f = (tensor.name == "token_embd.weight" ? 0.5f : 0.1f) * static_cast<float>(500 + random() % 1000) / 1000.0f;
    const size_t each = values.size() / matrices;
    for (size_t i = 0; i < values.size(); ++i) values[i] *= factors[i / each];
    scales.emplace_back(base + ".scale", factors);
  }
  for (const auto& [name, factors] : scales) model.gguf.add_f32(name, {factors.size()}, factors);
  model.gguf.add_f32("blk.0.attn_q.input_scale", {1}, {0.01f});
}

// The same model with its decoded weights as F32.
GgufBuilder decoded(const RandomModel& model) {
  GgufBuilder gguf = model.gguf;
  std::erase_if(gguf.tensors, [](const GgufBuilder::Tensor& t) { return t.name.ends_with("scale"); });
  for (GgufBuilder::Tensor& tensor : gguf.tensors) {
    const auto* bytes = reinterpret_cast<const std::byte*>(model.tensors.at(tensor.name).data());
    tensor.type = static_cast<int32_t>(DType::kF32);
    tensor.bytes.assign(bytes, bytes + model.tensors.at(tensor.name).size() * sizeof(float));
  }
  return gguf;
}

class Activations : public testing::Test {
 protected:
  Activations() {
    quantise(model_);
    model_.gguf.write(directory_ / "nvfp4.gguf");
    decoded(model_).write(directory_ / "f32.gguf");
    quantised_ = make_pack(directory_ / "nvfp4.gguf", directory_.path(), "nvfp4");
    plain_ = make_pack(directory_ / "f32.gguf", directory_.path(), "f32");
  }
  LogitRows run(const std::filesystem::path& pack, ActivationType activations, int threads = 2, uint32_t chunk = 7,
                const std::string& isa = "") {
    EngineOptions options;
    options.pack = pack;
    options.threads = threads;
    options.chunk = chunk;
    options.isa = isa;
    options.kv = KvType::kF32;
    options.activations = activations;
    return append_all(*Engine::open(options)->new_session(), tokens_);
  }

  TempDirectory directory_;
  RandomModel model_ =
      random_qwen3moe({.hidden = 128, .heads = 4, .kv_heads = 2, .head_dim = 48, .experts = 5, .ff = 64, .layers = 2});
  const std::vector<uint32_t> tokens_ = some_tokens(24, 50);
  std::filesystem::path quantised_, plain_;
};

TEST_F(Activations, F32GivesTheBitsOfTheDecodedModel) {
  const std::string expected = fingerprint(run(plain_, ActivationType::kInt8));
  EXPECT_EQ(fingerprint(run(plain_, ActivationType::kF32)),
            expected);  // plain numbers never meet quantised activations
  EXPECT_EQ(fingerprint(run(quantised_, ActivationType::kF32)), expected);
  for (const kernels::KernelTable* table : kernels::available()) {
    for (const uint32_t chunk : {1u, 24u}) {
      EXPECT_EQ(fingerprint(run(quantised_, ActivationType::kF32, chunk == 1 ? 3 : 1, chunk, table->name)), expected)
          << table->name << ", chunks of " << chunk;
    }
  }
}

TEST_F(Activations, BothAreCloseToThePlainComputation) {
  const std::unique_ptr<Engine> engine = Engine::open([&] {
    EngineOptions options;
    options.pack = quantised_;
    return options;
  }());
  PlainModel plain(engine->config(), model_.tensors);
  const PlainModel::Rows expected = plain.run(tokens_);
  // Largest and mean difference, as shares of the largest value.
  const auto distance = [&](const LogitRows& rows) {
    double largest = 0, difference = 0, sum = 0;
    for (size_t t = 0; t < rows.size(); ++t) {
      for (size_t i = 0; i < rows[t].size(); ++i) {
        largest = std::max(largest, std::fabs(expected[t][i]));
        const double here = std::fabs(expected[t][i] - static_cast<double>(rows[t][i]));
        difference = std::max(difference, here);
        sum += here;
      }
    }
    EXPECT_GT(largest, 0.5);
    return std::pair(difference / largest, sum / static_cast<double>(rows.size() * rows[0].size()) / largest);
  };
  EXPECT_LT(distance(run(quantised_, ActivationType::kF32)).first, 1e-5);
  const double int8 = distance(run(quantised_, ActivationType::kInt8)).second;
  EXPECT_GT(int8, 1e-4);
  EXPECT_LT(int8, 0.05);
}

TEST_F(Activations, Int8GivesOneAnswerWithSecondScales) {
  const std::string expected = fingerprint(run(quantised_, ActivationType::kInt8));
  for (const kernels::KernelTable* table : kernels::available()) {
    for (const uint32_t chunk : {1u, 5u, 24u}) {
      EXPECT_EQ(fingerprint(run(quantised_, ActivationType::kInt8, chunk == 5 ? 3 : 1, chunk, table->name)), expected)
          << table->name << ", chunks of " << chunk;
    }
  }
}

}  // namespace
}  // namespace tierpack

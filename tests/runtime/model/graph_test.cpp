// Both architectures against a plain double-precision computation of the same random weights.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/runtime/model/model_fixture.h"
#include "tests/runtime/model/plain_model.h"
#include "tests/runtime/model/random_model.h"

namespace tierpack {
namespace {

using namespace testing_support;

void expect_agreement(const RandomModel& model, std::vector<uint32_t> tokens) {
  TempDirectory directory;
  model.gguf.write(directory.path() / "random.gguf");
  EngineOptions options;
  options.pack = make_pack(directory.path() / "random.gguf", directory.path());
  options.threads = 2;
  options.chunk = 7;
  options.kv = KvType::kF32;
  const std::unique_ptr<Engine> engine = Engine::open(options);
  PlainModel plain(engine->config(), model.tensors);
  const PlainModel::Rows expected = plain.run(tokens);

  const std::unique_ptr<Session> session = engine->new_session();
  Decisions decisions;
  session->set_observer(&decisions);
  const LogitRows found = append_all(*session, tokens);
  EXPECT_EQ(decisions.routes, plain.routes);
  EXPECT_EQ(decisions.attended, plain.attended);
  ASSERT_EQ(found.size(), expected.size());
  double largest = 0;
  double difference = 0;
  for (size_t t = 0; t < found.size(); ++t) {
    ASSERT_EQ(found[t].size(), expected[t].size());
    for (size_t i = 0; i < found[t].size(); ++i) {
      largest = std::max(largest, std::fabs(expected[t][i]));
      difference = std::max(difference, std::fabs(expected[t][i] - static_cast<double>(found[t][i])));
    }
  }
  EXPECT_GT(largest, 0.5);  // the comparison compares something
  EXPECT_LT(difference, 3e-5 * largest);
}

TEST(Graph, Qwen3MoeEqualsThePlainComputation) { expect_agreement(random_qwen3moe(), some_tokens(40, 50)); }

TEST(Graph, Qwen4ExpEqualsThePlainComputation) {
  // Past the indexer's budget in both attention blocks, with the n-gram's end token in the middle.
  std::vector<uint32_t> tokens = some_tokens(48, 49);
  tokens[20] = 49;
  tokens[21] = 49;
  expect_agreement(random_qwen4exp(), tokens);
}

TEST(Graph, TiedEmbeddingServesAsOutput) {
  RandomModel model = random_qwen3moe();
  model.remove("output.weight");
  RandomModel plain = model;
  plain.tensors["output.weight"] = plain.tensors["token_embd.weight"];
  expect_agreement(plain, some_tokens(12, 50));
}

}  // namespace
}  // namespace tierpack

// Counting on the embedded model: the same profile however it is computed.
#include <gtest/gtest.h>

#include "base/file.h"
#include "calibrate/expert_counts.h"
#include "tests/runtime/model/model_fixture.h"

namespace tierpack::calibrate {
namespace {

using testing_support::pebble_pack;

Profile profile_of(int threads, uint32_t chunk, const std::vector<Corpus>& corpora) {
  EngineOptions options;
  options.pack = pebble_pack();
  options.threads = threads;
  options.chunk = chunk;
  const std::unique_ptr<Engine> engine = Engine::open(options);
  CountOptions count;
  count.window = 200;
  const ModelIdentity identity{engine->pack().manifest().routing_id, "test"};
  return count_experts(*engine, identity, corpora, tokenize(*engine, corpora), count);
}

TEST(CalibratePebble, ThreadsAndChunksDoNotMatter) {
  const std::string directory = std::string(TIERPACK_SOURCE_DIR) + "/models/pebble/corpus/";
  const std::vector<Corpus> corpora = {{"chat", read_text_file(directory + "chat.txt", 1 << 20).substr(0, 1500)},
                                       {"code", read_text_file(directory + "code.txt", 1 << 20).substr(0, 700)}};
  const Profile one = profile_of(1, 512, corpora);
  EXPECT_EQ(one.layers, 6u);
  EXPECT_EQ(one.experts, 32u);
  for (uint32_t layer = 0; layer < one.layers; ++layer) {
    uint64_t routed = 0;
    double weight = 0;
    for (uint32_t e = 0; e < one.experts; ++e) {
      routed += one.count(layer, e);
      weight += one.weights[size_t{layer} * one.experts + e];
    }
    EXPECT_EQ(routed, one.tokens() * 4);
    EXPECT_NEAR(weight, static_cast<double>(one.tokens()), 1e-3 * static_cast<double>(one.tokens()));
  }
  // Routing is uneven: that is what a profile is for.
  for (const LayerCoverage& layer : coverage(one)) EXPECT_GT(layer.top_quarter, 0.3);
  EXPECT_EQ(encode_profile(one), encode_profile(profile_of(2, 33, corpora)));
}

}  // namespace
}  // namespace tierpack::calibrate

// The order in which a store hands out experts is no part of the answer.
#include <gtest/gtest.h>

#include "runtime/model/model.h"
#include "tests/runtime/experts/shuffling_store.h"
#include "tests/runtime/experts/store_fixture.h"
#include "tests/runtime/model/model_fixture.h"

namespace tierpack::model {
namespace {

using namespace testing_support;

std::string run(const Pack& pack, ExpertStore& store, ThreadTeam& team, uint32_t chunk) {
  const std::vector<uint32_t> tokens = some_tokens(40, pack.config().vocab);
  ModelWeights weights = bind_weights(pack, DenseTensors::load(pack, {}, [](uint64_t) {}));
  const std::unique_ptr<Model> model =
      make_model({pack, std::move(weights), store, kernels::best(), team, chunk, 64, ActivationType::kInt8, {}});
  SessionState state(pack.config(), 64, kernels::KvType::kF32);
  Xxh3Stream hash;
  for (uint32_t at = 0; at < tokens.size(); at += chunk) {
    const uint32_t count = std::min<uint32_t>(chunk, static_cast<uint32_t>(tokens.size()) - at);
    model->forward({std::span(tokens).first(at + count), at, count, nullptr}, state);
    for (uint32_t t = 0; t < count; ++t) hash.update(std::as_bytes(model->logits(t, 1)));
  }
  return hash.digest().hex();
}

TEST(ExpertOrder, ArrivalDoesNotChangeABit) {
  const Pack pack = Pack::open(pebble_pack());
  ThreadTeam team(2);
  std::unique_ptr<ExpertStore> resident = make_store(pack, 1.0);
  const std::string expected = run(pack, *resident, team, 16);
  ShufflingStore shuffling(std::move(resident), 42);
  EXPECT_EQ(run(pack, shuffling, team, 16), expected);
  EXPECT_EQ(run(pack, shuffling, team, 1), expected);
}

}  // namespace
}  // namespace tierpack::model

#include "runtime/model/sparse_attention.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace tierpack::model {
namespace {

constexpr uint32_t kHeads = 2, kDim = 8, kRatio = 4, kBudget = 12, kCapacity = 64;

// One query over block keys that the test writes.
class SelectVisible : public testing::Test {
 protected:
  SelectVisible() : team_(1), compute_{kernels::best(), team_} {
    config_.architecture = Architecture::kQwen4Exp;
    config_.vocab = config_.hidden = config_.layers = config_.heads = config_.kv_heads = 1;
    config_.head_dim = config_.rotary_dim = 2;
    config_.experts = config_.experts_used = config_.expert_ff = 1;
    config_.recurrent = {false};
    config_.compress_ratio = {kRatio};
    config_.gdn = {2, 1, 1, 1};
    config_.indexer = {kHeads, kDim, kBudget};
    config_.hc = {2, 1};
    Carver count;
    Workspace::carve(count, config_, 4, kCapacity);
    memory_ = CarvedMemory(count.bytes());
    std::memset(memory_.data(), 0, memory_.bytes());
    Carver place(memory_.data());
    ws_ = Workspace::carve(place, config_, 4, kCapacity);
    state_.block_keys = keys_.data();
    weights_.compress_ratio = kRatio;
    // Queries of ones: a block's score is heads * the positive part of the sum of its key.
    std::fill_n(ws_.attention.index_q, size_t{4} * kHeads * kDim, 1.0f);
  }

  void set_score(uint32_t block, float score) { keys_[size_t{block} * kDim] = score / kHeads; }

  std::vector<uint32_t> visible_at(uint32_t position) {
    std::vector<uint32_t> timeline(position + 1);
    const Chunk chunk{timeline, position, 1, nullptr};
    const Pass pass{compute_, config_, chunk, ws_, nullptr};
    select_visible(pass, weights_, state_, 0, 1);
    return {ws_.attention.visible, ws_.attention.visible + ws_.attention.visible_count[0]};
  }

  ModelConfig config_;
  ThreadTeam team_;
  Compute compute_;
  CarvedMemory memory_;
  Workspace ws_;
  std::vector<float> keys_ = std::vector<float>(kCapacity / kRatio * kDim);
  AttentionState state_;
  AttentionWeights weights_;
};

TEST_F(SelectVisible, TakesTheBestBlocksAndTheTail) {
  for (const uint32_t block : {1u, 4u, 6u}) set_score(block, 2.0f + static_cast<float>(block));
  EXPECT_EQ(visible_at(29), (std::vector<uint32_t>{4, 5, 6, 7, 16, 17, 18, 19, 24, 25, 26, 27, 28, 29}));
}

TEST_F(SelectVisible, AQueryThatCompletesItsBlockHasNoTail) {
  for (const uint32_t block : {0u, 2u, 5u}) set_score(block, 1.0f);
  // Position 31 is the last token of block 7, which competes and loses: the query does not see itself.
  EXPECT_EQ(visible_at(31), (std::vector<uint32_t>{0, 1, 2, 3, 8, 9, 10, 11, 20, 21, 22, 23}));
}

TEST_F(SelectVisible, EqualScoresGoToTheLowerBlock) {
  EXPECT_EQ(visible_at(23), (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  for (uint32_t block = 2; block < 8; ++block) set_score(block, 3.0f);
  EXPECT_EQ(visible_at(31), (std::vector<uint32_t>{8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}));
}

TEST_F(SelectVisible, NegativeProductsCountAsNothing) {
  set_score(0, -5.0f);  // ties with the untouched blocks at zero, and is the lowest of them
  set_score(7, 1.0f);
  EXPECT_EQ(visible_at(35), (std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 28, 29, 30, 31}));
}

TEST(IsSparse, FromTheFirstBlockBeyondTheBudget) {
  EXPECT_FALSE(is_sparse(14, kRatio, kBudget));
  EXPECT_TRUE(is_sparse(15, kRatio, kBudget));   // completes the fourth block; three fit
  EXPECT_FALSE(is_sparse(2050, 4, 2048));
  EXPECT_TRUE(is_sparse(2051, 4, 2048));
  EXPECT_FALSE(is_sparse(1'000'000, 0, 2048));
}

}  // namespace
}  // namespace tierpack::model

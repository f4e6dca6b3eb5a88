#include "runtime/model/ple.h"

#include <gtest/gtest.h>

namespace tierpack::model {
namespace {

// Qwen3.8-Flash-Next's own constants.
ModelConfig::Ple flagship() {
  ModelConfig::Ple c;
  c.layer = 1;
  c.ngram = 3;
  c.heads_per_ngram = 8;
  c.eos = 248044;
  c.multipliers = {23703573157769u, 20109073645365u, 8052911324071u};
  c.sizes = {20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
             20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171};
  uint64_t offset = 0;
  for (const uint64_t size : c.sizes) {
    c.offsets.push_back(offset);
    offset += size;
  }
  return c;
}

std::vector<uint64_t> rows_of(const std::vector<uint32_t>& timeline) {
  std::vector<uint64_t> rows(16);
  ngram_rows(flagship(), timeline, rows);
  return rows;
}

TEST(NgramRows, AreThoseOfTheReleasedModel) {
  EXPECT_EQ(rows_of({3000, 2000, 1000}),
            (std::vector<uint64_t>{1531522, 26458325, 48967948, 72533165, 95637132, 116681687, 138257734, 140376286,
                                   167316121, 196780774, 201192701, 239730030, 244538402, 269354175, 284294431,
                                   319007479}));
  EXPECT_EQ(rows_of({1000}),
            (std::vector<uint64_t>{1876085, 31308566, 59776718, 71834192, 97499724, 100188615, 134972424, 142751402,
                                   178377549, 180579936, 219367837, 221375066, 245391246, 270637420, 285992863,
                                   304819575}));
}

TEST(NgramRows, AnEndTokenHidesEverythingBeforeIt) {
  EXPECT_EQ(rows_of({3000, 248044, 1000}), rows_of({1000}));
  EXPECT_EQ(rows_of({5, 248044, 2000, 1000}), rows_of({248044, 2000, 1000}));
  EXPECT_EQ(rows_of({2000, 1000}), rows_of({248044, 2000, 1000}));
  EXPECT_NE(rows_of({3000, 2000, 1000}), rows_of({2000, 1000}));
}

TEST(NgramRows, AnEndTokenKeepsItsOwnContext) {
  EXPECT_NE(rows_of({3000, 2000, 248044}), rows_of({248044}));
  EXPECT_NE(rows_of({3000, 2000, 248044}), rows_of({2000, 248044}));
}

}  // namespace
}  // namespace tierpack::model

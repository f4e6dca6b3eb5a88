#include "runtime/text/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tierpack::text {
namespace {

// The definition, step by step.
std::vector<uint32_t> merge_slowly(
    std::vector<uint32_t> symbols,
    const std::map<std::pair<uint32_t, uint32_t>, std::pair<uint32_t, uint32_t>>& table) {
  while (true) {
    size_t best = SIZE_MAX;
    uint32_t best_rank = UINT32_MAX, result = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = table.find({symbols[i], symbols[i + 1]});
      if (found != table.end() && found->second.first < best_rank) {
        best = i, best_rank = found->second.first, result = found->second.second;
      }
    }
    if (best == SIZE_MAX) return symbols;
    symbols[best] = result;
    symbols.erase(symbols.begin() + best + 1);
  }
}

TEST(Bpe, EqualsTheDefinitionOnRandomTables) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const uint32_t alphabet = 2 + random() % 4;
    const uint32_t count = 1 + random() % 40;
    BpeMerges merges(count);
    std::map<std::pair<uint32_t, uint32_t>, std::pair<uint32_t, uint32_t>> table;
    uint32_t next = alphabet;
    for (uint32_t rank = 0; rank < count; ++rank) {
      const uint32_t left = random() % next, right = random() % next;
      merges.add(left, right, rank, next);
      table.emplace(std::pair{left, right}, std::pair{rank, next});
      ++next;
    }
    for (const size_t length : {0, 1, 2, 5, 31, 32, 33, 100, 400}) {
      std::vector<uint32_t> symbols(length);
      for (uint32_t& symbol : symbols) symbol = random() % alphabet;
      const auto expected = merge_slowly(symbols, table);
      merges.apply(symbols);
      ASSERT_EQ(symbols, expected) << "round " << round << ", length " << length;
    }
  }
}

TEST(Bpe, EqualPairsMergeLeftmostFirst) {
  BpeMerges merges(1);
  merges.add(0, 0, 0, 1);
  for (const size_t length : {3, 65}) {
    std::vector<uint32_t> symbols(length, 0);
    merges.apply(symbols);
    std::vector<uint32_t> expected(length / 2, 1);
    expected.push_back(0);
    EXPECT_EQ(symbols, expected);
  }
}

TEST(Bpe, TheFirstOfEqualPairsCounts) {
  BpeMerges merges(2);
  merges.add(0, 1, 0, 2);
  merges.add(0, 1, 1, 3);
  std::vector<uint32_t> symbols = {0, 1};
  merges.apply(symbols);
  EXPECT_EQ(symbols, std::vector<uint32_t>{2});
}

TEST(Bpe, NoMergesAtAll) {
  BpeMerges merges(0);
  std::vector<uint32_t> symbols = {0, 0, UINT32_MAX - 1};
  merges.apply(symbols);
  EXPECT_EQ(symbols.size(), 3u);
}

}  // namespace
}  // namespace tierpack::text

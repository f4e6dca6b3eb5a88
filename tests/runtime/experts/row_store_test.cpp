#include "runtime/experts/row_store.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/threads.h"
#include "tests/runtime/model/model_fixture.h"

namespace tierpack::experts {
namespace {

using testing_support::pebble_pack;

class Faults final : public ReadFaults {
 public:
  std::function<int(uint64_t, MutableBytes, int)> act;
  int after_read(Segment segment, uint64_t offset, MutableBytes piece, int result) override {
    EXPECT_EQ(segment, Segment::kRows);
    return act(offset, piece, result);
  }
};

class RowStoreTest : public testing::Test {
 protected:
  Pack pack_ = Pack::open(pebble_pack());
  const RowTable& table_ = pack_.manifest().rows.at(0);

  bool is_right(RowStore& store, uint64_t row) const {
    std::vector<std::byte> expected(table_.row_bytes);
    std::vector<std::byte> found(table_.row_bytes);
    pack_.read_row(table_, row, expected);
    store.read(table_, row, found);
    return expected == found;
  }
};

TEST_F(RowStoreTest, GivesEveryRowWithAndWithoutRequests) {
  for (const bool ring : {true, false}) {
    for (const bool direct : {true, false}) {
      RowStore store(pack_, {direct, ring, {}, nullptr}, 0);
      std::mt19937_64 random(1);
      for (int i = 0; i < 2000; ++i) {
        const uint64_t row = random() % table_.shape.rows();
        if (i % 3 != 0) {
          std::vector<uint64_t> ahead = {row};
          while (ahead.size() < 1 + i % 40u) ahead.push_back(random() % table_.shape.rows());
          store.request(table_, ahead);
        }
        ASSERT_TRUE(is_right(store, row)) << row;
      }
      EXPECT_TRUE(is_right(store, 0));
      EXPECT_TRUE(is_right(store, table_.shape.rows() - 1));
      const RowCounters c = store.counters();
      EXPECT_EQ(c.rows, 2002u);
      EXPECT_GT(c.hits, 0u);
      EXPECT_LT(c.hits, c.rows);
    }
  }
}

TEST_F(RowStoreTest, ManyThreadsMayRead) {
  RowStore store(pack_, {}, 0);
  ThreadTeam team(4);
  std::atomic<int> wrong{0};
  team.for_each(4000, [&](size_t i) {
    if (!is_right(store, i * 7919 % table_.shape.rows())) ++wrong;
  });
  EXPECT_EQ(wrong, 0);
}

TEST_F(RowStoreTest, OneBadReadIsRepeatedAndTwoAreAnError) {
  Faults faults;
  std::atomic<int> reads{0};
  faults.act = [&](uint64_t, MutableBytes page, int result) {
    if (reads++ == 0) page[5] ^= std::byte{1};
    return result;
  };
  RowStore store(pack_, {true, true, {}, &faults}, 0);
  EXPECT_TRUE(is_right(store, 3));
  EXPECT_EQ(store.counters().retries, 1u);

  bool broken = true;
  faults.act = [&](uint64_t offset, MutableBytes page, int result) {
    if (broken && offset == table_.first_page * kPageBytes) page[5] ^= std::byte{1};
    return result;
  };
  RowStore bad(pack_, {true, true, {}, &faults}, 0);
  std::vector<std::byte> row(table_.row_bytes);
  try {
    bad.read(table_, 0, row);
    FAIL() << "a damaged page was handed out";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kCorrupt);
    EXPECT_NE(std::string(e.what()).find(fmt::format("page {}", table_.first_page)), std::string::npos) << e.what();
  }
  broken = false;
  EXPECT_TRUE(is_right(bad, 0));  // the error is not kept
  faults.act = [](uint64_t, MutableBytes, int) { return -EIO; };
  try {
    bad.read(table_, table_.shape.rows() - 1, row);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kIo);
  }
}

}  // namespace
}  // namespace tierpack::experts

// What every expert store must do, run over each implementation:
//
//   INSTANTIATE_TEST_SUITE_P(Resident, ExpertStoreConformance, testing::Values(StoreMaker{...}));
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/threads.h"
#include "formats/pack.h"
#include "runtime/experts/expert_store.h"
#include "tests/runtime/model/model_fixture.h"

namespace tierpack::testing_support {

struct StoreMaker {
  std::string name;
  std::function<std::unique_ptr<ExpertStore>(const Pack& pack, ThreadTeam& team)> make;
};

class ExpertStoreConformance : public testing::TestWithParam<StoreMaker> {
 protected:
  void SetUp() override {
    pack_ = std::make_unique<Pack>(Pack::open(pebble_pack()));
    team_ = std::make_unique<ThreadTeam>(2);
    store_ = GetParam().make(*pack_, *team_);
  }

  const ExpertLayer& layer(uint32_t block) const { return *pack_->find_expert_layer(block); }

  std::vector<std::byte> expected(uint32_t block, uint32_t expert) const {
    std::vector<std::byte> bytes(layer(block).record_bytes);
    pack_->read_record(layer(block).first_record + expert, bytes);
    return bytes;
  }

  void expect_record(const ExpertStore::Lease& lease, int index, uint32_t block, uint32_t expert) const {
    const Bytes found = lease.record(index);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(found.data()) % 64, 0u);
    ASSERT_GE(found.size(), layer(block).record_bytes);
    EXPECT_EQ(std::memcmp(found.data(), expected(block, expert).data(), layer(block).record_bytes), 0)
        << "block " << block << " expert " << expert;
  }

  std::unique_ptr<Pack> pack_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<ExpertStore> store_;
};

TEST_P(ExpertStoreConformance, GivesEveryRecordOfEveryBlock) {
  for (const ExpertLayer& l : pack_->manifest().expert_layers) {
    std::vector<uint32_t> ids(l.experts);
    std::iota(ids.begin(), ids.end(), 0u);
    ExpertStore::Lease lease = store_->acquire(l.layer, ids);
    std::set<int> seen;
    for (int index = lease.next_ready(); index >= 0; index = lease.next_ready()) {
      ASSERT_LT(static_cast<size_t>(index), ids.size());
      EXPECT_TRUE(seen.insert(index).second) << "index " << index << " was returned twice";
      expect_record(lease, index, l.layer, ids[static_cast<size_t>(index)]);
      lease.done(index);  // a layer may have more experts than the store has room for
    }
    EXPECT_EQ(seen.size(), ids.size());
    EXPECT_EQ(lease.next_ready(), -1);
    EXPECT_EQ(lease.poll_ready(), -1);
  }
}

TEST_P(ExpertStoreConformance, KeepsTheOrderOfTheRequestInItsIndices) {
  const std::vector<uint32_t> ids = {31, 2, 17, 0, 8};
  ExpertStore::Lease lease = store_->acquire(3, ids);
  for (int index = lease.next_ready(); index >= 0; index = lease.next_ready()) {
    expect_record(lease, index, 3, ids[static_cast<size_t>(index)]);
  }
}

TEST_P(ExpertStoreConformance, PollingNeverBlocksAndReachesTheEnd) {
  const std::vector<uint32_t> ids = {4, 5, 6, 7};
  ExpertStore::Lease lease = store_->acquire(1, ids);
  std::set<int> seen;
  while (seen.size() < ids.size()) {
    int index = lease.poll_ready();
    if (index < 0) index = lease.next_ready();
    ASSERT_GE(index, 0);
    EXPECT_TRUE(seen.insert(index).second);
    expect_record(lease, index, 1, ids[static_cast<size_t>(index)]);
  }
  EXPECT_EQ(lease.poll_ready(), -1);
}

TEST_P(ExpertStoreConformance, RecordsStayWhileOtherLeasesComeAndGo) {
  const std::vector<uint32_t> ids = {1, 2, 3};
  ExpertStore::Lease kept = store_->acquire(0, ids);
  std::vector<int> order;
  for (int index = kept.next_ready(); index >= 0; index = kept.next_ready()) order.push_back(index);
  for (uint32_t round = 0; round < 20; ++round) {
    const std::vector<uint32_t> others = {round % 32, (round + 7) % 32};
    ExpertStore::Lease lease = store_->acquire(round % 6, others);
    while (lease.next_ready() >= 0) {
    }
  }
  for (const int index : order) expect_record(kept, index, 0, ids[static_cast<size_t>(index)]);
}

TEST_P(ExpertStoreConformance, ALeaseMayGoBeforeItsRecordsWereTaken) {
  for (int round = 0; round < 50; ++round) {
    const std::vector<uint32_t> ids = {9, 10, 11, 12};
    ExpertStore::Lease lease = store_->acquire(2, ids);
    if (round % 2 == 0) lease.next_ready();
  }
  const std::vector<uint32_t> ids = {9};
  ExpertStore::Lease lease = store_->acquire(2, ids);
  const int index = lease.next_ready();
  ASSERT_EQ(index, 0);
  expect_record(lease, index, 2, 9);
}

TEST_P(ExpertStoreConformance, AnEmptyRequestIsAtItsEnd) {
  ExpertStore::Lease lease = store_->acquire(0, {});
  EXPECT_EQ(lease.poll_ready(), -1);
  EXPECT_EQ(lease.next_ready(), -1);
}

TEST_P(ExpertStoreConformance, ManyThreadsMayReadARecord) {
  const std::vector<uint32_t> ids = {20, 21, 22, 23};
  ExpertStore::Lease lease = store_->acquire(4, ids);
  std::vector<Bytes> records(ids.size());
  for (int index = lease.next_ready(); index >= 0; index = lease.next_ready()) {
    records[static_cast<size_t>(index)] = lease.record(index);
  }
  std::vector<std::vector<std::byte>> want;
  for (const uint32_t id : ids) want.push_back(expected(4, id));
  ThreadTeam readers(4);
  std::atomic<int> wrong{0};
  readers.for_each(64, [&](size_t i) {
    const size_t r = i % ids.size();
    if (std::memcmp(records[r].data(), want[r].data(), want[r].size()) != 0) ++wrong;
  });
  EXPECT_EQ(wrong, 0);
}

TEST_P(ExpertStoreConformance, HintsChangeNothing) {
  const std::vector<uint32_t> ids = {0, 30, 15};
  store_->prefetch(5, ids);
  store_->prefetch(5, {});
  ExpertStore::Lease lease = store_->acquire(5, ids);
  for (int index = lease.next_ready(); index >= 0; index = lease.next_ready()) {
    expect_record(lease, index, 5, ids[static_cast<size_t>(index)]);
  }
}

TEST_P(ExpertStoreConformance, CountsWhatWasAskedFor) {
  const uint64_t before = store_->counters().requests;
  for (uint32_t i = 0; i < 5; ++i) {
    const std::vector<uint32_t> ids = {i, i + 1, i + 2};
    ExpertStore::Lease lease = store_->acquire(0, ids);
    while (lease.next_ready() >= 0) {
    }
  }
  const ExpertCounters after = store_->counters();
  EXPECT_EQ(after.requests - before, 15u);
  EXPECT_LE(after.ram_hits, after.requests);
}

}  // namespace tierpack::testing_support

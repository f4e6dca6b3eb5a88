#include "runtime/experts/tiered_store.h"

#include <cerrno>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/runtime/experts/expert_store_conformance.h"
#include "tests/runtime/experts/store_fixture.h"

namespace tierpack::testing_support {
namespace {

using experts::ReadFaults;
using experts::StoreOptions;
using experts::TieredStore;

StoreMaker with(const std::string& name, double ram, double vram, const std::function<void(StoreOptions&)>& change = {}) {
  return {name, [=](const Pack& pack, ThreadTeam&) -> std::unique_ptr<ExpertStore> {
            StoreOptions options = store_options(pack, ram, vram);
            if (change) change(options);
            return std::make_unique<TieredStore>(pack, std::move(options));
          }};
}

INSTANTIATE_TEST_SUITE_P(
    Tiered, ExpertStoreConformance,
    testing::Values(with("Resident", 1, 0), with("Half", 0.5, 0), with("Smallest", 0, 0), with("Sim", 0.3, 0.4),
                    with("SmallSim", 0, 0.2), with("Unseeded", 0.5, 0, [](StoreOptions& o) { o.seed = false; }),
                    with("Pread", 0.3, 0, [](StoreOptions& o) { o.reader.ring = false; }),
                    with("Buffered", 0.3, 0, [](StoreOptions& o) { o.reader.direct = false; }),
                    with("Lru", 0.3, 0, [](StoreOptions& o) { o.policy = "lru"; })),
    [](const auto& way) { return way.param.name; });

class TieredStoreTest : public testing::Test {
 protected:
  Pack pack_ = Pack::open(pebble_pack());

  void expect_record(TieredStore& store, uint32_t block, uint32_t expert) const {
    const ExpertLayer& layer = *pack_.find_expert_layer(block);
    std::vector<std::byte> expected(layer.record_bytes);
    pack_.read_record(layer.first_record + expert, expected);
    const std::vector<uint32_t> ids = {expert};
    ExpertStore::Lease lease = store.acquire(block, ids);
    const int index = lease.next_ready();
    ASSERT_EQ(index, 0);
    EXPECT_EQ(std::memcmp(lease.record(0).data(), expected.data(), expected.size()), 0) << block << "." << expert;
  }
  // Random requests as decoding makes them.
  void use(TieredStore& store, uint32_t tokens, uint32_t seed) const {
    std::mt19937 random(seed);
    for (uint32_t t = 0; t < tokens; ++t) {
      for (const ExpertLayer& layer : pack_.manifest().expert_layers) {
        const auto any = [&] { return static_cast<uint32_t>(random() % layer.experts); };
        std::set<uint32_t> ids;
        while (ids.size() < 4) ids.insert(std::min(any(), any()));
        const std::vector<uint32_t> list(ids.begin(), ids.end());
        ExpertStore::Lease lease = store.acquire(layer.layer, list);
        if (random() % 4 == 0) store.prefetch(layer.layer, std::vector<uint32_t>{any(), any()});
        for (int index = lease.next_ready(); index >= 0; index = lease.next_ready()) {
          EXPECT_FALSE(lease.record(index).empty());
        }
        store.check();
      }
    }
  }
};

TEST_F(TieredStoreTest, InvariantsHoldUnderUse) {
  for (const double vram : {0.0, 0.25}) {
    const std::unique_ptr<TieredStore> store = make_store(pack_, 0.25, vram);
    use(*store, 60, 7);
    store->wait_until_seeded();
    store->check();
    const ExpertCounters c = store->counters();
    EXPECT_EQ(c.requests, c.vram_hits + c.ram_hits + c.late_hits + c.disk_reads);
    EXPECT_GT(c.disk_reads, 0u);
    EXPECT_GT(c.evictions, 0u);
    EXPECT_EQ(vram > 0, c.vram_hits > 0);
    EXPECT_EQ(vram > 0, c.moves > 0);
    expect_record(*store, 2, 5);
  }
}

TEST_F(TieredStoreTest, SeedsTheHottestAndThenReadsNothing) {
  const std::unique_ptr<TieredStore> store = make_store(pack_, 1);
  store->wait_until_seeded();
  const SeedProgress seed = store->seed_progress();
  EXPECT_TRUE(seed.done);
  EXPECT_EQ(seed.loaded_bytes, seed.total_bytes);
  use(*store, 20, 1);
  const ExpertCounters c = store->counters();
  EXPECT_EQ(c.disk_reads, 0u);
  EXPECT_EQ(c.ram_hits, c.requests);
  EXPECT_FALSE(store->wants_guess(0));
}

TEST_F(TieredStoreTest, ALayerThatStaysIsNeverReadAgain) {
  StoreOptions options = store_options(pack_, 0.4);
  options.seed = false;
  options.keep_resident.assign(pack_.manifest().expert_layers.size(), false);
  options.keep_resident[1] = true;
  TieredStore store(pack_, std::move(options));
  use(store, 40, 3);
  EXPECT_LE(store.layer_counters()[1].disk_reads, pack_.manifest().expert_layers[1].experts);
}

// Requests come while the seed of a model that lives in VRAM still passes through few RAM slots.
TEST_F(TieredStoreTest, RequestsDuringTheSeedOfLayersThatStayInVram) {
  for (const bool stays : {true, false}) {
    for (uint32_t round = 0; round < 10; ++round) {
      StoreOptions options = store_options(pack_, 0, 1);
      options.keep_resident.assign(pack_.manifest().expert_layers.size(), stays);
      TieredStore store(pack_, std::move(options));
      use(store, 3, round);
      for (const ExpertLayer& layer : pack_.manifest().expert_layers) {
        std::vector<uint32_t> ids(layer.experts);
        std::iota(ids.begin(), ids.end(), 0u);
        ExpertStore::Lease lease = store.acquire(layer.layer, ids);
        for (int index = lease.next_ready(); index >= 0; index = lease.next_ready()) lease.done(index);
        store.check();
      }
      store.wait_until_seeded();
      expect_record(store, 3, round);
      store.check();
    }
  }
}

// The contract: kLeaseRecords of a layer can be held at once, whatever they are worth.
TEST_F(TieredStoreTest, AsManyAsPromisedCanBeHeld) {
  StoreOptions options = store_options(pack_, 0);
  const experts::CacheShape shape = experts::cache_shape(pack_.manifest());
  options.uses_per_token.assign(shape.entries(), 0.0f);
  for (uint32_t e = 0; e < shape.experts; ++e) options.uses_per_token[shape.entry(1, e)] = 0.9f;
  options.policy = "static";
  TieredStore store(pack_, std::move(options));
  store.wait_until_seeded();
  for (const ExpertLayer& layer : pack_.manifest().expert_layers) {
    std::vector<uint32_t> ids(kLeaseRecords);
    std::iota(ids.begin(), ids.end(), 3u);
    ExpertStore::Lease lease = store.acquire(layer.layer, ids);
    uint32_t held = 0;
    while (lease.next_ready() >= 0) ++held;
    EXPECT_EQ(held, kLeaseRecords);
  }
}

TEST_F(TieredStoreTest, ALayerThatIsKeptOutHoldsNoPlace) {
  StoreOptions options = store_options(pack_, 0.5);
  options.keep_out.assign(pack_.manifest().expert_layers.size(), false);
  options.keep_out[0] = true;
  TieredStore store(pack_, std::move(options));
  store.wait_until_seeded();
  use(store, 10, 3);
  const ExpertLayerCounters first = store.layer_counters()[0];
  EXPECT_LT(first.ram_hits, first.requests / 2);
}

TEST_F(TieredStoreTest, APromptLeavesTheHotSetAlone) {
  StoreOptions options = store_options(pack_, 0.5);
  const experts::CacheShape shape = experts::cache_shape(pack_.manifest());
  options.uses_per_token.assign(shape.entries(), 0.0f);
  options.seed_order.clear();
  for (uint32_t l = 0; l < shape.layers; ++l) {
    for (uint32_t e = 0; e < 8; ++e) {
      options.uses_per_token[shape.entry(l, e)] = 0.5f;
      options.seed_order.push_back(shape.entry(l, e));
    }
  }
  TieredStore store(pack_, std::move(options));
  store.wait_until_seeded();
  for (const ExpertLayer& layer : pack_.manifest().expert_layers) {
    std::vector<uint32_t> ids(layer.experts);
    std::iota(ids.begin(), ids.end(), 0u);
    const std::vector<uint32_t> counts(ids.size(), 8);
    ExpertStore::Lease lease = store.acquire(layer.layer, ids, {counts, 64});
    for (int index = lease.next_ready(); index >= 0; index = lease.next_ready()) lease.done(index);
  }
  const uint64_t reads = store.counters().disk_reads;
  for (const ExpertLayer& layer : pack_.manifest().expert_layers) {
    for (uint32_t e = 0; e < 8; ++e) expect_record(store, layer.layer, e);
  }
  EXPECT_EQ(store.counters().disk_reads, reads);
}

// The disk as it may be.
class Faults final : public ReadFaults {
 public:
  std::function<int(Segment, uint64_t, MutableBytes, int)> act;
  std::atomic<int> hits{0};
  int after_read(Segment segment, uint64_t offset, MutableBytes piece, int result) override {
    return act(segment, offset, piece, result);
  }
};

StoreOptions with_faults(const Pack& pack, Faults& faults) {
  StoreOptions options = store_options(pack, 0.2);
  options.seed = false;
  options.reader.faults = &faults;
  return options;
}

TEST_F(TieredStoreTest, OneErrorOfTheDiskIsReadAgain) {
  Faults faults;
  faults.act = [&](Segment, uint64_t, MutableBytes, int result) { return faults.hits++ == 0 ? -EIO : result; };
  TieredStore store(pack_, with_faults(pack_, faults));
  expect_record(store, 1, 3);
  EXPECT_EQ(store.counters().retries, 1u);
}

TEST_F(TieredStoreTest, ShortReadsAreContinued) {
  Faults faults;
  faults.act = [&](Segment, uint64_t, MutableBytes, int result) { return result > 4096 ? result / 2 : result; };
  TieredStore store(pack_, with_faults(pack_, faults));
  expect_record(store, 1, 3);
  use(store, 5, 2);
  EXPECT_EQ(store.counters().retries, 0u);
}

TEST_F(TieredStoreTest, OneDamagedReadIsReadAgain) {
  Faults faults;
  faults.act = [&](Segment, uint64_t, MutableBytes piece, int result) {
    if (faults.hits++ == 0) piece[17] ^= std::byte{4};
    return result;
  };
  TieredStore store(pack_, with_faults(pack_, faults));
  expect_record(store, 1, 3);
  EXPECT_EQ(store.counters().retries, 1u);
}

TEST_F(TieredStoreTest, ADamagedRecordIsNamedAndNeverHandedOut) {
  const ExpertLayer& layer = pack_.manifest().expert_layers[1];
  const Record& bad = pack_.manifest().records[layer.first_record + 3];
  Faults faults;
  faults.act = [&](Segment segment, uint64_t offset, MutableBytes piece, int result) {
    if (segment == Segment::kExperts && offset == bad.offset) piece[0] ^= std::byte{1};
    return result;
  };
  for (const bool seed : {false, true}) {
    StoreOptions options = with_faults(pack_, faults);
    options.seed = seed;
    TieredStore store(pack_, std::move(options));
    store.wait_until_seeded();
    const std::vector<uint32_t> ids = {2, 3, 4};
    for (int round = 0; round < 3; ++round) {
      ExpertStore::Lease lease = store.acquire(layer.layer, ids);
      try {
        while (lease.next_ready() >= 0) {
        }
        FAIL() << "a damaged record was handed out";
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::kCorrupt);
        EXPECT_NE(std::string(e.what()).find(fmt::format("record {} at byte {}", layer.first_record + 3, bad.offset)), std::string::npos)
            << e.what();
      }
    }
    store.check();
    expect_record(store, layer.layer, 2);
  }
}

TEST_F(TieredStoreTest, ABrokenDiskIsAnError) {
  Faults faults;
  faults.act = [](Segment, uint64_t, MutableBytes, int) { return -EIO; };
  TieredStore store(pack_, with_faults(pack_, faults));
  const std::vector<uint32_t> ids = {2};
  ExpertStore::Lease lease = store.acquire(0, ids);
  try {
    lease.next_ready();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kIo);
    EXPECT_NE(std::string(e.what()).find("Input/output error"), std::string::npos) << e.what();
  }
}

TEST_F(TieredStoreTest, AMirrorTakesItsShareAndStandsInForABadCopy) {
  const std::filesystem::path mirror = std::filesystem::path(testing::TempDir()) / "tierpack_mirror";
  std::filesystem::remove_all(mirror);
  std::filesystem::create_directories(mirror);
  for (const Segment s : {Segment::kDense, Segment::kExperts, Segment::kRows}) {
    if (std::filesystem::exists(pack_.directory() / segment_file_name(s))) {
      std::filesystem::copy(pack_.directory() / segment_file_name(s), mirror / segment_file_name(s));
    }
  }
  // Damages what comes from the mirror: every record is right in the end.
  {
    std::fstream file(mirror / segment_file_name(Segment::kExperts), std::ios::in | std::ios::out | std::ios::binary);
    for (const ExpertLayer& layer : pack_.manifest().expert_layers) {
      for (uint32_t e = 0; e < layer.experts; ++e) {
        file.seekp(static_cast<std::streamoff>(pack_.manifest().records[layer.first_record + e].offset));
        file.put(static_cast<char>(0x5a));
      }
    }
  }
  StoreOptions options = store_options(pack_, 0.5);
  options.reader.mirrors = {mirror};
  {
    TieredStore store(pack_, std::move(options));
    store.wait_until_seeded();
    for (uint32_t e = 0; e < 32; ++e) expect_record(store, 0, e);
    EXPECT_GT(store.counters().retries, 0u);
  }
  std::ofstream(mirror / segment_file_name(Segment::kExperts), std::ios::app) << "x";
  StoreOptions wrong = store_options(pack_, 0.5);
  wrong.reader.mirrors = {mirror};
  EXPECT_THROW(TieredStore(pack_, std::move(wrong)), Error);
  std::filesystem::remove_all(mirror);
}

}  // namespace
}  // namespace tierpack::testing_support

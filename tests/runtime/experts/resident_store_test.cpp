#include "runtime/experts/resident_store.h"

#include <atomic>
#include <fstream>

#include "tests/runtime/experts/expert_store_conformance.h"
#include "tests/runtime/experts/shuffling_store.h"

namespace tierpack::testing_support {
namespace {

std::unique_ptr<ExpertStore> make_resident(const Pack& pack, ThreadTeam& team) {
  return experts::ResidentStore::load(pack, team, [](uint64_t) {});
}

std::unique_ptr<ExpertStore> make_shuffling(const Pack& pack, ThreadTeam& team) {
  return std::make_unique<ShufflingStore>(make_resident(pack, team), 7);
}

INSTANTIATE_TEST_SUITE_P(Stores, ExpertStoreConformance,
                         testing::Values(StoreMaker{"Resident", make_resident}, StoreMaker{"Shuffling", make_shuffling}),
                         [](const auto& made) { return made.param.name; });

TEST(ResidentStore, ReportsEveryByteItReads) {
  const Pack pack = Pack::open(pebble_pack());
  ThreadTeam team(3);
  std::atomic<uint64_t> bytes{0};
  experts::ResidentStore::load(pack, team, [&](uint64_t n) { bytes += n; });
  EXPECT_EQ(bytes, experts::ResidentStore::total_bytes(pack));
  EXPECT_GT(bytes, 0u);
}

TEST(ResidentStore, TheCallerCanStopLoading) {
  const Pack pack = Pack::open(pebble_pack());
  ThreadTeam team(2);
  const auto [kind, message] = thrown_by([&] {
    experts::ResidentStore::load(pack, team, [](uint64_t) { fail(ErrorKind::kInterrupted, "stopped by the caller"); });
  });
  EXPECT_EQ(kind, ErrorKind::kInterrupted);
}

TEST(ResidentStore, ADamagedRecordIsNotLoaded) {
  TempDirectory directory;
  const std::filesystem::path copy = directory.path() / "damaged.tierpack";
  std::filesystem::copy(pebble_pack(), copy);
  const std::filesystem::path segment = copy / segment_file_name(Segment::kExperts);
  std::filesystem::permissions(segment, std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
  std::fstream file(segment, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(100'000);
  const char byte = static_cast<char>(file.get());
  file.seekp(100'000);
  file.put(static_cast<char>(byte ^ 1));
  file.close();

  const Pack pack = Pack::open(copy);
  ThreadTeam team(2);
  const auto [kind, message] = thrown_by([&] { experts::ResidentStore::load(pack, team, [](uint64_t) {}); });
  EXPECT_EQ(kind, ErrorKind::kCorrupt);
  EXPECT_NE(message.find("experts"), std::string::npos) << message;
}

}  // namespace
}  // namespace tierpack::testing_support

#include "runtime/experts/record_reader.h"

#include <condition_variable>
#include <cstdlib>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "base/error.h"
#include "runtime/device/device.h"
#include "tests/runtime/model/model_fixture.h"

namespace tierpack::experts {
namespace {

using testing_support::pebble_pack;

// Collects answers.
struct Answers {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<uint64_t> order;
  std::vector<std::exception_ptr> failures;
  RecordReader::OnDone callback() {
    return [this](uint64_t tag, std::exception_ptr failure) {
      const std::lock_guard lock(mutex);
      order.push_back(tag);
      failures.push_back(failure);
      changed.notify_all();
    };
  }
  void wait_for(size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return order.size() >= count; });
  }
};

class RecordReaderTest : public testing::TestWithParam<std::pair<bool, bool>> {
 protected:
  ReaderOptions options() const { return {GetParam().first, GetParam().second, {}, nullptr}; }
  Pack pack_ = Pack::open(pebble_pack());
};

TEST_P(RecordReaderTest, ReadsEveryRecordOfThePack) {
  const std::vector<Record>& records = pack_.manifest().records;
  std::vector<uint64_t> offsets;
  uint64_t at = 0;
  std::vector<uint32_t> wanted;
  for (uint32_t r = 0; r < records.size(); ++r) {
    if (records[r].segment == Segment::kRows) continue;
    wanted.push_back(r);
    offsets.push_back(at);
    at += RecordReader::room_bytes(records[r].bytes);
  }
  device::PinnedBuffer memory(at);
  Answers answers;
  RecordReader reader(pack_, options(), answers.callback());
  EXPECT_STREQ(reader.backend(), GetParam().second ? reader.backend() : "pread");
  for (size_t i = 0; i < wanted.size(); ++i) {
    reader.submit({wanted[i], memory.bytes().data() + offsets[i], i, static_cast<ReadPriority>(i % 3)});
  }
  answers.wait_for(wanted.size());
  EXPECT_EQ(std::set<uint64_t>(answers.order.begin(), answers.order.end()).size(), wanted.size());
  for (const std::exception_ptr& failure : answers.failures) EXPECT_EQ(failure, nullptr);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Record& record = records[wanted[i]];
    EXPECT_EQ(xxh3_128(memory.bytes().subspan(offsets[i], record.bytes)), record.checksum);
  }
  EXPECT_EQ(reader.counters().records, wanted.size());
  EXPECT_GE(reader.bandwidth(), 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, RecordReaderTest,
                         testing::Values(std::pair(true, true), std::pair(false, true), std::pair(true, false), std::pair(false, false)),
                         [](const auto& way) {
                           return std::string(way.param.first ? "Direct" : "Buffered") + (way.param.second ? "Ring" : "Pread");
                         });

// A disk that answers when told to.
class Gate final : public ReadFaults {
 public:
  int after_read(Segment, uint64_t, MutableBytes, int result) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
    return result;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

TEST(RecordReaderOrder, DemandGoesBeforePrefetchBeforeSeed) {
  const Pack pack = Pack::open(pebble_pack());
  const ExpertLayer& layer = pack.manifest().expert_layers[0];
  const uint64_t room = RecordReader::room_bytes(layer.record_bytes);
  constexpr uint32_t kSeeds = 40;
  device::PinnedBuffer memory(room * (kSeeds + 2));
  Gate gate;
  Answers answers;
  RecordReader reader(pack, {true, true, {}, &gate}, answers.callback());
  const auto request = [&](uint32_t i, ReadPriority priority) {
    return RecordReader::Request{layer.first_record + i % layer.experts, memory.bytes().data() + i * room, i, priority};
  };
  std::vector<RecordReader::Ticket> tickets;
  for (uint32_t i = 0; i < kSeeds; ++i) tickets.push_back(reader.submit(request(i, ReadPriority::kSeed)));
  reader.submit(request(kSeeds, ReadPriority::kPrefetch));
  reader.submit(request(kSeeds + 1, ReadPriority::kDemand));
  reader.promote(tickets[kSeeds - 1]);
  gate.open();
  answers.wait_for(kSeeds + 2);
  const auto place = [&](uint64_t tag) { return std::find(answers.order.begin(), answers.order.end(), tag) - answers.order.begin(); };
  EXPECT_LT(place(kSeeds + 1), place(kSeeds));      // demand before prefetch
  EXPECT_LT(place(kSeeds - 1), place(kSeeds));      // the promoted one too
  EXPECT_LT(place(kSeeds), place(kSeeds - 2));      // prefetch before the last seeds
}

TEST(RecordReaderOrder, GoingAwayWithReadsUnderWayIsSafe) {
  const Pack pack = Pack::open(pebble_pack());
  const ExpertLayer& layer = pack.manifest().expert_layers[0];
  const uint64_t room = RecordReader::room_bytes(layer.record_bytes);
  for (int round = 0; round < 20; ++round) {
    device::PinnedBuffer memory(room * 32);
    Answers answers;
    RecordReader reader(pack, {true, round % 2 == 0, {}, nullptr}, answers.callback());
    for (uint32_t i = 0; i < 32; ++i) {
      reader.submit({layer.first_record + i, memory.bytes().data() + i * room, i, ReadPriority::kSeed});
    }
  }
}

}  // namespace
}  // namespace tierpack::experts

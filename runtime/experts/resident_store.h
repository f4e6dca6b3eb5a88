// The expert store of a machine that holds the whole model: every record lies in RAM from the start.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/threads.h"
#include "formats/pack.h"
#include "runtime/device/device.h"
#include "runtime/experts/expert_store.h"

namespace tierpack::experts {

class ResidentStore final : public ExpertStore {
 public:
  // Bytes of the records that load() reads.
  static uint64_t total_bytes(const Pack& pack);
  // Reads and proves every expert with all threads of the team, in the order of the segment. `on_bytes` is called with the
  // size of each record read, from any thread; what it throws ends the loading. Throws kCapacity when there is no such
  // memory, kCorrupt for a record that is not what was written.
  static std::unique_ptr<ResidentStore> load(const Pack& pack, ThreadTeam& team,
                                             const std::function<void(uint64_t)>& on_bytes);
  ~ResidentStore() override;

  Lease acquire(uint32_t layer, std::span<const uint32_t> experts) override;
  ExpertCounters counters() const override;

 private:
  class Request;
  struct Layer {
    uint64_t offset = 0;  // of expert 0 in the arena; the others follow at `stride`
    uint64_t stride = 0;
    uint64_t bytes = 0;   // of one record
    uint32_t experts = 0;  // 0: no such block
  };
  ResidentStore() = default;
  Request& idle_request();

  device::PinnedBuffer arena_;
  std::vector<Layer> layers_;  // by block number
  std::vector<std::unique_ptr<Request>> requests_;
  std::atomic<uint64_t> requests_served_{0};
};

}  // namespace tierpack::experts

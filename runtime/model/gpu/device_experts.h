// The experts of a block on a GPU: router, shared expert, routed experts wherever their records are, weighted sum.
//
// While some experts of a block are not in device memory, its routing comes to the host: records in VRAM are computed at once, misses
// are divided between the CPU, which computes them where they lie, and the link, which copies them through staging slots on a stream of
// its own; all three work at the same time. Once every record of a block stays in VRAM, one token needs no host at all: kernels find the records by
// a table of addresses, and the store hears of the use at the end of the pass.
//
// Rows of (token, expert) pairs are given out in the order in which experts are taken up; which row a pair has, and who computes it, is
// no part of the result.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/experts/expert_store.h"
#include "runtime/model/compute.h"
#include "runtime/model/expert_jobs.h"
#include "runtime/model/gpu/device_pass.h"
#include "runtime/model/gpu/device_weights.h"
#include "runtime/model/gpu/miss_share.h"

namespace tierpack::model {

class DeviceExperts {
 public:
  // Everything must outlive this. `compute`: what the CPU computes its share with.
  DeviceExperts(const Pack& pack, const DeviceWeights& weights, ExpertStore& store, const Compute& compute, DeviceHostBuffers& host);

  // Whether no block of the trunk needs the host for one token.
  bool all_resident(const DevicePass& pass, std::span<const BlockWeights> blocks);

  // ws.x -> ws.y. `next`: the block after this one, null after the last.
  void run(const DevicePass& pass, const BlockWeights& block, const BlockWeights* next);
  // Queues what finish needs to know.
  void end_pass(const DevicePass& pass);
  // The pass is over and its stream synchronised: gives records back and tells the observer and the store what was not told yet.
  void finish(const DevicePass& pass);
  // The same after a failure: nothing is told.
  void abandon();
  void add_counters(ExpertCounters& counters) const;  // from any thread

 private:
  struct Held {
    int index = 0;     // in the lease
    size_t event = 0;  // after it the record is not read any more
  };

  bool resident(const DevicePass& pass, const BlockWeights& block);
  // Where the routing of a block goes on the device.
  struct Routing {
    uint32_t* ids = nullptr;     // (T, K)
    float* weights = nullptr;    // (T, K)
    uint32_t* host_ids = nullptr;
    float* host_weights = nullptr;
  };
  Routing routing_of(const DevicePass& pass, uint32_t block) const;
  void route(const DevicePass& pass, const MoeWeights& w, const Routing& routing, const BlockWeights* next, bool guess);
  void shared_expert(const DevicePass& pass, const MoeWeights& w);
  void resident_experts(const DevicePass& pass, const BlockWeights& block, const Routing& routing);
  void leased_experts(const DevicePass& pass, const BlockWeights& block, const Routing& routing, const BlockWeights* next, bool guess, bool in_vram);
  uint32_t group(const DevicePass& pass, const uint32_t* ids);
  // Takes rows for the pairs of requested expert `index`; the first of them.
  uint32_t take_rows(const DevicePass& pass, uint32_t expert);
  void compute_on_device(const DevicePass& pass, const MoeWeights& w, std::span<const Held> batch, const uint64_t* addresses, size_t event);
  void copy_and_compute(const DevicePass& pass, const MoeWeights& w, std::span<const Held> batch);
  void compute_on_host(const DevicePass& pass, uint32_t block, const MoeWeights& w, std::span<const Held> batch);
  void expert_products(const DevicePass& pass, const MoeWeights& w, uint32_t first_row, uint32_t rows, std::span<const gpu::DeviceProduct> gate_up,
                       std::span<const gpu::DeviceProduct> down);
  void give_back(bool wait);
  size_t next_event();
  void tell(const DevicePass& pass, uint32_t block, const uint32_t* ids, const float* weights);

  const DeviceWeights& weights_;
  ExpertStore& store_;
  const Compute& compute_;
  DeviceHostBuffers& host_;
  MissShare share_;
  device::Stream copies_;
  device::Event routed_;
  device::DeviceBuffer staging_;
  uint64_t staged_bytes_ = 0;                 // of one slot
  std::vector<device::Event> slot_free_;      // by staging slot: its record was computed
  device::Event copy_begin_, copy_end_;
  uint64_t copy_bytes_ = 0;                   // between them, measured when both are done
  size_t next_slot_ = 0;

  std::vector<uint8_t> resident_;             // by trunk block: its addresses are on the device
  std::vector<uint64_t> addresses_;           // (trunk blocks, E)
  std::vector<uint32_t> untold_;              // blocks of this pass whose routing lies in host_.ids
  std::optional<ExpertStore::Lease> lease_;
  std::vector<Held> held_;
  std::vector<device::Event> events_;
  size_t events_used_ = 0;
  uint32_t rows_ = 0;                         // given out in this block
  uint32_t row_columns_ = 0;                  // of the hidden values
  std::atomic<uint64_t> cpu_computed_ = 0, gpu_copies_ = 0, gpu_copy_bytes_ = 0;
};

}  // namespace tierpack::model

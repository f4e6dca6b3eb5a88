// Where routed experts come from. The model asks for the experts of one layer by id and gets memory it may read until it
// lets go; it does not know tiers.
//
// One thread (the one that runs the forward pass) calls acquire and drives a Lease; kernels on other threads may read
// the memory it names. Records are proved against their checksum before they are handed out for the first time.
// tests/runtime/experts/expert_store_conformance.h holds what every implementation must do.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"

namespace tierpack {

// Hits and traffic, by tier; sums since the start.
struct ExpertCounters {
  uint64_t requests = 0;         // experts asked for
  uint64_t vram_hits = 0;        // of them, in VRAM
  uint64_t ram_hits = 0;         // in RAM
  uint64_t late_hits = 0;        // on their way already, by prefetch, seeding or between tiers
  uint64_t disk_reads = 0;       // read because they were asked for
  uint64_t disk_bytes = 0;       // read from disk for any reason
  uint64_t stall_us = 0;         // time the model waited
  uint64_t prefetches = 0;       // records read ahead
  uint64_t prefetches_used = 0;  // of them, asked for while they were there
  uint64_t guesses = 0;          // experts that the router was guessed to choose
  uint64_t guesses_right = 0;    // of them, chosen
  uint64_t evictions = 0;        // records dropped for others
  uint64_t moves = 0;            // between RAM and VRAM, either way
  uint64_t move_bytes = 0;
  uint64_t retries = 0;          // reads repeated after an error or a wrong checksum
  // With a GPU, of the experts that were not in VRAM:
  uint64_t cpu_computed = 0;     // by the CPU where they lay
  uint64_t gpu_copies = 0;       // copied to the GPU to be computed
  uint64_t gpu_copy_bytes = 0;
};

// Of one layer.
struct ExpertLayerCounters {
  uint32_t layer = 0;  // block number
  uint64_t requests = 0;
  uint64_t vram_hits = 0;
  uint64_t ram_hits = 0;
  uint64_t late_hits = 0;
  uint64_t disk_reads = 0;
  uint64_t stall_us = 0;
};

// Loading of what a store begins with.
struct SeedProgress {
  uint64_t loaded_bytes = 0;
  uint64_t total_bytes = 0;
  bool done = true;
};

// How the experts of a request were chosen.
struct RouteCounts {
  std::span<const uint32_t> counts;  // tokens that chose each expert; empty: one each
  uint32_t tokens = 1;               // of the chunk
};

class ExpertStore {
 public:
  // The right to read the experts of one request. Records may become ready in any order: next_ready() blocks until one
  // that was not yet returned is readable and gives its index in the request, or -1 when all have been returned.
  // Destruction releases every record.
  class Lease {
   public:
    // A store's side of a lease. It belongs to the store, which may use it again once released: a lease costs no
    // allocation.
    class Impl {
     public:
      virtual int next_ready() = 0;
      virtual int poll_ready() = 0;
      virtual Bytes record(int index) const = 0;
      virtual bool on_device(int index) const { return (void)index, false; }
      virtual void done(int index) = 0;
      virtual void release() = 0;

     protected:
      ~Impl() = default;
    };
    explicit Lease(Impl& impl) : impl_(&impl) {}
    // Throws what reading a record failed with: kIo or kCorrupt.
    int next_ready() { return impl_->next_ready(); }
    // The same without blocking: -1 also when none is readable at this moment.
    int poll_ready() { return impl_->poll_ready(); }
    // The bytes of the expert's record (layout: formats/pack.h, ExpertLayer), at least 64-byte aligned. Valid after
    // this index was returned, until it is done.
    Bytes record(int index) const { return impl_->record(index); }
    // Whether record(index) is an address of a device, which the host cannot read. Such a record must not be done before the kernels
    // that read it are.
    bool on_device(int index) const { return impl_->on_device(index); }
    // Gives one record back early. A request for more experts than the store has room for goes on only as records are
    // given back; kLeaseRecords of a layer can always be held at once.
    void done(int index) { impl_->done(index); }

   private:
    struct Release {
      void operator()(Impl* impl) const { impl->release(); }
    };
    std::unique_ptr<Impl, Release> impl_;
  };

  virtual ~ExpertStore() = default;

  // `experts`: distinct ids of block `layer`, in any order. Leases must be gone before the store is.
  virtual Lease acquire(uint32_t layer, std::span<const uint32_t> experts, const RouteCounts& route = {}) = 0;
  // Device addresses of every record of block `layer`, by expert, when all of them lie in a device's memory for good: they may then be
  // read without a lease. False, and nothing written, when not (yet).
  virtual bool device_addresses(uint32_t layer, std::span<uint64_t> addresses) const { return (void)layer, (void)addresses, false; }
  // Whether a guess about block `layer` may save time; asking is cheap.
  virtual bool wants_guess(uint32_t layer) const { return (void)layer, false; }
  // A guess that these experts, likeliest first, will be asked for soon; never blocks.
  virtual void prefetch(uint32_t layer, std::span<const uint32_t> experts) { (void)layer, (void)experts; }
  // From any thread.
  virtual ExpertCounters counters() const = 0;
  virtual SeedProgress seed_progress() const { return {}; }
};

}  // namespace tierpack

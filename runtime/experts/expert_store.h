// Where routed experts come from. The model asks for the experts of one layer by id and gets memory it may read until it
// lets go; it does not know tiers. The resident store (everything in RAM) and the tiered store implement this.
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
  uint64_t requests = 0;   // experts asked for
  uint64_t ram_hits = 0;
  uint64_t disk_reads = 0;
  uint64_t disk_bytes = 0;
  uint64_t stall_us = 0;   // time the model waited
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
      virtual void release() = 0;

     protected:
      ~Impl() = default;
    };
    explicit Lease(Impl& impl) : impl_(&impl) {}
    int next_ready() { return impl_->next_ready(); }
    // The same without blocking: -1 also when none is readable at this moment.
    int poll_ready() { return impl_->poll_ready(); }
    // The bytes of the expert's record (layout: formats/pack.h, ExpertLayer), at least 64-byte aligned. Valid after
    // this index was returned.
    Bytes record(int index) const { return impl_->record(index); }

   private:
    struct Release {
      void operator()(Impl* impl) const { impl->release(); }
    };
    std::unique_ptr<Impl, Release> impl_;
  };

  virtual ~ExpertStore() = default;

  // `experts`: distinct ids of block `layer`, in any order. Leases must be gone before the store is.
  virtual Lease acquire(uint32_t layer, std::span<const uint32_t> experts) = 0;
  // A hint that these experts will probably be asked for soon; never blocks.
  virtual void prefetch(uint32_t layer, std::span<const uint32_t> experts) { (void)layer, (void)experts; }
  // From any thread.
  virtual ExpertCounters counters() const = 0;
};

}  // namespace tierpack

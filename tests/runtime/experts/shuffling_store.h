// An expert store over another one that hands records out in a random order, and often claims that none is ready yet.
#pragma once

#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "runtime/experts/expert_store.h"

namespace tierpack::testing_support {

class ShufflingStore final : public ExpertStore {
 public:
  ShufflingStore(std::unique_ptr<ExpertStore> inner, uint64_t seed) : inner_(std::move(inner)), random_(seed) {}

  Lease acquire(uint32_t layer, std::span<const uint32_t> experts, const RouteCounts& route) override {
    leases_.push_back(std::make_unique<Shuffled>(*this, inner_->acquire(layer, experts, route)));
    return Lease(*leases_.back());
  }
  void prefetch(uint32_t layer, std::span<const uint32_t> experts) override { inner_->prefetch(layer, experts); }
  ExpertCounters counters() const override { return inner_->counters(); }

 private:
  class Shuffled final : public Lease::Impl {
   public:
    Shuffled(ShufflingStore& store, Lease inner) : store_(store), inner_(std::move(inner)) {
      for (int index = inner_.next_ready(); index >= 0; index = inner_.next_ready()) waiting_.push_back(index);
    }
    int next_ready() override {
      if (waiting_.empty()) return -1;
      std::swap(waiting_[store_.random_() % waiting_.size()], waiting_.back());
      const int index = waiting_.back();
      waiting_.pop_back();
      return index;
    }
    int poll_ready() override { return store_.random_() % 3 == 0 ? next_ready() : -1; }
    Bytes record(int index) const override { return inner_.record(index); }
    void done(int index) override { inner_.done(index); }
    void release() override {
      std::erase_if(store_.leases_, [this](const auto& lease) { return lease.get() == this; });
    }

   private:
    ShufflingStore& store_;
    Lease inner_;
    std::vector<int> waiting_;
  };

  std::unique_ptr<ExpertStore> inner_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Shuffled>> leases_;
};

}  // namespace tierpack::testing_support

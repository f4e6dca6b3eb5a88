#include "runtime/experts/resident_store.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tierpack::experts {

namespace {

constexpr uint64_t kArenaAlignment = 64;

}  // namespace

class ResidentStore::Request final : public ExpertStore::Lease::Impl {
 public:
  void begin(const ResidentStore& store, const Layer& layer, std::span<const uint32_t> ids) {
    store_ = &store;
    layer_ = &layer;
    ids_.assign(ids.begin(), ids.end());
    returned_ = 0;
    busy_ = true;
  }
  bool busy() const { return busy_; }

  int next_ready() override { return poll_ready(); }
  int poll_ready() override { return returned_ < ids_.size() ? static_cast<int>(returned_++) : -1; }
  Bytes record(int index) const override {
    TIERPACK_CHECK(index >= 0 && static_cast<size_t>(index) < returned_);
    return store_->arena_.bytes().subspan(layer_->offset + ids_[static_cast<size_t>(index)] * layer_->stride,
                                          layer_->bytes);
  }
  void release() override { busy_ = false; }

 private:
  const ResidentStore* store_ = nullptr;
  const Layer* layer_ = nullptr;
  std::vector<uint32_t> ids_;
  size_t returned_ = 0;
  bool busy_ = false;
};

ResidentStore::~ResidentStore() = default;

uint64_t ResidentStore::total_bytes(const Pack& pack) {
  uint64_t total = 0;
  for (const ExpertLayer& layer : pack.manifest().expert_layers) total += layer.record_bytes * layer.experts;
  return total;
}

std::unique_ptr<ResidentStore> ResidentStore::load(const Pack& pack, ThreadTeam& team,
                                                   const std::function<void(uint64_t)>& on_bytes) {
  const PackManifest& manifest = pack.manifest();
  std::unique_ptr<ResidentStore> store(new ResidentStore());

  struct Read {
    uint32_t record;
    uint64_t offset;  // in the arena
  };
  std::vector<Read> reads;
  uint64_t at = 0;
  for (const ExpertLayer& layer : manifest.expert_layers) {
    if (layer.layer >= store->layers_.size()) store->layers_.resize(size_t{layer.layer} + 1);
    Layer& place = store->layers_[layer.layer];
    place = {at, align_up(layer.record_bytes, kArenaAlignment), layer.record_bytes, layer.experts};
    for (uint32_t e = 0; e < layer.experts; ++e) reads.push_back({layer.first_record + e, at + e * place.stride});
    at += place.stride * layer.experts;
  }
  store->arena_ = device::PinnedBuffer(at);

  // In the order of the file: one sequential read, shared by the threads.
  std::sort(reads.begin(), reads.end(), [&](const Read& a, const Read& b) {
    return manifest.records[a.record].offset < manifest.records[b.record].offset;
  });
  team.for_each(reads.size(), [&](size_t i) {
    const uint64_t bytes = manifest.records[reads[i].record].bytes;
    pack.read_record(reads[i].record, store->arena_.bytes().subspan(reads[i].offset, bytes));
    on_bytes(bytes);
  });
  return store;
}

ExpertStore::Lease ResidentStore::acquire(uint32_t layer, std::span<const uint32_t> experts) {
  TIERPACK_CHECK(layer < layers_.size());
  const Layer& place = layers_[layer];
  for (const uint32_t expert : experts) TIERPACK_CHECK(expert < place.experts);
  requests_served_.fetch_add(experts.size(), std::memory_order_relaxed);
  Request& request = idle_request();
  request.begin(*this, place, experts);
  return Lease(request);
}

ResidentStore::Request& ResidentStore::idle_request() {
  for (const std::unique_ptr<Request>& request : requests_) {
    if (!request->busy()) return *request;
  }
  return *requests_.emplace_back(std::make_unique<Request>());
}

ExpertCounters ResidentStore::counters() const {
  ExpertCounters counters;
  counters.requests = requests_served_.load(std::memory_order_relaxed);
  counters.ram_hits = counters.requests;
  return counters;
}

}  // namespace tierpack::experts

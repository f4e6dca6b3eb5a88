#include "runtime/experts/cache_simulator.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <queue>
#include <utility>

#include "base/error.h"
#include "runtime/experts/slot_division.h"

namespace tierpack::experts {

void RouteSequence::append(RouteTraceReader& reader, const std::string& name) {
  if (recordings_.empty()) {
    header_ = reader.header();
  } else if (reader.header() != header_) {
    fail(ErrorKind::kUsage, "{}: recorded from another pack than the recording before it; only recordings of one pack can follow each "
         "other", name);
  }
  recordings_.push_back(chunk_tokens_.size());
  std::vector<uint32_t> chosen(header_.experts, 0);
  RouteChunk chunk;
  while (reader.next(chunk)) {
    const size_t ids = size_t{chunk.tokens} * header_.used;
    for (size_t layer = 0; layer < header_.layers.size(); ++layer) {
      const auto of_layer = chunk.ids.subspan(layer * ids, ids);
      const size_t first = experts_.size();
      for (const uint16_t id : of_layer) {
        if (chosen[id]++ == 0) experts_.push_back(id);
      }
      for (size_t i = first; i < experts_.size(); ++i) counts_.push_back(std::exchange(chosen[experts_[i]], 0u));
      first_.push_back(experts_.size());
    }
    chunk_tokens_.push_back(chunk.tokens);
    tokens_ += chunk.tokens;
  }
  if (recordings_.back() == chunk_tokens_.size()) fail(ErrorKind::kUsage, "{}: a recording without tokens", name);
}

uint64_t RouteSequence::expert_bytes() const {
  uint64_t bytes = 0;
  for (const RouteTraceLayer& layer : header_.layers) bytes += layer.experts * layer.record_bytes;
  return bytes;
}

namespace {

constexpr uint32_t kAbsent = std::numeric_limits<uint32_t>::max();

// Residents by class: a slot is a place in its class's list.
class Slots {
 public:
  Slots(const RouteSequence& routes, const SimulationOptions& options) : place_(routes.shape().entries(), kAbsent) {
    std::vector<uint64_t> bytes;
    std::vector<uint32_t> experts;
    for (const RouteTraceLayer& layer : routes.header().layers) {
      bytes.push_back(layer.record_bytes);
      experts.push_back(layer.experts);
    }
    classes_ = slot_classes(routes.shape(), bytes, experts, options.seed);
    slots_ = divide_slots(classes_.classes, options.capacity_bytes);
    residents_.resize(slots_.size());
    for (size_t c = 0; c < slots_.size(); ++c) residents_[c].reserve(slots_[c]);
  }

  uint32_t class_of(uint32_t layer) const { return classes_.class_of_layer[layer]; }
  bool holds(uint32_t entry) const { return place_[entry] != kAbsent; }
  bool has_room(uint32_t slot_class) const { return residents_[slot_class].size() < slots_[slot_class]; }
  const std::vector<uint32_t>& residents(uint32_t slot_class) const { return residents_[slot_class]; }
  uint64_t slots(uint32_t slot_class) const { return slots_[slot_class]; }

  void add(uint32_t slot_class, uint32_t entry) {
    place_[entry] = static_cast<uint32_t>(residents_[slot_class].size());
    residents_[slot_class].push_back(entry);
  }
  void replace(uint32_t slot_class, uint32_t victim, uint32_t entry) {
    residents_[slot_class][place_[victim]] = entry;
    place_[entry] = std::exchange(place_[victim], kAbsent);
  }

  // The hottest of the seed in every class; bytes read.
  uint64_t fill(const RouteSequence& routes, std::span<const float> seed) {
    uint64_t bytes = 0;
    std::vector<std::vector<uint32_t>> order(slots_.size());
    const CacheShape shape = routes.shape();
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      for (uint32_t e = 0; e < routes.header().layers[layer].experts; ++e) order[class_of(layer)].push_back(shape.entry(layer, e));
    }
    for (uint32_t c = 0; c < order.size(); ++c) {
      std::stable_sort(order[c].begin(), order[c].end(), [&](uint32_t a, uint32_t b) { return seed[a] > seed[b]; });
      for (size_t i = 0; i < slots_[c]; ++i) add(c, order[c][i]);
      bytes += slots_[c] * classes_.classes[c].record_bytes;
    }
    return bytes;
  }

  void count(SimulationResult& result) const {
    for (size_t c = 0; c < slots_.size(); ++c) {
      result.slots += slots_[c];
      result.slot_bytes += slots_[c] * classes_.classes[c].record_bytes;
    }
  }

 private:
  SlotClasses classes_;
  std::vector<uint64_t> slots_;
  std::vector<std::vector<uint32_t>> residents_;
  std::vector<uint32_t> place_;  // by entry: in its class's residents
};

// What happens at a layer's request once hits have been counted: who gets a slot.
class Replacement {
 public:
  virtual ~Replacement() = default;
  virtual void on_request(size_t step, uint32_t layer, const RouteSequence::Request& request, uint32_t tokens) = 0;
  // `misses` in the order of the request; residents that gave their slots.
  virtual uint64_t place(Slots& slots, uint32_t layer, const RouteSequence::Request& request,
                         std::span<const uint32_t> misses) = 0;
};

class ByPolicy final : public Replacement {
 public:
  ByPolicy(CachePolicy& policy, const CacheShape& shape, std::span<const float> seed)
      : shape_(shape), policy_(policy), held_(shape.entries(), false) {
    if (!seed.empty()) policy_.seed(seed);
  }

  void on_request(size_t, uint32_t layer, const RouteSequence::Request& request, uint32_t tokens) override {
    policy_.on_route(layer, request.experts, request.counts, tokens);
  }

  uint64_t place(Slots& slots, uint32_t layer, const RouteSequence::Request& request,
                 std::span<const uint32_t> misses) override {
    const uint32_t c = slots.class_of(layer);
    if (slots.slots(c) == 0) return 0;
    for (const uint32_t e : request.experts) held_[shape_.entry(layer, e)] = true;
    size_t at = 0;
    while (at < misses.size() && slots.has_room(c)) slots.add(c, misses[at++]);
    uint64_t moves = 0;
    if (at < misses.size()) {
      choose_victims(slots.residents(c), misses.size() - at);
      for (const auto& [value, victim] : victims_) {
        slots.replace(c, victim, misses[at++]);
        ++moves;
      }
      // The rest streams through the slot that the last one took.
      for (uint32_t last = at > 0 ? misses[at - 1] : slots.residents(c).front(); at < misses.size(); last = misses[at++]) {
        slots.replace(c, last, misses[at]);
        ++moves;
      }
    }
    for (const uint32_t e : request.experts) held_[shape_.entry(layer, e)] = false;
    return moves;
  }

 private:
  using Worth = std::pair<double, uint32_t>;

  // The `count` unheld residents that are worth least, in ascending order.
  void choose_victims(const std::vector<uint32_t>& residents, size_t count) {
    const auto values = policy_.values();
    victims_.clear();  // a heap with the most valuable on top
    for (const uint32_t entry : residents) {
      const Worth worth(values[entry], entry);
      if (held_[entry] || (victims_.size() == count && !(worth < victims_.front()))) continue;
      if (victims_.size() == count) {
        std::pop_heap(victims_.begin(), victims_.end());
        victims_.pop_back();
      }
      victims_.push_back(worth);
      std::push_heap(victims_.begin(), victims_.end());
    }
    std::sort_heap(victims_.begin(), victims_.end());
  }

  CacheShape shape_;
  CachePolicy& policy_;
  std::vector<char> held_;
  std::vector<Worth> victims_;
};

class ByFuture final : public Replacement {
 public:
  explicit ByFuture(const RouteSequence& routes) : shape_(routes.shape()), next_use_(shape_.entries(), kNever) {
    // From the end: the step at which each request's expert is asked for again.
    const size_t chunks = routes.chunk_tokens().size();
    following_.resize(chunks * shape_.layers);
    for (size_t step = following_.size(); step-- > 0;) {
      const uint32_t layer = static_cast<uint32_t>(step % shape_.layers);
      for (const uint32_t e : routes.request(step / shape_.layers, layer).experts) {
        following_[step].push_back(std::exchange(next_use_[shape_.entry(layer, e)], step));
      }
    }
  }

  void on_request(size_t step, uint32_t layer, const RouteSequence::Request& request, uint32_t) override {
    for (size_t i = 0; i < request.experts.size(); ++i) next_use_[shape_.entry(layer, request.experts[i])] = following_[step][i];
  }

  uint64_t place(Slots& slots, uint32_t layer, const RouteSequence::Request&, std::span<const uint32_t> misses) override {
    const uint32_t c = slots.class_of(layer);
    uint64_t moves = 0;
    for (const uint32_t entry : misses) {
      if (slots.has_room(c)) {
        slots.add(c, entry);
        continue;
      }
      const auto& residents = slots.residents(c);
      if (residents.empty()) continue;
      const uint32_t victim = *std::max_element(residents.begin(), residents.end(), [&](uint32_t a, uint32_t b) {
        return next_use_[a] < next_use_[b];
      });
      if (next_use_[victim] <= next_use_[entry]) continue;
      slots.replace(c, victim, entry);
      ++moves;
    }
    return moves;
  }

 private:
  static constexpr size_t kNever = std::numeric_limits<size_t>::max();
  CacheShape shape_;
  std::vector<size_t> next_use_;                // by entry, after the current request
  std::vector<std::vector<size_t>> following_;  // (steps, experts of the request)
};

// Values of what the next token uses: the sooner, the higher, and all above any expectation.
class Foresight final : public CachePolicy {
 public:
  explicit Foresight(const RouteSequence& routes)
      : routes_(routes), shape_(routes.shape()), expected_(make_policy(policy_names().front(), shape_)), values_(shape_.entries(), 0.0) {}

  void seed(std::span<const float> uses_per_token) override { expected_->seed(uses_per_token); }

  void on_route(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> counts, uint32_t tokens) override {
    expected_->on_route(layer, experts, counts, tokens);
    std::copy(expected_->values().begin(), expected_->values().end(), values_.begin());
    ++step_;
    for (uint32_t ahead = shape_.layers; ahead-- > 0;) {
      const size_t step = step_ + ahead;
      if (step >= routes_.chunk_tokens().size() * shape_.layers) continue;
      const auto of_layer = static_cast<uint32_t>(step % shape_.layers);
      for (const uint32_t e : routes_.request(step / shape_.layers, of_layer).experts) {
        values_[shape_.entry(of_layer, e)] = kCertain - ahead;
      }
    }
  }
  std::span<const double> values() const override { return values_; }

 private:
  static constexpr double kCertain = 1e6;
  const RouteSequence& routes_;
  CacheShape shape_;
  std::unique_ptr<CachePolicy> expected_;
  std::vector<double> values_;
  size_t step_ = 0;  // the next one to be routed
};

SimulationResult replay(const RouteSequence& routes, Replacement& replacement, const SimulationOptions& options) {
  const CacheShape shape = routes.shape();
  SimulationResult result;
  Slots slots(routes, options);
  slots.count(result);
  if (!options.seed.empty()) result.seed_bytes = slots.fill(routes, options.seed);

  std::vector<uint32_t> misses;
  size_t recording = 0;
  uint64_t token = 0;  // of the recording
  for (size_t chunk = 0; chunk < routes.chunk_tokens().size(); ++chunk) {
    const uint32_t tokens = routes.chunk_tokens()[chunk];
    if (recording < routes.recordings().size() && routes.recordings()[recording] == chunk) {
      ++recording;
      token = 0;
    }
    if (token == 0 || result.windows.back().tokens >= options.window_tokens) {
      result.windows.push_back({recording - 1, token, 0, 0, 0});
    }
    SimulationWindow& window = result.windows.back();
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      const RouteSequence::Request request = routes.request(chunk, layer);
      replacement.on_request(chunk * shape.layers + layer, layer, request, tokens);
      misses.clear();
      for (const uint32_t e : request.experts) {
        const uint32_t entry = shape.entry(layer, e);
        if (!slots.holds(entry)) misses.push_back(entry);
      }
      window.requests += request.experts.size();
      window.hits += request.experts.size() - misses.size();
      if (misses.empty()) continue;
      result.bytes_read += misses.size() * routes.header().layers[layer].record_bytes;
      result.moves += replacement.place(slots, layer, request, misses);
    }
    window.tokens += tokens;
    token += tokens;
  }
  for (const SimulationWindow& window : result.windows) {
    result.requests += window.requests;
    result.hits += window.hits;
  }
  return result;
}

}  // namespace

SimulationResult simulate(const RouteSequence& routes, CachePolicy& policy, const SimulationOptions& options) {
  TIERPACK_CHECK((options.seed.empty() || options.seed.size() == routes.shape().entries()) && options.window_tokens > 0);
  ByPolicy replacement(policy, routes.shape(), options.seed);
  return replay(routes, replacement, options);
}

SimulationResult simulate(const RouteSequence& routes, std::string_view policy, const SimulationOptions& options) {
  if (policy == kForesight) {
    Foresight foresight(routes);
    return simulate(routes, foresight, options);
  }
  if (policy != kBelady) return simulate(routes, *make_policy(policy, routes.shape()), options);
  TIERPACK_CHECK((options.seed.empty() || options.seed.size() == routes.shape().entries()) && options.window_tokens > 0);
  ByFuture replacement(routes);
  return replay(routes, replacement, options);
}

}  // namespace tierpack::experts

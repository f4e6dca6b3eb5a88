// Replays recorded routing through a cache of a given size: what a policy would hit, read and evict, beside the best that
// any policy could do. Pure: numbers in, numbers out.
//
// The cache is one tier, divided as the store divides it (slot_division.h). A layer's request of a chunk holds its experts
// until the layer has run. A miss is read into a free slot of its class, or into that of the resident, unheld expert that
// is worth least. When a request has more misses than its class has slots to give, later ones take the slots of earlier
// ones: they stream through.
//
// `belady` knows the future: a miss takes the place of the resident whose next use is furthest, or none if its own is
// further still. It begins with the same residents as the others, so no policy that begins there has more hits.
// `foresight` knows exactly what the next token will choose and expects of later ones what `adaptive` does: about what a
// perfect guess of the next token could gain.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/experts/cache_policy.h"
#include "runtime/experts/route_trace.h"

namespace tierpack::experts {

inline constexpr std::string_view kBelady = "belady";
inline constexpr std::string_view kForesight = "foresight";

// Recorded chunks, each layer's reduced to distinct experts and how many of the chunk's tokens chose them.
class RouteSequence {
 public:
  // Appends the rest of a recording, checked as it is read. Every one must be of the same model in the same pack: kUsage
  // otherwise.
  void append(RouteTraceReader& reader, const std::string& name);

  struct Request {
    std::span<const uint32_t> experts;
    std::span<const uint32_t> counts;
  };
  Request request(size_t chunk, uint32_t layer) const {
    const size_t step = chunk * header_.layers.size() + layer;
    const size_t count = first_[step + 1] - first_[step];
    return {std::span(experts_).subspan(first_[step], count), std::span(counts_).subspan(first_[step], count)};
  }
  const RouteTraceHeader& header() const { return header_; }
  CacheShape shape() const { return {static_cast<uint32_t>(header_.layers.size()), header_.experts}; }
  const std::vector<uint32_t>& chunk_tokens() const { return chunk_tokens_; }
  // The first chunk of every recording.
  const std::vector<size_t>& recordings() const { return recordings_; }
  uint64_t tokens() const { return tokens_; }
  uint64_t expert_bytes() const;  // of all experts

 private:
  RouteTraceHeader header_;
  std::vector<uint32_t> chunk_tokens_;
  std::vector<size_t> recordings_;
  std::vector<size_t> first_ = {0};
  std::vector<uint32_t> experts_;
  std::vector<uint32_t> counts_;
  uint64_t tokens_ = 0;
};

struct SimulationOptions {
  uint64_t capacity_bytes = 0;
  std::span<const float> seed;  // (layers, experts) uses per token; empty: begins cold
  uint32_t window_tokens = 64;
};

// Consecutive tokens of one recording.
struct SimulationWindow {
  size_t recording = 0;
  uint64_t first_token = 0;  // in the recording
  uint32_t tokens = 0;
  uint64_t requests = 0;
  uint64_t hits = 0;
};

struct SimulationResult {
  uint64_t slots = 0;
  uint64_t slot_bytes = 0;
  uint64_t seed_bytes = 0;  // read before the first token
  uint64_t requests = 0;    // distinct experts that a layer of a chunk asked for
  uint64_t hits = 0;
  uint64_t bytes_read = 0;
  uint64_t moves = 0;       // residents that gave their slot to another
  std::vector<SimulationWindow> windows;
  double hit_rate() const { return requests == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(requests); }
};

// `policy`: one of policy_names(), foresight or belady. Throws kUsage for another.
SimulationResult simulate(const RouteSequence& routes, std::string_view policy, const SimulationOptions& options);
// The same with a policy that has seen nothing yet.
SimulationResult simulate(const RouteSequence& routes, CachePolicy& policy, const SimulationOptions& options);

}  // namespace tierpack::experts

// What is worth keeping in a tier: pure code over numbers of experts and their use, without memory, files or threads. A
// policy gives every expert of the model a value; a store evicts the resident one that is worth least. `tierpack simulate`
// runs the same objects over recorded routing.
//
// An entry is one expert of one layer: entry = layer * experts + expert, where `layer` counts the pack's expert layers in
// their order (not block numbers). Time is counted in tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tierpack::experts {

struct CacheShape {
  uint32_t layers = 0;   // with experts
  uint32_t experts = 0;  // of the layer that has most; numbers beyond a smaller layer's own are never used
  uint32_t entries() const { return layers * experts; }
  uint32_t entry(uint32_t layer, uint32_t expert) const { return layer * experts + expert; }
};

class CachePolicy {
 public:
  virtual ~CachePolicy() = default;
  // Expected uses per token of every entry, from a profile: (layers, experts). At most once, before the first on_route.
  virtual void seed(std::span<const float> uses_per_token) = 0;
  // Layer `layer` of a chunk of `tokens` tokens was routed to the distinct `experts`; counts[i] of its tokens chose
  // experts[i]. Layers come in ascending order within a chunk; a layer that is not above the last one begins the next
  // chunk. Never allocates.
  virtual void on_route(uint32_t layer, std::span<const uint32_t> experts, std::span<const uint32_t> counts,
                        uint32_t tokens) = 0;
  // (entries): the higher, the more worth keeping. Valid until the next call of another member.
  virtual std::span<const double> values() const = 0;
};

// Names that make_policy knows; the first is the default.
std::span<const std::string_view> policy_names();
// Throws kUsage for an unknown name.
std::unique_ptr<CachePolicy> make_policy(std::string_view name, const CacheShape& shape);

}  // namespace tierpack::experts

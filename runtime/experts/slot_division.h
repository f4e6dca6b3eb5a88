// How a tier's bytes are divided among sizes of records. A slot holds a record of one size, so that any record of that
// size fits any slot and nothing is ever compacted; layers whose records have one size share their slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/experts/cache_policy.h"

namespace tierpack::experts {

struct SlotClass {
  uint64_t record_bytes = 0;
  uint64_t entries = 0;  // records of this size
  double use = 0;        // expected uses per token, summed over its entries
};

// Slots of every class: as near to proportional to use as whole slots allow, at most `entries` each, at least one each
// where the bytes reach, and together at most `bytes`. What a full class leaves goes to the others.
std::vector<uint64_t> divide_slots(std::span<const SlotClass> classes, uint64_t bytes);

// The classes of a model, in the order in which their first layer comes, and each layer's class. `seed` is empty or
// (layers, experts) uses per token; without it a class is used in proportion to its entries.
struct SlotClasses {
  std::vector<SlotClass> classes;
  std::vector<uint32_t> class_of_layer;
};
SlotClasses slot_classes(const CacheShape& shape, std::span<const uint64_t> record_bytes,
                         std::span<const uint32_t> experts_of_layer, std::span<const float> seed);

}  // namespace tierpack::experts

#include "runtime/experts/slot_division.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace tierpack::experts {

std::vector<uint64_t> divide_slots(std::span<const SlotClass> classes, uint64_t bytes) {
  std::vector<uint64_t> slots(classes.size(), 0);
  // One each, smallest records first, so that a small tier serves as many classes as it can.
  std::vector<size_t> order(classes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return classes[a].record_bytes < classes[b].record_bytes; });
  uint64_t left = bytes;
  for (const size_t c : order) {
    if (classes[c].entries == 0 || classes[c].record_bytes > left) continue;
    slots[c] = 1;
    left -= classes[c].record_bytes;
  }
  // The rest one by one to the class that has fewest for its use: highest averages, after D'Hondt.
  for (;;) {
    size_t best = classes.size();
    double best_need = -1;
    for (size_t c = 0; c < classes.size(); ++c) {
      if (slots[c] >= classes[c].entries || classes[c].record_bytes > left) continue;
      const double need = classes[c].use / static_cast<double>(slots[c] + 1);
      if (need > best_need) best_need = need, best = c;
    }
    if (best == classes.size()) return slots;
    ++slots[best];
    left -= classes[best].record_bytes;
  }
}

SlotClasses slot_classes(const CacheShape& shape, std::span<const uint64_t> record_bytes,
                         std::span<const uint32_t> experts_of_layer, std::span<const float> seed) {
  TIERPACK_CHECK(record_bytes.size() == shape.layers && experts_of_layer.size() == shape.layers &&
                 (seed.empty() || seed.size() == shape.entries()));
  SlotClasses out;
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    const auto at = std::find_if(out.classes.begin(), out.classes.end(),
                                 [&](const SlotClass& c) { return c.record_bytes == record_bytes[layer]; });
    out.class_of_layer.push_back(static_cast<uint32_t>(at - out.classes.begin()));
    if (at == out.classes.end()) out.classes.push_back({record_bytes[layer], 0, 0});
    SlotClass& mine = out.classes[out.class_of_layer.back()];
    mine.entries += experts_of_layer[layer];
    if (seed.empty()) {
      mine.use += experts_of_layer[layer];
    } else {
      for (const float use : seed.subspan(shape.entry(layer, 0), experts_of_layer[layer])) mine.use += static_cast<double>(use);
    }
  }
  return out;
}

}  // namespace tierpack::experts

// Byte-level BPE over symbols: the merge table and the loop that applies it to one piece of text. A symbol is a string
// of the byte alphabet (docs/text.md); symbols 0..255 are the single bytes in byte order.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tierpack::text {

class BpeMerges {
 public:
  // Room for `count` merges.
  explicit BpeMerges(size_t count);

  // The pair (left, right) has rank `rank` and becomes `result`. The first of two equal pairs counts.
  void add(uint32_t left, uint32_t right, uint32_t rank, uint32_t result);

  // Replaces adjacent pairs, lowest rank first and leftmost among equals, until no pair is left. On return `symbols`
  // holds what remains. O(n log n).
  void apply(std::vector<uint32_t>& symbols) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Slot {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = kNone;
    uint32_t result = kNone;
  };
  static uint64_t pair_of(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }
  size_t locate(uint32_t left, uint32_t right) const;  // the pair's slot, or the empty one where it would go
  const Slot& find(uint32_t left, uint32_t right) const { return slots_[locate(left, right)]; }
  void apply_short(std::vector<uint32_t>& symbols) const;
  void apply_long(std::vector<uint32_t>& symbols) const;

  std::vector<Slot> slots_;  // open addressing; an empty slot ends a search and says "no merge"
  uint32_t shift_;
};

}  // namespace tierpack::text

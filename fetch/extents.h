// Which bytes of a file are there, as a set of half-open ranges, and which are left to ask for. Pure values.
#pragma once

#include <cstdint>
#include <vector>

namespace tierpack::fetch {

struct Extent {
  uint64_t begin = 0;
  uint64_t end = 0;  // exclusive
  uint64_t size() const { return end - begin; }
  bool operator==(const Extent&) const = default;
};

// Invariant: sorted, disjoint, not touching, none empty.
class ExtentSet {
 public:
  void add(Extent extent);
  void remove(Extent extent);
  void clear() { extents_.clear(); }
  // Drops everything at or beyond `end`.
  void clip(uint64_t end);
  uint64_t bytes() const;
  // End of the range that begins at 0, else 0: how far a hash from the start can go.
  uint64_t prefix_end() const;
  bool covers(Extent extent) const;
  // The parts of `extent` that are not in the set, in order.
  std::vector<Extent> missing(Extent extent) const;
  const std::vector<Extent>& extents() const { return extents_; }
  bool operator==(const ExtentSet&) const = default;

 private:
  std::vector<Extent> extents_;
};

// The parts of [0, total) that are neither there nor on their way, in order.
std::vector<Extent> remaining_ranges(const ExtentSet& done, const std::vector<Extent>& in_flight, uint64_t total);

// The next range to ask for: the first remaining one, cut to at most `max_bytes` and, when it does not reach the end
// of the gap, to a multiple of 1 MiB. An empty extent when nothing remains.
Extent next_range(const ExtentSet& done, const std::vector<Extent>& in_flight, uint64_t total, uint64_t max_bytes);

}  // namespace tierpack::fetch

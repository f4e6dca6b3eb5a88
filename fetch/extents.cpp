#include "fetch/extents.h"

#include <algorithm>

namespace tierpack::fetch {

void ExtentSet::add(Extent extent) {
  if (extent.begin >= extent.end) return;
  // The first range that touches or follows the new one.
  const auto from = std::lower_bound(extents_.begin(), extents_.end(), extent.begin,
                                     [](const Extent& e, uint64_t at) { return e.end < at; });
  auto to = from;
  while (to != extents_.end() && to->begin <= extent.end) {
    extent.begin = std::min(extent.begin, to->begin);
    extent.end = std::max(extent.end, to->end);
    ++to;
  }
  if (from == to) {
    extents_.insert(from, extent);
  } else {
    *from = extent;
    extents_.erase(from + 1, to);
  }
}

void ExtentSet::remove(Extent extent) {
  if (extent.begin >= extent.end) return;
  std::vector<Extent> kept;
  for (const Extent& e : extents_) {
    if (e.begin < std::min(e.end, extent.begin)) kept.push_back({e.begin, std::min(e.end, extent.begin)});
    if (std::max(e.begin, extent.end) < e.end) kept.push_back({std::max(e.begin, extent.end), e.end});
  }
  extents_ = std::move(kept);
}

void ExtentSet::clip(uint64_t end) {
  while (!extents_.empty() && extents_.back().begin >= end) extents_.pop_back();
  if (!extents_.empty()) extents_.back().end = std::min(extents_.back().end, end);
}

uint64_t ExtentSet::bytes() const {
  uint64_t sum = 0;
  for (const Extent& extent : extents_) sum += extent.size();
  return sum;
}

uint64_t ExtentSet::prefix_end() const {
  return !extents_.empty() && extents_.front().begin == 0 ? extents_.front().end : 0;
}

bool ExtentSet::covers(Extent extent) const {
  if (extent.begin >= extent.end) return true;
  return std::any_of(extents_.begin(), extents_.end(),
                     [&](const Extent& e) { return e.begin <= extent.begin && extent.end <= e.end; });
}

std::vector<Extent> ExtentSet::missing(Extent extent) const {
  std::vector<Extent> out;
  uint64_t at = extent.begin;
  for (auto e = std::lower_bound(extents_.begin(), extents_.end(), extent.begin,
                                 [](const Extent& one, uint64_t begin) { return one.end <= begin; });
       e != extents_.end() && e->begin < extent.end; ++e) {
    if (e->begin > at) out.push_back({at, e->begin});
    at = e->end;
  }
  if (at < extent.end) out.push_back({at, extent.end});
  return out;
}

std::vector<Extent> remaining_ranges(const ExtentSet& done, const std::vector<Extent>& in_flight, uint64_t total) {
  ExtentSet taken = done;
  for (const Extent& extent : in_flight) taken.add(extent);
  return taken.missing({0, total});
}

Extent next_range(const ExtentSet& done, const std::vector<Extent>& in_flight, uint64_t total, uint64_t max_bytes) {
  const std::vector<Extent> gaps = remaining_ranges(done, in_flight, total);
  if (gaps.empty()) return {};
  Extent range = gaps.front();
  if (range.size() > max_bytes) {
    constexpr uint64_t kAlign = uint64_t{1} << 20;
    const uint64_t end = range.begin + max_bytes;
    const uint64_t aligned = end / kAlign * kAlign;
    range.end = aligned > range.begin ? aligned : end;
  }
  return range;
}

}  // namespace tierpack::fetch

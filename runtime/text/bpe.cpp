#include "runtime/text/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "base/error.h"

namespace tierpack::text {

namespace {
// Up to here scanning all pairs for the best one beats a queue.
constexpr size_t kShortPiece = 32;
}  // namespace

BpeMerges::BpeMerges(size_t count) {
  const size_t size = std::bit_ceil(count * 2 + 2);
  slots_.resize(size);
  shift_ = 64 - static_cast<uint32_t>(std::bit_width(size) - 1);
}

size_t BpeMerges::locate(uint32_t left, uint32_t right) const {
  const uint64_t pair = pair_of(left, right);
  const size_t mask = slots_.size() - 1;
  for (size_t at = (pair * 0x9E3779B97F4A7C15u) >> shift_;; at = (at + 1) & mask) {
    if (slots_[at].pair == pair || slots_[at].rank == kNone) return at;
  }
}

void BpeMerges::add(uint32_t left, uint32_t right, uint32_t rank, uint32_t result) {
  Slot& slot = slots_[locate(left, right)];
  if (slot.rank == kNone) slot = {pair_of(left, right), rank, result};
}

void BpeMerges::apply(std::vector<uint32_t>& symbols) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShortPiece) {
    apply_short(symbols);
  } else {
    apply_long(symbols);
  }
}

void BpeMerges::apply_short(std::vector<uint32_t>& symbols) const {
  const Slot* pairs[kShortPiece];  // pairs[i]: symbols i and i + 1
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = &find(symbols[i], symbols[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (pairs[i]->rank < pairs[best]->rank) best = i;
    }
    if (pairs[best]->rank == kNone) break;
    symbols[best] = pairs[best]->result;
    std::move(symbols.begin() + best + 2, symbols.begin() + n, symbols.begin() + best + 1);
    std::move(pairs + best + 1, pairs + n - 1, pairs + best);
    --n;
    if (best > 0) pairs[best - 1] = &find(symbols[best - 1], symbols[best]);
    if (best + 1 < n) pairs[best] = &find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(n);
}

void BpeMerges::apply_long(std::vector<uint32_t>& symbols) const {
  // A list over positions; a merged right half becomes kNone. The queue orders by rank, then position; an entry is
  // stale when the pair at its position no longer has its rank.
  const size_t n = symbols.size();
  TIERPACK_CHECK(n < kNone);
  std::vector<uint32_t> next(n), previous(n);
  std::vector<uint64_t> queue_storage;
  queue_storage.reserve(n);
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue({}, std::move(queue_storage));
  const auto offer = [&](uint32_t left, uint32_t right) {
    const Slot& slot = find(symbols[left], symbols[right]);
    if (slot.rank != kNone) queue.push(uint64_t{slot.rank} << 32 | left);
  };
  for (size_t i = 0; i < n; ++i) {
    previous[i] = i == 0 ? kNone : static_cast<uint32_t>(i - 1);
    next[i] = i + 1 == n ? kNone : static_cast<uint32_t>(i + 1);
    if (i > 0) offer(static_cast<uint32_t>(i - 1), static_cast<uint32_t>(i));
  }
  while (!queue.empty()) {
    const uint32_t rank = static_cast<uint32_t>(queue.top() >> 32);
    const uint32_t left = static_cast<uint32_t>(queue.top());
    queue.pop();
    const uint32_t right = symbols[left] == kNone ? kNone : next[left];
    if (right == kNone) continue;
    const Slot& slot = find(symbols[left], symbols[right]);
    if (slot.rank != rank) continue;
    symbols[left] = slot.result;
    symbols[right] = kNone;
    next[left] = next[right];
    if (next[left] != kNone) {
      previous[next[left]] = left;
      offer(left, next[left]);
    }
    if (previous[left] != kNone) offer(previous[left], left);
  }
  symbols.erase(std::remove(symbols.begin(), symbols.end(), kNone), symbols.end());
}

}  // namespace tierpack::text

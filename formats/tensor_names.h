// Names of very many tensors (real checkpoints have 300,000), kept in few allocations and found without a node per
// name.
//
// NameArena owns text and shapes in chunks that never move, so that views into it stay valid when its owner is moved.
// NameIndex is a sorted table of (hash, name) -> id; building and finding cost O(log n) a name whatever the names are,
// so that a file cannot slow it down with colliding names.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tierpack {

inline constexpr size_t kMaxTensorNameBytes = 4096;

// Names end up in messages, tables and other files: at most kMaxTensorNameBytes, no control characters.
bool is_tensor_name(std::string_view name);

class NameArena {
 public:
  NameArena() = default;
  NameArena(NameArena&&) = default;
  NameArena& operator=(NameArena&&) = default;

  std::string_view keep(std::string_view text);
  std::span<const uint64_t> keep(std::span<const uint64_t> numbers);

 private:
  std::byte* allocate(size_t bytes, size_t alignment);
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  size_t used_ = 0;  // of the last chunk
  size_t size_ = 0;  // of the last chunk
};

class NameIndex {
 public:
  // Indexes ids 0 .. count-1. `names(id)` gives the name of an id, here and below, and must not change in between.
  template <typename Names>
  void build(size_t count, const Names& names) {
    entries_.resize(count);
    for (uint32_t id = 0; id < count; ++id) entries_[id] = {hash_of(names(id)), id};
    std::sort(entries_.begin(), entries_.end(), [&](const Entry& a, const Entry& b) {
      if (a.hash != b.hash) return a.hash < b.hash;
      const int order = names(a.id).compare(names(b.id));
      return order != 0 ? order < 0 : a.id < b.id;
    });
  }

  // Forgets the ids for which keep(id) is false.
  template <typename Keep>
  void keep_if(const Keep& keep) {
    std::erase_if(entries_, [&](const Entry& entry) { return !keep(entry.id); });
  }

  // The first two ids with one name, if there are such.
  template <typename Names>
  std::optional<uint32_t> duplicate(const Names& names) const {
    const auto twice = std::adjacent_find(entries_.begin(), entries_.end(), [&](const Entry& a, const Entry& b) {
      return a.hash == b.hash && names(a.id) == names(b.id);
    });
    return twice == entries_.end() ? std::nullopt : std::optional(twice->id);
  }

  // Calls on_id(id) for every id with this name, ascending.
  template <typename Names, typename OnId>
  void find_all(std::string_view name, const Names& names, const OnId& on_id) const {
    const uint32_t hash = hash_of(name);
    auto at =
        std::lower_bound(entries_.begin(), entries_.end(), name, [&](const Entry& entry, std::string_view wanted) {
          return entry.hash != hash ? entry.hash < hash : names(entry.id) < wanted;
        });
    for (; at != entries_.end() && at->hash == hash && names(at->id) == name; ++at) on_id(at->id);
  }

  template <typename Names>
  std::optional<uint32_t> find(std::string_view name, const Names& names) const {
    std::optional<uint32_t> found;
    find_all(name, names, [&](uint32_t id) {
      if (!found) found = id;
    });
    return found;
  }

 private:
  struct Entry {
    uint32_t hash;
    uint32_t id;
  };
  static uint32_t hash_of(std::string_view name);
  std::vector<Entry> entries_;  // by hash, then name, then id
};

}  // namespace tierpack

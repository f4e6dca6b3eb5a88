// Names of very many tensors (real checkpoints have 300,000), kept in few allocations and found without a node per
// name.
//
// NameArena owns text and shapes in chunks that never move, so that views into it stay valid when its owner is moved.
// NameIndex is a sorted table of (hash, name) -> id; building and finding cost O(log n) a name whatever the names are,
// so that a file cannot slow it down with colliding names.
#pragma once

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
  void reserve(size_t names) { entries_.reserve(names); }
  // `name` must outlive the index. Call sort() after the last add and before find().
  void add(std::string_view name, uint32_t id);
  void sort();
  // A name that was added twice, if there is one.
  std::optional<std::string_view> duplicate() const;
  // Ids of all entries with this name; at most one unless duplicate().
  std::vector<uint32_t> find_all(std::string_view name) const;
  std::optional<uint32_t> find(std::string_view name) const;
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t hash;
    std::string_view name;
    uint32_t id;
    bool operator<(const Entry& other) const {
      if (hash != other.hash) return hash < other.hash;
      if (const int order = name.compare(other.name); order != 0) return order < 0;
      return id < other.id;
    }
  };
  std::vector<Entry> entries_;
};

}  // namespace tierpack

#include "formats/tensor_names.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace tierpack {

namespace {
constexpr size_t kChunkBytes = size_t{64} << 10;

uint64_t hash_of(std::string_view name) { return std::hash<std::string_view>{}(name); }
}  // namespace

bool is_tensor_name(std::string_view name) {
  return name.size() <= kMaxTensorNameBytes && std::none_of(name.begin(), name.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
         });
}

std::byte* NameArena::allocate(size_t bytes, size_t alignment) {
  size_t at = (used_ + alignment - 1) / alignment * alignment;
  if (chunks_.empty() || at > size_ || bytes > size_ - at) {
    size_ = std::max(bytes, kChunkBytes);
    chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(size_));
    at = 0;
  }
  used_ = at + bytes;
  return chunks_.back().get() + at;
}

std::string_view NameArena::keep(std::string_view text) {
  if (text.empty()) return {};
  char* to = reinterpret_cast<char*>(allocate(text.size(), 1));
  std::memcpy(to, text.data(), text.size());
  return {to, text.size()};
}

std::span<const uint64_t> NameArena::keep(std::span<const uint64_t> numbers) {
  if (numbers.empty()) return {};
  auto* to = reinterpret_cast<uint64_t*>(allocate(numbers.size_bytes(), alignof(uint64_t)));
  std::memcpy(to, numbers.data(), numbers.size_bytes());
  return {to, numbers.size()};
}

void NameIndex::add(std::string_view name, uint32_t id) { entries_.push_back({hash_of(name), name, id}); }

void NameIndex::sort() { std::sort(entries_.begin(), entries_.end()); }

std::optional<std::string_view> NameIndex::duplicate() const {
  const auto twice = std::adjacent_find(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.hash == b.hash && a.name == b.name;
  });
  if (twice == entries_.end()) return std::nullopt;
  return twice->name;
}

std::vector<uint32_t> NameIndex::find_all(std::string_view name) const {
  std::vector<uint32_t> ids;
  for (auto at = std::lower_bound(entries_.begin(), entries_.end(), Entry{hash_of(name), name, 0});
       at != entries_.end() && at->name == name; ++at) {
    ids.push_back(at->id);
  }
  return ids;
}

std::optional<uint32_t> NameIndex::find(std::string_view name) const {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), Entry{hash_of(name), name, 0});
  if (at == entries_.end() || at->name != name) return std::nullopt;
  return at->id;
}

}  // namespace tierpack

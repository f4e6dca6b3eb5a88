#include "formats/tensor_names.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace tierpack {

namespace {
constexpr size_t kChunkBytes = size_t{64} << 10;
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

uint32_t NameIndex::hash_of(std::string_view name) {
  return static_cast<uint32_t>(std::hash<std::string_view>{}(name));
}

}  // namespace tierpack

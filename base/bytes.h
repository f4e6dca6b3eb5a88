// Bytes from outside: bounded reading and sizes as people write them.
//
// ByteReader is a cursor over untrusted bytes: every read is checked against what remains before anything is used or
// allocated, and a short read throws kCorrupt naming the source and the offset. All integers are little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

static_assert(std::endian::native == std::endian::little, "tierpack reads and writes little-endian data in place");

namespace tierpack {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// Unaligned load / store of a trivially copyable value.
template <typename T>
T load(const void* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
void store(void* to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(to, &value, sizeof value);
}

// Checked arithmetic on untrusted numbers: nullopt on overflow.
std::optional<uint64_t> checked_add(uint64_t a, uint64_t b);
std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b);
// x rounded up to a multiple of `alignment` (a power of two); nullopt on overflow.
std::optional<uint64_t> checked_align_up(uint64_t x, uint64_t alignment);

// For trusted numbers.
constexpr uint64_t align_up(uint64_t x, uint64_t alignment) { return (x + alignment - 1) & ~(alignment - 1); }
constexpr uint64_t ceil_div(uint64_t x, uint64_t y) { return (x + y - 1) / y; }

class ByteReader {
 public:
  // `source` names the bytes in errors; `base` is the offset of data[0] in that source.
  ByteReader(Bytes data, std::string source, uint64_t base = 0)
      : data_(data), source_(std::move(source)), base_(base) {}

  uint64_t remaining() const { return data_.size() - at_; }
  uint64_t position() const { return base_ + at_; }

  template <typename T>
  T read(const char* what) {
    return load<T>(take(sizeof(T), what).data());
  }
  // The next n bytes, valid as long as the underlying data.
  Bytes take(uint64_t n, const char* what);
  // u64 length, then that many bytes (GGUF's string); at most `limit` bytes.
  std::string_view read_string(uint64_t limit, const char* what);
  void skip(uint64_t n, const char* what) { take(n, what); }

  // Throws kCorrupt: "<source>: <message> at byte <position>".
  [[noreturn]] void fail_here(const std::string& message) const;

 private:
  Bytes data_;
  std::string source_;
  uint64_t base_;
  uint64_t at_ = 0;
};

inline Bytes as_bytes(std::string_view text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }
inline std::string_view as_text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// "14GiB", "14GB", "14G" (= GiB), "512K", "123", "1.5GiB" -> bytes. Throws kUsage.
uint64_t parse_size(std::string_view text);
// 1536 -> "1.50 KiB"; three significant digits, binary units.
std::string format_size(uint64_t bytes);
// 1234567 -> "1,234,567".
std::string format_count(uint64_t n);
// Lower-case hex.
std::string to_hex(Bytes bytes);
// nullopt unless `text` is exactly 2 * out.size() hex digits.
bool from_hex(std::string_view text, MutableBytes out);

}  // namespace tierpack

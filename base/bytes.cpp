#include "base/bytes.h"

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace tierpack {

std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

std::optional<uint64_t> checked_align_up(uint64_t x, uint64_t alignment) {
  const auto sum = checked_add(x, alignment - 1);
  if (!sum) return std::nullopt;
  return *sum & ~(alignment - 1);
}

Bytes ByteReader::take(uint64_t n, const char* what) {
  if (n > remaining()) {
    fail_here(fmt::format("{} needs {} bytes but only {} remain", what, n, remaining()));
  }
  const Bytes taken = data_.subspan(at_, n);
  at_ += n;
  return taken;
}

std::string_view ByteReader::read_string(uint64_t limit, const char* what) {
  const auto length = read<uint64_t>(what);
  if (length > limit) fail_here(fmt::format("{} is {} bytes long, more than the limit of {}", what, length, limit));
  return as_text(take(length, what));
}

void ByteReader::fail_here(const std::string& message) const {
  fail(ErrorKind::kCorrupt, "{}: {} at byte {}", source_, message, position());
}

uint64_t parse_size(std::string_view text) {
  const std::string_view whole = text;
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || !(number >= 0) || !std::isfinite(number)) {
    fail(ErrorKind::kUsage, "'{}' is not a size; write for example 14GiB, 14GB, 512M or a number of bytes", whole);
  }
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);

  double unit = 1;
  if (!text.empty() && text != "B" && text != "b") {
    constexpr std::string_view kPrefixes = "KMGTP";
    const char letter = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
    const size_t power = kPrefixes.find(letter);
    const std::string_view suffix = text.substr(1);
    const bool binary = suffix.empty() || suffix == "iB" || suffix == "ib" || suffix == "i";
    const bool decimal = suffix == "B" || suffix == "b";
    if (power == std::string_view::npos || (!binary && !decimal)) {
      fail(ErrorKind::kUsage, "'{}' is not a size: unknown unit '{}'; use K, M, G, T with B or iB", whole, text);
    }
    unit = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  }
  const double bytes = number * unit;
  if (bytes > 9.2e18) fail(ErrorKind::kUsage, "'{}' is larger than any size this program can handle", whole);
  return static_cast<uint64_t>(bytes + 0.5);
}

std::string format_size(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  const int digits = value < 10 ? 2 : value < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, digits, kUnits[unit]);
}

std::string format_count(uint64_t n) {
  std::string digits = std::to_string(n);
  for (size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string to_hex(Bytes bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    out.push_back(kDigits[std::to_integer<unsigned>(b) >> 4]);
    out.push_back(kDigits[std::to_integer<unsigned>(b) & 15]);
  }
  return out;
}

bool from_hex(std::string_view text, MutableBytes out) {
  if (text.size() != out.size() * 2) return false;
  const auto nibble = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  for (size_t i = 0; i < out.size(); ++i) {
    const int high = nibble(text[2 * i]);
    const int low = nibble(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<std::byte>(high * 16 + low);
  }
  return true;
}

}  // namespace tierpack

#include "base/memory_placement.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string>

namespace tierpack {

namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kAddressSpace = uint64_t{1} << 47;  // of an x86-64 process
constexpr uint32_t kNodesMax = 1024;  // of any Linux kernel

// Takes a number off the front of `text`.
std::optional<uint32_t> take_number(std::string_view& text) {
  uint32_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || value >= kNodesMax) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

// Pages in turn from each node.
void interleave(void* memory, uint64_t bytes, const std::vector<uint32_t>& nodes) {
#ifdef SYS_mbind
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, kNodesMax / kBits> mask{};
  for (const uint32_t node : nodes) mask[node / kBits] |= 1ul << (node % kBits);
  // Refused in some containers; then pages lie where they are first written.
  ::syscall(SYS_mbind, memory, bytes, MPOL_INTERLEAVE, mask.data(), kNodesMax, 0);
#else
  (void)memory, (void)bytes, (void)nodes;
#endif
}

}  // namespace

std::optional<std::vector<uint32_t>> parse_node_list(std::string_view text) {
  std::vector<uint32_t> nodes;
  for (;;) {
    const auto first = take_number(text);
    if (!first || (!nodes.empty() && *first <= nodes.back())) return std::nullopt;
    const auto last = take(text, '-') ? take_number(text) : first;
    if (!last || *last < *first) return std::nullopt;
    for (uint32_t node = *first; node <= *last; ++node) nodes.push_back(node);
    if (text.empty()) return nodes;
    if (!take(text, ',')) return std::nullopt;
  }
}

std::vector<uint32_t> memory_nodes(const std::filesystem::path& sysfs) {
  std::ifstream file(sysfs / "devices/system/node/has_memory");
  std::string line;
  std::getline(file, line);
  return parse_node_list(line).value_or(std::vector<uint32_t>{0});
}

std::byte* allocate_placed(uint64_t bytes) {
  const bool large = bytes >= kLargePageBytes;
  const uint64_t alignment = large ? kLargePageBytes : kPageBytes;
  const uint64_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (rounded < bytes || rounded >= kAddressSpace) return nullptr;
  void* const memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr || !large) return static_cast<std::byte*>(memory);
  ::madvise(memory, rounded, MADV_HUGEPAGE);
  if (const std::vector<uint32_t> nodes = memory_nodes(); nodes.size() > 1) interleave(memory, rounded, nodes);
  return static_cast<std::byte*>(memory);
}

}  // namespace tierpack

// Where large memory lies: in large pages, so that reading it does not wait for address translation, and on a machine with
// several memory nodes spread over all of them, so that threads on any node read at the rate of all. Hints: a system that
// refuses them changes speed alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace tierpack {

inline constexpr uint64_t kLargePageBytes = uint64_t{2} << 20;

// Numbers of the nodes that have memory, ascending, from `sysfs`/devices/system/node; {0} when the system does not say.
std::vector<uint32_t> memory_nodes(const std::filesystem::path& sysfs = "/sys");

// "0-1,4" -> {0, 1, 4}; nullopt for anything that is not such a list of numbers below 1024 in ascending order.
std::optional<std::vector<uint32_t>> parse_node_list(std::string_view text);

// Memory for `bytes` > 0, aligned to pages, to large ones from their size upwards, and placed; not touched yet, to be freed
// with std::free. Null when there is no such memory.
std::byte* allocate_placed(uint64_t bytes);

}  // namespace tierpack

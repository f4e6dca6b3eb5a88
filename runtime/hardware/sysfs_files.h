// Small files of /sys and /proc: one value or one line each. What cannot be read has no value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tierpack::hardware {

// Without white space around it; "" when there is no such file.
std::string first_line(const std::filesystem::path& path);
std::optional<int64_t> number_in(const std::filesystem::path& path);
// The text after "key :" in a file of such lines; "" when there is none.
std::string field_of(const std::filesystem::path& path, std::string_view key);
// Where a path leads through symbolic links; empty when nowhere.
std::filesystem::path resolved(const std::filesystem::path& path);

// The PCI function `device` (a resolved folder of /sys/devices) or the next one above it that has a link: "PCIe 4.0 x4".
struct PcieLink {
  std::string now, most;  // empty when the system does not say
};
PcieLink pcie_link(std::filesystem::path device);

}  // namespace tierpack::hardware

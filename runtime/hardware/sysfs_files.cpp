#include "runtime/hardware/sysfs_files.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace tierpack::hardware {

namespace {

namespace fs = std::filesystem;

std::string trimmed(std::string_view text) {
  constexpr const char* kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin));
}

// "16.0 GT/s PCIe" and "4" -> "PCIe 4.0 x4". Generations have fixed rates (PCI Express Base Specification).
std::string link_name(const std::string& speed, const std::string& width) {
  constexpr std::array<std::pair<double, const char*>, 6> kGenerations = {
      {{2.5, "1.0"}, {5.0, "2.0"}, {8.0, "3.0"}, {16.0, "4.0"}, {32.0, "5.0"}, {64.0, "6.0"}}};
  const double rate = std::strtod(speed.c_str(), nullptr);
  const long lanes = std::strtol(width.c_str(), nullptr, 10);
  if (lanes < 1 || lanes > 32) return "";  // 0 and 255: there is no link
  for (const auto& [known, name] : kGenerations) {
    if (rate == known) return fmt::format("PCIe {} x{}", name, lanes);
  }
  return "";
}

}  // namespace

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return trimmed(line);
}

std::optional<int64_t> number_in(const fs::path& path) {
  const std::string line = first_line(path);
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (problem != std::errc() || end == line.data()) return std::nullopt;
  return value;
}

std::string field_of(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos && trimmed(std::string_view(line).substr(0, colon)) == key) {
      return trimmed(std::string_view(line).substr(colon + 1));
    }
  }
  return "";
}

fs::path resolved(const fs::path& path) {
  std::error_code problem;
  fs::path out = fs::canonical(path, problem);
  return problem ? fs::path() : out;
}

PcieLink pcie_link(fs::path device) {
  for (; device.has_relative_path(); device = device.parent_path()) {
    if (!fs::exists(device / "current_link_speed")) continue;
    return {link_name(first_line(device / "current_link_speed"), first_line(device / "current_link_width")),
            link_name(first_line(device / "max_link_speed"), first_line(device / "max_link_width"))};
  }
  return {};
}

}  // namespace tierpack::hardware

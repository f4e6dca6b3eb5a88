#include "base/mount_table.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

namespace tierpack {

namespace {

// The kernel writes blanks and backslashes in paths as \ooo.
std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 3 < text.size() &&
                        std::all_of(&text[i + 1], &text[i + 4], [](char c) { return c >= '0' && c <= '7'; });
    out += escape ? static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8)) : text[i];
    if (escape) i += 3;
  }
  return out;
}

}  // namespace

std::vector<Mount> read_mounts(const std::filesystem::path& root) {
  std::vector<Mount> mounts;
  std::ifstream file(root / "proc/self/mountinfo");
  // "id parent major:minor top point options fields... - type source options"
  for (std::string line; std::getline(file, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream front(line.substr(0, dash)), back(line.substr(dash + 3));
    std::string id, parent, device, top, point;
    Mount mount;
    front >> id >> parent >> device >> top >> point;
    back >> mount.type >> mount.source >> mount.options;
    if (point.empty()) continue;
    mount.top = unescaped(top);
    mount.point = unescaped(point);
    mount.source = unescaped(mount.source);
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

}  // namespace tierpack

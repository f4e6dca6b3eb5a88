#include "base/user_directories.h"

#include <cstdlib>

namespace tierpack {

std::filesystem::path user_state_directory() {
  // Relative paths are invalid there and to be ignored.
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return std::filesystem::path(state) / "tierpack";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::filesystem::path(home) / ".local/state/tierpack";
  return {};
}

}  // namespace tierpack

// Where this user's files of ours live, after the XDG base directory specification. The one place outside fetch/ that
// reads environment variables.
#pragma once

#include <filesystem>

namespace tierpack {

// $XDG_STATE_HOME/tierpack, or ~/.local/state/tierpack: what was learned on this machine. Not created here. Empty when
// neither variable names an absolute path.
std::filesystem::path user_state_directory();

}  // namespace tierpack

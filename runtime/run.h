// The command `run`: one answer, or a conversation in the terminal.
#pragma once

#include "base/command.h"

namespace tierpack {

CommandRun setup_run(CLI::App& app);

}  // namespace tierpack

// The command `bench`: how fast a pack runs on this machine, and how far that is from what the machine could do.
#pragma once

#include "base/command.h"

namespace tierpack {

CommandRun setup_bench(CLI::App& app);

}  // namespace tierpack

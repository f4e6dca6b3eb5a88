// The command `simulate`: replays recorded routing through caches of given sizes and policies.
#pragma once

#include "base/command.h"

namespace tierpack {

CommandRun setup_simulate(CLI::App& app);

}  // namespace tierpack

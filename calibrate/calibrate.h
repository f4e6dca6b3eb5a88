// The command `calibrate`: which experts a workload uses, as a profile for repack, plan and the expert store.
#pragma once

#include "base/command.h"

namespace tierpack::calibrate {

CommandRun setup_calibrate(CLI::App& app);

}  // namespace tierpack::calibrate

// The command `trace`: records which experts a model chooses over texts, for `simulate`.
#pragma once

#include "base/command.h"

namespace tierpack {

CommandRun setup_trace(CLI::App& app);

}  // namespace tierpack

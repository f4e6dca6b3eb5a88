// The command `tierpack fetch`: a model from a hub, every byte proved.
#pragma once

#include "base/command.h"

namespace tierpack::fetch {

CommandRun setup_fetch(CLI::App& app);

}  // namespace tierpack::fetch

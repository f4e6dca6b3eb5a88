// `tierpack repack`: a checkpoint as published becomes a pack.
#pragma once

#include "base/command.h"

namespace tierpack::repack {

CommandRun setup_repack(CLI::App& app);

}  // namespace tierpack::repack

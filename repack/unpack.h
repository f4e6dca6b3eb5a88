// `tierpack unpack`: a pack becomes the checkpoint it was made from, byte for byte.
#pragma once

#include "base/command.h"

namespace tierpack::repack {

CommandRun setup_unpack(CLI::App& app);

}  // namespace tierpack::repack

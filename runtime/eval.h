// The command `eval`: runs a model over given tokens or a text and says what its logits are worth.
#pragma once

#include "base/command.h"

namespace tierpack {

CommandRun setup_eval(CLI::App& app);

}  // namespace tierpack

// `tierpack verify`: are these bytes what they are said to be?
#pragma once

#include "base/command.h"

namespace tierpack::verify {

CommandRun setup_verify(CLI::App& app);

}  // namespace tierpack::verify

// `tierpack inspect`: what a model is, from its headers.
#pragma once

#include "base/command.h"
#include "verify/inspection.h"

namespace tierpack::verify {

// `remote` opens references that are no local paths; main.cpp joins it with what fetch/ offers.
CommandRun setup_inspect_with(CLI::App& app, RemoteOpener remote);
CommandRun setup_inspect(CLI::App& app);  // local paths only

}  // namespace tierpack::verify

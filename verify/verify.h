// `tierpack verify`: are these bytes what they are said to be? And with --repair: make them so.
#pragma once

#include "base/command.h"
#include "verify/remote.h"

namespace tierpack::verify {

// `remote` asks hubs and downloads from them; main.cpp joins it with what fetch/ offers. The options of the
// network are the caller's to declare.
CommandRun setup_verify(CLI::App& app, Remote remote);

}  // namespace tierpack::verify

// The settings that `calibrate --tune` found, for commands that open an engine.
#pragma once

#include <string>

#include "runtime/engine.h"

namespace tierpack {

// Fills in threads, chunk and kernels where `options` leave them open, from this user's tuned.json, if it has an entry for
// this model on this machine. Returns what was done in a line for -v; "" for nothing. A file that cannot be read changes
// nothing, which the line says.
std::string apply_tuned(const Pack& pack, EngineOptions& options);

}  // namespace tierpack

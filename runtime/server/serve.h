// The command `serve`: the HTTP API (docs/http_api.md).
#pragma once

#include "base/command.h"

namespace tierpack::server {

CommandRun setup_serve(CLI::App& app);

}  // namespace tierpack::server

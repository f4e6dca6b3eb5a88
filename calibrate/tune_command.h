// calibrate --tune: tries settings on a pack, prints what they reached and keeps the best for run, serve and bench.
#pragma once

#include <filesystem>

namespace tierpack::calibrate {

int run_tune(const std::filesystem::path& pack, bool json);

}  // namespace tierpack::calibrate

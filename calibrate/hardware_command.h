// calibrate --hardware: what the machine reaches, as the file that plan and serve read.
#pragma once

#include <filesystem>

namespace tierpack::calibrate {

// `pack` and `directory` may be empty; an empty `out` is the default place.
int run_hardware(const std::filesystem::path& pack, const std::filesystem::path& directory, const std::filesystem::path& out, bool json);

}  // namespace tierpack::calibrate

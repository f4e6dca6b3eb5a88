// Messages to the user on stderr. Results go to stdout, and only from command files; library code does not log.
#pragma once

#include <string>

#include <fmt/core.h>

namespace tierpack {

enum class LogLevel { kQuiet, kNormal, kVerbose };

void set_log_level(LogLevel level);
LogLevel log_level();

// One line on stderr each; a visible progress bar is cleared first. info: shown unless --quiet. detail: only with -v.
void log_info(const std::string& line);
void log_detail(const std::string& line);
void log_warning(const std::string& line);
void log_error(const std::string& line);

}  // namespace tierpack

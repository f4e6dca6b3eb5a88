// A report on a machine as people and programs read it.
#pragma once

#include <string>

#include "runtime/hardware/machine_report.h"

namespace tierpack::calibrate {

// Lines of text that end with the findings.
std::string machine_text(const hardware::MachineReport& report);
// One line: the description as in the file of calibrate --hardware, without its format and version, and beside it "now" (what
// changes from minute to minute) and "findings".
std::string machine_json(const hardware::MachineReport& report);

}  // namespace tierpack::calibrate

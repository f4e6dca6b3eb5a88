// The command `doctor`: what this machine is, what its parts reach, and what stands in a model's way.
#pragma once

#include "base/command.h"
#include "runtime/hardware/machine_report.h"

namespace tierpack::calibrate {

CommandRun setup_doctor(CLI::App& app);

// examine_machine() that says with -v what it is about to do.
hardware::MachineReport examine(const hardware::MachineQuestion& question);

}  // namespace tierpack::calibrate

#include "calibrate/doctor.h"

#include <cstdio>
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>

#include "base/log.h"
#include "calibrate/machine_text.h"

namespace tierpack::calibrate {

namespace {

struct DoctorOptions {
  hardware::MachineQuestion question;
  bool quick = false;
  bool json = false;
};

int run_doctor(const DoctorOptions& options) {
  hardware::MachineQuestion question = options.question;
  question.measure = !options.quick;
  question.tool_version = TIERPACK_VERSION;
  const hardware::MachineReport report = examine(question);
  fmt::print("{}", options.json ? machine_json(report) : machine_text(report));
  return 0;
}

}  // namespace

hardware::MachineReport examine(const hardware::MachineQuestion& question) {
  hardware::MachineQuestion told = question;
  bool begun = !question.measure;
  told.on_step = [&](const char* what) {
    if (!std::exchange(begun, true)) log_info("measuring for about ten seconds");
    log_detail(fmt::format("examining {}", what));
  };
  return hardware::examine_machine(told);
}

CommandRun setup_doctor(CLI::App& app) {
  const auto options = std::make_shared<DoctorOptions>();
  app.description(
      "Describes this machine, measures what it reaches, and names what stands in a model's way and what to do about it. With a "
      "pack its own experts are read, in its own record size, and its types of weights are multiplied; without one, a temporary "
      "file of at most 1 GiB that is gone afterwards.");
  app.add_option("pack", options->question.pack, "A pack directory");
  app.add_option("--dir", options->question.directory, "Directory whose disk is examined; default: the pack's, or the current one");
  app.add_flag("--quick", options->quick, "Describe only; measure nothing");
  app.add_flag("--json", options->json, "Print one JSON object");
  app.footer(
      "Examples:\n"
      "  tierpack doctor\n"
      "  tierpack doctor model.tierpack\n"
      "  tierpack doctor --dir /mnt/ssd\n"
      "  tierpack doctor --quick --json | jq -r '.findings[].text'");
  return [options] { return run_doctor(*options); };
}

}  // namespace tierpack::calibrate

// tierpack: Mixture-of-Experts checkpoints from a hub to tokens. The table of commands, their dispatch, the one place
// where errors end, and the exit codes.
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/command.h"
#include "base/completion.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "calibrate/calibrate.h"
#include "calibrate/doctor.h"
#include "fetch/fetch.h"
#include "fetch/http_source.h"
#include "fetch/refetch.h"
#include "repack/gguf_export.h"
#include "repack/planned_pack.h"
#include "repack/repack.h"
#include "repack/unpack.h"
#include "runtime/bench.h"
#include "runtime/eval.h"
#include "runtime/plan.h"
#include "runtime/run.h"
#include "runtime/server/serve.h"
#include "runtime/simulate.h"
#include "runtime/trace.h"
#include "verify/inspect.h"
#include "verify/promises.h"
#include "verify/verify.h"

namespace {

using tierpack::Command;

// inspect reads URLs and hub files through fetch, which verify does not know.
tierpack::CommandRun setup_inspect(CLI::App& app) {
  return tierpack::verify::setup_inspect_with(
      app, [](const std::string& reference) { return tierpack::fetch::open_remote_gguf(reference); });
}

// verify asks hubs and repairs from them through fetch.
tierpack::CommandRun setup_verify(CLI::App& app) {
  namespace fetch = tierpack::fetch;
  namespace verify = tierpack::verify;
  const auto network = std::make_shared<fetch::NetworkOptions>();
  verify::Remote remote;
  remote.list = [network](const std::string& reference, const std::string& endpoint, const verify::FileSelection& selection) {
    return fetch::list_promises(reference, endpoint, {selection.include, selection.exclude}, *network);
  };
  remote.repair = [network](const verify::RepairRequest& request) {
    std::vector<verify::RepairedFile> out;
    for (const fetch::RefetchedFile& file : fetch::refetch(
             {request.reference, request.endpoint, request.directory, request.is_cache, request.paths}, *network)) {
      out.push_back({file.path, file.bytes, file.downloaded_bytes, file.failure, file.message, file.kept_as});
    }
    return out;
  };
  remote.selects = [](const verify::FileSelection& selection, const std::string& path) {
    return fetch::Selection{selection.include, selection.exclude}.selects(path);
  };
  const tierpack::CommandRun run = verify::setup_verify(app, std::move(remote));
  CLI::Option_group* const group = app.add_option_group("Network", "With --repair, and --against a hub");
  fetch::add_network_options(*group, *group, *network);
  return run;
}

// plan knows packs; what a repack would make of anything else repack says, reading through fetch what is not here.
tierpack::CommandRun setup_plan(CLI::App& app) {
  namespace repack = tierpack::repack;
  return tierpack::setup_plan(app, [](const std::string& reference, bool read_routers) {
    tierpack::PlanSubject subject;
    subject.name = reference;
    const auto take = [&](repack::PlannedPack planned) {
      subject.manifest = std::move(planned.manifest);
      subject.config = std::move(planned.config);
      subject.routers_known = planned.routers_read;
      subject.pack_bytes = planned.pack_bytes;
    };
    if (!tierpack::verify::is_remote_reference(reference)) {
      take(repack::planned_pack(std::filesystem::path(reference), read_routers));
      subject.place = reference;
      return subject;
    }
    std::vector<repack::NamedSource> files;
    const auto checkpoint = tierpack::fetch::open_remote_checkpoint(reference);
    for (const auto& file : checkpoint) files.push_back({file.name, file.bytes.get()});
    std::vector<std::unique_ptr<tierpack::ByteSource>> shards;
    if (files.empty()) {
      shards = tierpack::verify::open_remote_shards(reference, [](const std::string& name) { return tierpack::fetch::open_remote_gguf(name); });
      for (size_t i = 0; i < shards.size(); ++i) files.push_back({std::to_string(i + 1) + ".gguf", shards[i].get()});
    }
    take(repack::planned_pack_of(reference, files));
    return subject;
  });
}

// In the order a model travels.
const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"fetch", "Get a model from a hub, every byte proved", tierpack::fetch::setup_fetch},
      {"verify", "Check a source or a pack against what it must be", setup_verify},
      {"inspect", "Describe a model from its headers", setup_inspect},
      {"plan", "Compute what fits where, and how fast it will be", setup_plan},
      {"repack", "Write a pack from a checkpoint", tierpack::repack::setup_repack},
      {"unpack", "Restore the checkpoint a pack was made from", tierpack::repack::setup_unpack},
      {"gguf", "Write a pack as one GGUF file", tierpack::repack::setup_gguf},
      {"calibrate", "Count which experts a workload uses", tierpack::calibrate::setup_calibrate},
      {"run", "Answer a prompt, or talk in the terminal", tierpack::setup_run},
      {"serve", "Serve a model with an OpenAI-compatible HTTP API", tierpack::server::setup_serve},
      {"bench", "Measure how fast a pack runs here", tierpack::setup_bench},
      {"eval", "Measure a model's logits on token ids or a text", tierpack::setup_eval},
      {"trace", "Record which experts a text uses", tierpack::setup_trace},
      {"simulate", "Replay recordings through cache policies", tierpack::setup_simulate},
      {"doctor", "Describe and measure this machine, and name what stands in the way", tierpack::calibrate::setup_doctor},
  };
  return table;
}

int run(int argc, char** argv) {
  CLI::App app("tierpack takes a Mixture-of-Experts checkpoint from a hub to tokens on machines smaller than the model.\n"
               "The usual order: fetch, verify, repack, calibrate, run or serve.",
               "tierpack");
  app.set_version_flag("--version", "tierpack " TIERPACK_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  app.get_formatter()->column_width(32);
  bool quiet = false;
  bool verbose = false;
  app.add_flag("-q,--quiet", quiet, "No progress and no notes on stderr, only warnings and errors");
  app.add_flag("-v,--verbose", verbose, "More detail on stderr");
  app.footer("Exit codes: 0 done, 1 failed, 2 bad usage, 3 verification failed, 4 does not fit, 5 network gave up (run again to\n"
             "resume), 130 interrupted (run again to resume). Every command explains itself: tierpack COMMAND --help");

  std::vector<std::pair<CLI::App*, tierpack::CommandRun>> entries;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    entries.emplace_back(sub, command.setup(*sub));
  }
  CLI::App* completion = app.add_subcommand("completion", "Print shell completions or the manual page");
  entries.emplace_back(completion, tierpack::setup_completion(*completion, app, TIERPACK_VERSION));

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    // Help and version are "errors" with code 0 in CLI11; every real one is bad usage.
    return app.exit(e) == 0 ? 0 : tierpack::exit_code(tierpack::ErrorKind::kUsage);
  }
  if (quiet) tierpack::set_log_level(tierpack::LogLevel::kQuiet);
  if (verbose) tierpack::set_log_level(tierpack::LogLevel::kVerbose);

  tierpack::install_interrupt_handlers();
  for (auto& [sub, run_command] : entries) {
    if (sub->parsed()) return run_command();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const tierpack::Error& e) {
    tierpack::log_error(e.what());
    return tierpack::exit_code(e.kind());
  } catch (const std::bad_alloc&) {
    tierpack::log_error("out of memory");
    return tierpack::exit_code(tierpack::ErrorKind::kCapacity);
  } catch (const std::exception& e) {
    tierpack::log_error(std::string("unexpected failure: ") + e.what());
    return 1;
  }
}

#include "verify/verify.h"

#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "base/threads.h"
#include "verify/verify_path.h"

namespace tierpack::verify {

namespace {

struct Options {
  VerifyOptions job;
  std::string against;
  bool json = false;
};

void print_json(const Report& report) {
  Json findings = Json::array();
  for (const Finding& item : report.findings) {
    findings.push_back({{"kind", finding_kind_name(item.kind)}, {"problem", item.is_problem()}, {"where", item.where},
                        {"message", item.message}});
  }
  const Json out{{"path", report.path},
                 {"what", report.what},
                 {"ok", report.ok()},
                 {"references", report.references},
                 {"files", report.files},
                 {"proved_files", report.proved_files},
                 {"hashed_bytes", report.hashed_bytes},
                 {"records", report.records},
                 {"pages", report.pages},
                 {"shards", report.shards},
                 {"findings", findings},
                 {"seconds", report.seconds}};
  std::fputs(dump_json(out).c_str(), stdout);
}

std::string plural(uint64_t n, const char* noun) { return fmt::format("{} {}{}", format_count(n), noun, n == 1 ? "" : "s"); }

void print_table(const Report& report) {
  for (const Finding& item : report.findings) {
    fmt::print("{:<11} {}{}\n", item.is_problem() ? finding_kind_name(item.kind) : "note",
               item.where.empty() ? "" : item.where + ": ", item.message);
  }
  std::string proof;
  if (report.hashed_bytes > 0 || report.proved_files > 0) {
    proof = fmt::format(", {} of {} proved by SHA-256", report.proved_files, plural(report.files, "file"));
  } else {
    proof = ", " + plural(report.files, "file");
  }
  if (report.records > 0) proof += ", " + plural(report.records, "record");
  if (report.pages > 0) proof += ", " + plural(report.pages, "page");
  if (report.shards > 0) proof += ", " + plural(report.shards, "source shard") + " recomputed";
  fmt::print("{}: {}{}\n", report.path, report.ok() ? "ok" : plural(report.problems(), "problem"), proof);
}

}  // namespace

CommandRun setup_verify(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  options->job.jobs = usable_cores();
  app.add_option("PATH", options->job.path, "Source directory, GGUF file or pack")->required();
  app.add_option("--against", options->against,
                 "Lock or SHA256SUMS to hold the files against (default: those in the directory); for a pack, what its "
                 "source shards must be");
  app.add_flag("--deep", options->job.deep, "Packs: also recompute the SHA-256 of every source shard; safetensors: look for NaN");
  app.add_option("--jobs", options->job.jobs, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_flag("--json", options->json, "Print the report as one JSON object");
  app.footer(
      "Exit code 0: everything checked is as promised; 3: it is not, and the report says where.\n"
      "Examples:\n"
      "  tierpack verify models/pebble\n"
      "  tierpack verify pebble.tierpack --deep --against models/pebble/SHA256SUMS");
  return [options] {
    if (!options->against.empty()) options->job.against = options->against;
    options->job.progress = options->json ? ProgressStyle::kSilent : ProgressStyle::kAuto;
    const Report report = verify_path(options->job);
    options->json ? print_json(report) : print_table(report);
    return report.ok() ? 0 : exit_code(ErrorKind::kCorrupt);
  };
}

}  // namespace tierpack::verify

#include "verify/verify.h"

#include <algorithm>
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
  bool json = false;
};

const char* outcome_name(Repair::Outcome outcome) {
  switch (outcome) {
    case Repair::Outcome::kPlanned: return "planned";
    case Repair::Outcome::kRepaired: return "repaired";
    case Repair::Outcome::kFailed: return "failed";
  }
  return "";
}

void print_json(const Report& report) {
  Json results = Json::array();
  for (const FileResult& file : report.results) {
    Json entry = {{"path", file.path}, {"bytes", file.bytes}, {"status", status_name(file.status)}};
    if (!file.proof.empty()) entry["proof"] = file.proof;
    if (!file.reference.empty()) entry["reference"] = file.reference;
    results.push_back(std::move(entry));
  }
  Json findings = Json::array();
  for (const Finding& item : report.findings) {
    findings.push_back({{"kind", finding_kind_name(item.kind)}, {"problem", item.is_problem()}, {"where", item.where},
                        {"message", item.message}});
  }
  Json out{{"path", report.path},
           {"what", report.what},
           {"ok", report.ok()},
           {"references", report.references},
           {"files", report.files},
           {"proved_files", report.proved_files},
           {"hashed_bytes", report.hashed_bytes},
           {"records", report.records},
           {"pages", report.pages},
           {"shards", report.shards},
           {"results", std::move(results)},
           {"findings", std::move(findings)}};
  if (!report.repairs.empty()) {
    Json repairs = Json::array();
    for (const Repair& repair : report.repairs) {
      Json entry = {{"path", repair.path}, {"bytes", repair.bytes}, {"outcome", outcome_name(repair.outcome)},
                    {"downloaded_bytes", repair.downloaded_bytes}};
      if (repair.failure) entry["failure"] = kind_name(*repair.failure);
      if (!repair.message.empty()) entry["message"] = repair.message;
      if (!repair.kept_as.empty()) entry["kept_as"] = repair.kept_as;
      repairs.push_back(std::move(entry));
    }
    out["repair_source"] = report.repair_source;
    out["repairs"] = std::move(repairs);
  }
  out["advice"] = report.advice;
  out["seconds"] = report.seconds;
  std::fputs(dump_json(out).c_str(), stdout);
}

std::string plural(uint64_t n, const char* noun) { return fmt::format("{} {}{}", format_count(n), noun, n == 1 ? "" : "s"); }

void print_table(const Report& report) {
  size_t width = 0;
  for (const FileResult& file : report.results) width = std::max(width, file.path.size());
  for (const FileResult& file : report.results) {
    if (file.status != FileResult::Status::kProved) continue;  // the others are among the findings
    fmt::print("proved      {:<{}}  {:>8}  {}\n", file.path, width, format_size(file.bytes), file.proof);
  }
  for (const Finding& item : report.findings) {
    fmt::print("{:<11} {}{}\n", item.is_problem() ? finding_kind_name(item.kind) : "note",
               item.where.empty() ? "" : item.where + ": ", item.message);
  }
  for (const Repair& repair : report.repairs) {
    switch (repair.outcome) {
      case Repair::Outcome::kPlanned: fmt::print("to repair   {}: {} would be downloaded\n", repair.path, format_size(repair.bytes)); break;
      case Repair::Outcome::kRepaired: fmt::print("repaired    {}: {} downloaded\n", repair.path, format_size(repair.downloaded_bytes)); break;
      case Repair::Outcome::kFailed:
        fmt::print("not repaired {}: {}{}\n", repair.path, repair.message,
                   repair.kept_as.empty() ? "" : fmt::format("; the damaged file is kept as {}", repair.kept_as));
        break;
    }
  }
  std::string proof;
  if (report.hashed_bytes > 0 || report.proved_files > 0) {
    proof = fmt::format(", {} of {} proved", report.proved_files, plural(report.files, "file"));
  } else {
    proof = ", " + plural(report.files, "file");
  }
  if (report.records > 0) proof += ", " + plural(report.records, "record");
  if (report.pages > 0) proof += ", " + plural(report.pages, "page");
  if (report.shards > 0) proof += ", " + plural(report.shards, "source shard") + " recomputed";
  fmt::print("{}: {}{}\n", report.path, report.ok() ? "ok" : plural(report.problems(), "problem"), proof);
  for (const std::string& line : report.advice) fmt::print("hint: {}\n", line);
}

// A repair that the network ended can be continued; anything else that is wrong is wrong.
int code_of(const Report& report) {
  if (report.ok()) return 0;
  for (const ErrorKind kind : {ErrorKind::kCapacity, ErrorKind::kNetwork}) {
    const bool failed = std::any_of(report.repairs.begin(), report.repairs.end(), [&](const Repair& r) { return r.failure == kind; });
    if (failed) return exit_code(kind);
  }
  return exit_code(ErrorKind::kCorrupt);
}

}  // namespace

CommandRun setup_verify(CLI::App& app, Remote remote) {
  const auto options = std::make_shared<Options>();
  VerifyOptions& job = options->job;
  job.jobs = usable_cores();
  job.remote = std::move(remote);
  app.add_option("PATH", job.path, "Directory, model file, repository in the hub's cache, or pack")->required();
  app.add_option("--against", job.against,
                 "What the files are held against: a lock or SHA256SUMS (default: those in the directory); hub: where the lock "
                 "says they come from, asked again; hf:ORG/NAME[@REV], ms:..., ollama:..., oci:..., URL of a SHA256SUMS. For a pack: what "
                 "its source shards must be");
  app.add_option("--include", job.selection.include, "Only files that match this pattern; * also matches /; repeatable")
      ->allow_extra_args(false);
  app.add_option("--exclude", job.selection.exclude, "Not the files that match this pattern; repeatable")
      ->allow_extra_args(false);
  app.add_flag("--deep", job.deep,
               "Packs: also recompute the SHA-256 of every source shard; models: look into all values for NaN, infinity and "
               "holes of zeros");
  app.add_flag("--repair", job.repair, "Download again what is damaged or missing, and nothing else");
  app.add_flag("--dry-run", job.dry_run, "With --repair: show what would be downloaded");
  app.add_option("--jobs", job.jobs, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_flag("--json", options->json, "Print the report as one JSON object");
  app.footer(
      "A file that --repair replaces is kept in DIR/.tierpack until the new one is proved. Asking a hub never downloads\n"
      "the files themselves.\n"
      "Exit code 0: everything checked is as promised; 3: it is not, and the report says where; 5: the network gave up\n"
      "during a repair, the same command continues.\n"
      "Examples:\n"
      "  tierpack verify models/pebble\n"
      "  tierpack verify qwen3 --against hub\n"
      "  tierpack verify qwen3 --against hf:Qwen/Qwen3-30B-A3B-GGUF --include '*Q4_K_M*'\n"
      "  tierpack verify qwen3 --repair --dry-run\n"
      "  tierpack verify ~/.cache/huggingface/hub/models--ORG--NAME\n"
      "  tierpack verify pebble.tierpack --deep --against models/pebble/SHA256SUMS");
  return [options] {
    if (options->job.dry_run && !options->job.repair) fail(ErrorKind::kUsage, "--dry-run is for --repair");
    options->job.progress = options->json ? ProgressStyle::kSilent : ProgressStyle::kAuto;
    const Report report = verify_path(options->job);
    options->json ? print_json(report) : print_table(report);
    return code_of(report);
  };
}

}  // namespace tierpack::verify

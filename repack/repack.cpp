#include "repack/repack.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/threads.h"
#include "repack/repack_job.h"
#include "repack/repack_plan.h"

namespace tierpack::repack {

namespace {

struct Options {
  RepackOptions job;
  std::string profile;
  std::string memory = "1GiB";
  std::string part;
  std::vector<std::string> transcode;
  std::string imatrix;
  bool json = false;
};

const char* outcome_name(RepackReport::Outcome outcome) {
  switch (outcome) {
    case RepackReport::Outcome::kPlanned: return "planned";
    case RepackReport::Outcome::kWritten: return "written";
    case RepackReport::Outcome::kAlreadyThere: return "already there";
    case RepackReport::Outcome::kPartWritten: return "part written";
  }
  return "";
}

uint64_t file_bytes(const PackManifest& manifest, std::string_view name) {
  for (const PackFile& file : manifest.files) {
    if (file.name == name) return file.bytes;
  }
  return 0;
}

uint64_t expert_records(const PackManifest& manifest) {
  uint64_t sum = 0;
  for (const ExpertLayer& layer : manifest.expert_layers) sum += layer.experts;
  return sum;
}

std::string order_text(const RepackReport& report) {
  if (!report.profile) return "in natural order (no profile)";
  return fmt::format("hottest first by profile {} ({} tokens)", report.profile->id().hex().substr(0, 12),
                     format_count(report.profile->tokens()));
}

void print_json(const Options& options, const RepackReport& report) {
  const PackManifest& manifest = report.manifest;
  Json files = Json::array();
  for (const PackFile& file : manifest.files) files.push_back({{"name", file.name}, {"bytes", file.bytes}});
  Json sources = Json::array();
  const bool hashed = report.outcome != RepackReport::Outcome::kPlanned;
  for (size_t i = 0; i < manifest.sources.size(); ++i) {
    const SourceShard& shard = manifest.sources[i];
    Json item{{"path", shard.path}, {"bytes", shard.bytes}};
    if (hashed) item["sha256"] = shard.sha256.hex();
    item["proved_by"] = report.proved_by[i].empty() ? Json(nullptr) : Json(report.proved_by[i]);
    sources.push_back(item);
  }
  const Json out{{"pack", options.job.target.string()},
                 {"outcome", outcome_name(report.outcome)},
                 {"source_bytes", report.source_bytes},
                 {"pack_bytes", report.pack_bytes},
                 {"dense_tensors", manifest.dense.size()},
                 {"expert_layers", manifest.expert_layers.size()},
                 {"experts", expert_records(manifest)},
                 {"row_tables", manifest.rows.size()},
                 {"profile_id", manifest.profile_id ? Json(manifest.profile_id->hex()) : Json(nullptr)},
                 {"routing_id", manifest.routing_id.hex()},
                 {"reversible", manifest.reversible()},
                 {"transcoded", manifest.transcoded.size()},
                 {"kept_only", report.kept_only},
                 {"resumed_bytes", report.resumed_bytes},
                 {"freed_bytes", report.freed_bytes},
                 {"files", files},
                 {"sources", sources},
                 {"seconds", report.seconds}};
  std::fputs(dump_json(out).c_str(), stdout);
}

void print_table(const Options& options, const RepackReport& report) {
  const PackManifest& manifest = report.manifest;
  const std::string target = options.job.target.string();
  switch (report.outcome) {
    case RepackReport::Outcome::kPlanned: fmt::print("would write {}\n", target); break;
    case RepackReport::Outcome::kWritten: fmt::print("wrote {}\n", target); break;
    case RepackReport::Outcome::kAlreadyThere:
      fmt::print("{} already is the pack of this source; nothing was written\n", target);
      break;
    case RepackReport::Outcome::kPartWritten:
      fmt::print("wrote part {} of {}; when all are written: tierpack repack SRC --to {} --merge\n", options.part, target, target);
      return;
  }
  size_t proved = 0;
  for (const std::string& origin : report.proved_by) proved += origin.empty() ? 0 : 1;
  fmt::print("  source    {:>10}  {} shard{}{}\n", format_size(report.source_bytes), manifest.sources.size(),
             manifest.sources.size() == 1 ? "" : "s",
             proved > 0 && report.outcome != RepackReport::Outcome::kPlanned
                 ? fmt::format(", {} proved by {}", proved, report.proved_by.front())
                 : "");
  if (!manifest.reversible() && report.outcome == RepackReport::Outcome::kWritten) {
    double largest = 0;
    for (const Transcoded& item : manifest.transcoded) largest = std::max(largest, item.error);
    fmt::print("  coded anew        {} tensors, relative squared error at most {:.3g}: this pack does not give its source back\n", manifest.transcoded.size(),
               largest);
  }
  if (report.resumed_bytes > 0) fmt::print("  resumed   {:>10}  of the source were copied by an earlier run\n", format_size(report.resumed_bytes));
  if (report.freed_bytes > 0) fmt::print("  freed     {:>10}  of shards that the pack gives back\n", format_size(report.freed_bytes));
  if (!report.kept_only.empty()) {
    fmt::print("  kept              {} weights that only unpack needs: {}{}\n", report.kept_only.size(), report.kept_only.front(),
               report.kept_only.size() > 1 ? ", ..." : "");
  }
  fmt::print("  dense     {:>10}  {} tensors in load order\n", format_size(file_bytes(manifest, "dense.bin")),
             manifest.dense.size());
  fmt::print("  experts   {:>10}  {} records of {} layers, {}\n", format_size(file_bytes(manifest, "experts.bin")),
             format_count(expert_records(manifest)), manifest.expert_layers.size(), order_text(report));
  for (const RowTable& table : manifest.rows) {
    fmt::print("  rows      {:>10}  {} rows of {} bytes\n", format_size(table.pages * kPageBytes),
               format_count(table.shape.rows()), table.row_bytes);
  }
  fmt::print("  other     {:>10}  headers, record index, metadata\n",
             format_size(report.pack_bytes - file_bytes(manifest, "dense.bin") - file_bytes(manifest, "experts.bin") -
                         file_bytes(manifest, "rows.bin")));
}

// "2/8"
void parse_part(const std::string& text, RepackOptions& job) {
  unsigned part = 0, parts = 0;
  int used = 0;
  if (std::sscanf(text.c_str(), "%5u/%5u%n", &part, &parts, &used) != 2 || static_cast<size_t>(used) != text.size() || part < 1 || part > parts) {
    fail(ErrorKind::kUsage, "--part {}: expected I/N with 1 <= I <= N, such as 2/8", text);
  }
  job.part = part - 1;
  job.parts = parts;
}

}  // namespace

CommandRun setup_repack(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  options->job.jobs = usable_cores();
  app.add_option("SRC", options->job.source, "GGUF file or first shard, safetensors checkpoint, directory with one of them, or a pack")->required();
  app.add_option("--to", options->job.target, "The pack to write (NAME.tierpack)")->required();
  CLI::Option* profile = app.add_option("--profile", options->profile,
                                        "Profile from tierpack calibrate: experts are laid out hottest first");
  app.add_flag("--no-profile", options->job.drop_profile, "Natural order, even if SRC is a pack with a profile")
      ->excludes(profile);
  app.add_option("--memory", options->memory, "Memory for copying")->capture_default_str();
  app.add_option("--jobs", options->job.jobs, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_flag("--allow-nonfinite", options->job.allow_nonfinite, "Pack block scales that are NaN or infinite all the same");
  app.add_flag("--force", options->job.force, "Replace another pack of that name");
  CLI::Option* transcode = app.add_option("--transcode", options->transcode,
                                          "REGEX=TYPE: code tensors whose name the expression is found in anew (lossy; the first rule that fits counts)");
  app.add_option("--imatrix", options->imatrix, "Importance matrix that weighs the columns of transcoded tensors")->needs(transcode);
  CLI::Option* part = app.add_option("--part", options->part, "Write share I of N only (I/N); other processes write the others");
  app.add_flag("--merge", options->job.merge, "All shares are written: prove them and give the pack its name")->excludes(part);
  CLI::Option* merge = app.get_option("--merge");
  app.add_flag("--in-place", options->job.in_place,
               "Delete each shard of SRC once it can be restored from the pack: needs room for the model and one shard more")
      ->excludes(part)
      ->excludes(merge);
  app.add_flag("--dry-run", options->job.dry_run, "Say what would be written, write nothing");
  app.add_flag("--json", options->json, "Print the result as one JSON object");
  app.footer(
      "Nothing is lost: tierpack unpack restores the shards byte for byte. SRC's tierpack.lock.json or SHA256SUMS, if there\n"
      "is one, is held against the bytes while they are copied. A killed repack leaves NAME.tierpack.part, and the same\n"
      "command goes on with it.\n"
      "Examples:\n"
      "  tierpack repack models/pebble --to pebble.tierpack\n"
      "  tierpack repack models/pebble --to pebble.tierpack --profile pebble.profile.json --force\n"
      "  tierpack repack pebble.tierpack --to pebble-hot.tierpack --profile pebble.profile.json\n"
      "  tierpack repack Qwen3-BF16/ --to qwen3-q4.tierpack --transcode 'ffn_.*_exps=Q4_K' --imatrix imatrix.gguf\n"
      "  tierpack repack Qwen3-NVFP4/ --to qwen3.tierpack --in-place\n"
      "  tierpack repack big/ --to big.tierpack --part 2/8     (on each of 8 machines; then once with --merge)");
  return [options] {
    options->job.memory = parse_size(options->memory);
    for (const std::string& rule : options->transcode) options->job.transcode.push_back(parse_transcode_rule(rule));
    if (!options->imatrix.empty()) options->job.imatrix = options->imatrix;
    if (!options->part.empty()) parse_part(options->part, options->job);
    if (!options->profile.empty()) options->job.profile = options->profile;
    options->job.tool_version = TIERPACK_VERSION;
    options->job.progress = options->json ? ProgressStyle::kSilent : ProgressStyle::kAuto;
    const RepackReport report = repack(options->job);
    for (const std::string& shard : report.unproved) {
      log_warning(fmt::format("{} is not mentioned by the source's lock or SHA256SUMS; its content was taken as it is", shard));
    }
    options->json ? print_json(*options, report) : print_table(*options, report);
    return 0;
  };
}

}  // namespace tierpack::repack

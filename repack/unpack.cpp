#include "repack/unpack.h"

#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/threads.h"
#include "repack/unpack_job.h"

namespace tierpack::repack {

namespace {

struct Options {
  UnpackOptions job;
  bool json = false;
};

void print(const std::vector<UnpackedShard>& shards, bool json) {
  if (json) {
    Json list = Json::array();
    for (const UnpackedShard& shard : shards) {
      list.push_back({{"path", shard.path.string()}, {"bytes", shard.bytes}, {"sha256", shard.sha256.hex()},
                      {"written", shard.written}});
    }
    std::fputs(dump_json({{"shards", list}}).c_str(), stdout);
    return;
  }
  for (const UnpackedShard& shard : shards) {
    fmt::print("{}  {}  {}{}\n", shard.sha256.hex(), format_size(shard.bytes), shard.path.string(),
               shard.written ? "" : "  (was there)");
  }
}

}  // namespace

CommandRun setup_unpack(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  options->job.jobs = usable_cores();
  app.add_option("PACK", options->job.pack, "The pack")->required();
  app.add_option("--to", options->job.directory, "Directory for the shards")->required();
  app.add_option("--jobs", options->job.jobs, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_flag("--json", options->json, "Print the result as one JSON object");
  app.footer(
      "Restores the source shards byte for byte: a shard gets its name after its SHA-256 was found to be the source's.\n"
      "Example: tierpack unpack pebble.tierpack --to restored");
  return [options] {
    options->job.progress = options->json ? ProgressStyle::kSilent : ProgressStyle::kAuto;
    print(unpack(options->job), options->json);
    return 0;
  };
}

}  // namespace tierpack::repack

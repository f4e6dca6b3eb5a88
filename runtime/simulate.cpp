#include "runtime/simulate.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "formats/profile.h"
#include "runtime/experts/cache_simulator.h"
#include "runtime/simulation_report.h"

namespace tierpack {

namespace {

struct SimulateOptions {
  std::vector<std::filesystem::path> traces;
  std::vector<std::string> capacities;
  std::vector<std::string> policies;
  std::filesystem::path profile;
  std::string disk_rate;
  std::filesystem::path svg;
  uint32_t window = 64;
  bool json = false;
};

// "2GiB", or "25%" of `whole`.
uint64_t parse_capacity(const std::string& text, uint64_t whole) {
  if (!text.ends_with('%')) return parse_size(text);
  double percent = 0;
  const char* const end = text.data() + text.size() - 1;
  const auto [stop, problem] = std::from_chars(text.data(), end, percent);
  if (problem != std::errc() || stop != end || !(percent > 0 && percent <= 100)) {
    fail(ErrorKind::kUsage, "'{}' is not a part of the experts; write for example 25%, or a size like 2GiB", text);
  }
  return static_cast<uint64_t>(std::llround(static_cast<double>(whole) * percent / 100));
}

experts::RouteSequence read_traces(const std::vector<std::filesystem::path>& paths) {
  experts::RouteSequence routes;
  for (const std::filesystem::path& path : paths) {
    throw_if_interrupted();
    const File file = File::open(path, File::Mode::kRead);
    experts::RouteTraceReader reader(file);
    routes.append(reader, path.string());
  }
  return routes;
}

// Uses per token of every expert of the recorded layers.
std::vector<float> seed_of(const std::filesystem::path& path, const experts::RouteTraceHeader& header) {
  const Profile profile = read_profile(path);
  require_profile_matches(profile, header.routing_id, profile.layers, header.experts, path.string());
  const uint64_t tokens = profile.tokens();
  if (tokens == 0) fail(ErrorKind::kUsage, "{}: a profile without tokens says nothing about use", path.string());
  std::vector<float> seed(header.layers.size() * header.experts, 0.f);
  for (size_t layer = 0; layer < header.layers.size(); ++layer) {
    const uint32_t block = header.layers[layer].block;
    if (block >= profile.layers) fail(ErrorKind::kUsage, "{}: it has {} layers, the recording one with number {}", path.string(), profile.layers, block);
    for (uint32_t e = 0; e < header.layers[layer].experts; ++e) {
      seed[layer * header.experts + e] = static_cast<float>(static_cast<double>(profile.count(block, e)) / static_cast<double>(tokens));
    }
  }
  return seed;
}

std::vector<std::string> all_policies() {
  std::vector<std::string> names;
  for (const std::string_view name : experts::policy_names()) names.emplace_back(name);
  names.emplace_back(experts::kForesight);
  names.emplace_back(experts::kBelady);
  return names;
}

int run_simulate(const SimulateOptions& options) {
  const std::vector<std::string> policies = options.policies.empty() ? all_policies() : options.policies;
  const std::vector<std::string> known = all_policies();
  for (const std::string& policy : policies) {
    if (std::find(known.begin(), known.end(), policy) == known.end()) {
      fail(ErrorKind::kUsage, "there is no policy \"{}\"; known: {}", policy, fmt::join(known, ", "));
    }
  }
  SimulationReport report;
  if (!options.disk_rate.empty()) {
    report.disk_bytes_s = static_cast<double>(parse_size(options.disk_rate));
    if (report.disk_bytes_s <= 0) fail(ErrorKind::kUsage, "a disk rate of 0 never reads anything");
  }
  const experts::RouteSequence routes = read_traces(options.traces);
  std::vector<float> seed;
  if (!options.profile.empty()) {
    seed = seed_of(options.profile, routes.header());
    report.profile = options.profile.filename().string();
  }
  for (const auto& path : options.traces) report.traces.push_back(path.filename().string());
  report.tokens = routes.tokens();
  report.expert_bytes = routes.expert_bytes();
  report.layers = routes.shape().layers;
  report.experts = routes.header().experts;
  report.used = routes.header().used;
  for (const std::string& capacity : options.capacities) {
    experts::SimulationOptions simulation;
    simulation.capacity_bytes = parse_capacity(capacity, report.expert_bytes);
    if (simulation.capacity_bytes == 0) fail(ErrorKind::kUsage, "a capacity of 0 holds nothing");
    simulation.seed = seed;
    simulation.window_tokens = options.window;
    const experts::SimulationResult bound = experts::simulate(routes, experts::kBelady, simulation);
    for (const std::string& policy : policies) {
      throw_if_interrupted();
      SimulationRun run;
      run.policy = policy;
      run.capacity_bytes = simulation.capacity_bytes;
      run.share = static_cast<double>(simulation.capacity_bytes) / static_cast<double>(report.expert_bytes);
      run.result = policy == experts::kBelady ? bound : experts::simulate(routes, policy, simulation);
      run.bound = bound;
      report.runs.push_back(std::move(run));
    }
  }
  if (!options.svg.empty()) write_file_atomically(options.svg, as_bytes(render_svg(report.plot())));
  fmt::print("{}", options.json ? report.json() : report.table());
  return 0;
}

}  // namespace

CommandRun setup_simulate(CLI::App& app) {
  const auto options = std::make_shared<SimulateOptions>();
  app.description(
      "Replays recordings of `tierpack trace` through a cache for experts: how many requests each policy would have hit, what "
      "it would have read, and how near that is to belady, which knows the future; foresight knows the next token. Several "
      "recordings follow each other, as when the work changes.");
  app.add_option("traces", options->traces, "Recordings of one pack, in order")->required()->check(CLI::ExistingFile);
  app.add_option("--capacity", options->capacities, "Size of the cache, or a part of the experts like 25%; several times for several")
      ->required()
      ->allow_extra_args(false);
  app.add_option("--policy", options->policies, "adaptive, lru, lfu, lfru, static, foresight or belady; several times for several; none = all")
      ->allow_extra_args(false);
  app.add_option("--profile", options->profile, "Begin with the experts that this profile says are used most")->check(CLI::ExistingFile);
  app.add_option("--disk-rate", options->disk_rate, "Bytes a second that misses are read at, like 3GB: predicts how long they stall");
  app.add_option("--svg", options->svg, "Plot hit rates over capacities");
  app.add_option("--window", options->window, "Tokens in a window of hit rates (in --json, and after a change of recording)")
      ->check(CLI::Range(1u, 1u << 30))
      ->capture_default_str();
  app.add_flag("--json", options->json, "Print one JSON object");
  app.footer("Examples:\n"
             "  tierpack simulate chat.trace --capacity 25% --capacity 50% --profile chat.profile.json\n"
             "  tierpack simulate chat.trace --capacity 8GiB --policy adaptive --policy belady --disk-rate 3GB\n"
             "  tierpack simulate chat.trace code.trace --capacity 35% --policy adaptive\n"
             "  tierpack simulate chat.trace --capacity 10% --capacity 25% --capacity 50% --svg hits.svg");
  return [options] { return run_simulate(*options); };
}

}  // namespace tierpack

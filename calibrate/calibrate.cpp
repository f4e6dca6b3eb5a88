#include "calibrate/calibrate.h"

#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "calibrate/expert_counts.h"

namespace tierpack::calibrate {

namespace {

constexpr uint64_t kCorpusBytesMax = uint64_t{1} << 30;

struct CalibrateOptions {
  EngineOptions engine;
  std::vector<std::filesystem::path> corpora;
  std::vector<std::filesystem::path> merge;
  std::filesystem::path out;
  uint32_t window = 0;
  bool json = false;
};

std::vector<Corpus> read_corpora(const std::vector<std::filesystem::path>& paths) {
  std::vector<Corpus> corpora;
  for (const auto& path : paths) corpora.push_back({path.filename().string(), read_text_file(path, kCorpusBytesMax)});
  return corpora;
}

Profile run_corpora(const CalibrateOptions& options) {
  const std::vector<Corpus> corpora = read_corpora(options.corpora);
  const ProgressStyle style = options.json ? ProgressStyle::kSilent : ProgressStyle::kAuto;
  EngineOptions engine_options = options.engine;
  std::unique_ptr<Progress> loading;
  uint64_t loaded = 0;
  engine_options.on_load = [&](uint64_t done, uint64_t total) {
    throw_if_interrupted();
    if (!loading)
      loading = std::make_unique<Progress>("loading " + options.engine.pack.filename().string(), total, style);
    loading->add(done - loaded);
    loaded = done;
  };
  const std::unique_ptr<Engine> engine = Engine::open(engine_options);
  loading.reset();

  const auto tokens = tokenize(*engine, corpora);
  uint64_t total = 0;
  for (const auto& one : tokens) total += one.size();
  Progress progress("calibrating", total, style, ProgressUnit::kTokens);
  CountOptions count;
  count.window = options.window;
  count.on_tokens = [&](uint64_t n) { progress.add(n); };
  count.should_stop = [] { return interrupted(); };
  const ModelIdentity identity{engine->pack().manifest().routing_id, TIERPACK_VERSION};
  try {
    return count_experts(*engine, identity, corpora, tokens, count);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kInterrupted) throw;
    fail(ErrorKind::kInterrupted, "interrupted after {} of {} tokens; {} was not written", progress.done(), total,
         options.out.string());
  }
}

void print_table(const Profile& profile, const CalibrateOptions& options) {
  const std::vector<LayerCoverage> layers = coverage(profile);
  fmt::print("layer     routed   top quarter   unused of {}\n", profile.experts);
  double sum = 0;
  for (uint32_t i = 0; i < layers.size(); ++i) {
    fmt::print("{:>5} {:>10} {:>11.1f} % {:>8}\n", i, format_count(layers[i].routed), 100 * layers[i].top_quarter,
               layers[i].unused);
    sum += layers[i].top_quarter;
  }
  fmt::print(" mean {:>10} {:>11.1f} %   (25 % would be even)\n", "",
             layers.empty() ? 0 : 100 * sum / static_cast<double>(layers.size()));
  fmt::print("{}: {} tokens from {} {}, profile {}\n", options.out.string(), format_count(profile.tokens()),
             profile.corpora.size(), profile.corpora.size() == 1 ? "corpus" : "corpora",
             profile.id().hex().substr(0, 16));
}

void print_json(const Profile& profile, const CalibrateOptions& options) {
  Json layers = Json::array();
  for (const LayerCoverage& c : coverage(profile)) {
    layers.push_back({{"routed", c.routed}, {"top_quarter", c.top_quarter}, {"unused", c.unused}});
  }
  Json corpora = Json::array();
  for (const ProfileCorpus& c : profile.corpora) {
    corpora.push_back({{"name", c.name}, {"sha256", c.sha256.hex()}, {"tokens", c.tokens}});
  }
  const Json out = {{"out", options.out.string()},
                    {"id", profile.id().hex()},
                    {"architecture", profile.architecture},
                    {"routing_id", profile.routing_id.hex()},
                    {"tokens", profile.tokens()},
                    {"experts", profile.experts},
                    {"used", profile.used},
                    {"corpora", std::move(corpora)},
                    {"layers", std::move(layers)}};
  fmt::print("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace));
}

int run_calibrate(const CalibrateOptions& options) {
  if (options.corpora.empty() && options.merge.empty()) {
    fail(ErrorKind::kUsage, "nothing to calibrate with: give texts with --corpus, profiles with --merge, or both");
  }
  // Everything cheap that can be wrong is found before the model runs.
  std::optional<Profile> profile;
  {
    const Pack pack = Pack::open(options.engine.pack);
    const ModelConfig& config = pack.config();
    for (const auto& path : options.merge) {
      Profile one = read_profile(path);
      require_profile_matches(one, pack.manifest().routing_id, config.layers, config.experts, path.string());
      profile = profile ? merge_profiles(*profile, one) : std::move(one);
    }
  }
  if (!options.corpora.empty()) {
    Profile counted = run_corpora(options);
    profile = profile ? merge_profiles(*profile, counted) : std::move(counted);
  }
  write_profile(options.out, *profile);
  if (options.json) {
    print_json(*profile, options);
  } else {
    print_table(*profile, options);
  }
  return 0;
}

}  // namespace

CommandRun setup_calibrate(CLI::App& app) {
  const auto options = std::make_shared<CalibrateOptions>();
  app.description(
      "Runs texts through a pack's model and counts which experts they use. The profile tells repack which experts "
      "to put first, and serves every quantisation of the same model. It never changes an answer.");
  app.add_option("pack", options->engine.pack, "The pack directory")->required();
  app.add_option("--corpus", options->corpora,
                 "Text file like those the model will work on; may be given several times")
      ->allow_extra_args(false)
      ->check(CLI::ExistingFile);
  app.add_option("--merge", options->merge, "Add this profile of the same model; may be given several times")
      ->allow_extra_args(false)
      ->check(CLI::ExistingFile);
  app.add_option("--out", options->out, "Where the profile is written")->required();
  app.add_option("--tokens-per-window", options->window, "Tokens computed as one text; 0 = the context")
      ->capture_default_str();
  app.add_option("--threads", options->engine.threads, "Threads; 0 = every usable core")->capture_default_str();
  app.add_option("--chunk", options->engine.chunk, "Tokens computed together")->capture_default_str();
  app.add_option("--context", options->engine.context, "Tokens a window can hold; 0 = the model's limit or what fits");
  app.add_flag("--json", options->json, "Print one JSON object instead of the table");
  app.footer(
      "Examples:\n"
      "  tierpack calibrate model.tierpack --corpus mails.txt --corpus code.txt --out work.profile.json\n"
      "  tierpack calibrate model.tierpack --merge a.json --merge b.json --out both.profile.json\n"
      "  tierpack repack model/ --profile work.profile.json --to work.tierpack");
  return [options] { return run_calibrate(*options); };
}

}  // namespace tierpack::calibrate

#include "calibrate/calibrate.h"

#include <filesystem>
#include <memory>
#include <numeric>
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
#include "calibrate/hardware_command.h"
#include "calibrate/profile_inputs.h"
#include "calibrate/tune_command.h"

namespace tierpack::calibrate {

namespace {

constexpr uint64_t kCorpusBytesMax = uint64_t{1} << 30;

struct CalibrateOptions {
  EngineOptions engine;
  std::vector<std::filesystem::path> corpora;
  ProfileInputs inputs;
  std::filesystem::path out;
  uint32_t window = 0;
  std::filesystem::path directory;
  bool hardware = false;
  bool tune = false;
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

void print_json(const Profile& profile, const std::vector<std::string>& notes, const CalibrateOptions& options) {
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
                    {"notes", notes},
                    {"layers", std::move(layers)}};
  fmt::print("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// The machine instead of a workload.
int run_machine(const CalibrateOptions& options) {
  if (options.hardware && options.tune) {
    fail(ErrorKind::kUsage, "--hardware and --tune are two measurements: run the command twice");
  }
  const char* const flag = options.hardware ? "--hardware" : "--tune";
  if (!options.corpora.empty() || !options.inputs.empty()) {
    fail(ErrorKind::kUsage, "{} measures this machine and takes no corpora, profiles or counts", flag);
  }
  if (options.hardware) return run_hardware(options.engine.pack, options.directory, options.out, options.json);
  if (options.engine.pack.empty()) fail(ErrorKind::kUsage, "--tune needs the pack to run");
  if (!options.out.empty() || !options.directory.empty()) {
    fail(ErrorKind::kUsage, "--tune takes neither --out nor --dir: the settings are kept where run, serve and bench look for them");
  }
  return run_tune(options.engine.pack, options.json);
}

int run_calibrate(const CalibrateOptions& options) {
  if (options.hardware || options.tune) return run_machine(options);
  if (options.engine.pack.empty()) fail(ErrorKind::kUsage, "which pack? Name its directory");
  if (options.out.empty()) fail(ErrorKind::kUsage, "where should the profile be written? Name a file with --out");
  if (!options.directory.empty()) fail(ErrorKind::kUsage, "--dir belongs to --hardware");
  if (options.corpora.empty() && options.inputs.empty()) {
    fail(ErrorKind::kUsage,
         "nothing to calibrate with: give texts with --corpus, profiles with --merge, or counts of other programs with "
         "--import-imatrix or --import-counts");
  }
  // Everything cheap that can be wrong is found before the model runs.
  ReadInputs inputs = read_profile_inputs(options.inputs, Pack::open(options.engine.pack), TIERPACK_VERSION);
  for (const std::string& note : inputs.notes) log_warning(note);
  if (!options.corpora.empty()) inputs.profiles.push_back({run_corpora(options)});
  const Profile profile = combine(inputs);
  write_profile(options.out, profile);
  if (options.json) {
    print_json(profile, inputs.notes, options);
  } else {
    print_table(profile, options);
  }
  return 0;
}

}  // namespace

CommandRun setup_calibrate(CLI::App& app) {
  const auto options = std::make_shared<CalibrateOptions>();
  app.description(
      "Counts which experts of a pack's model are used: by running texts through it, or from what other programs "
      "counted. "
      "The profile tells repack which experts to put first, and serves every quantisation of the same model. It never "
      "changes an answer. With --hardware or --tune the machine is measured instead.");
  app.add_option("pack", options->engine.pack, "The pack directory");
  app.add_option("--corpus", options->corpora,
                 "Text file like those the model will work on; may be given several times")
      ->allow_extra_args(false)
      ->check(CLI::ExistingFile);
  app.add_option(
         "--merge", options->inputs.merge,
         "Add this profile of the same model; several times for several. FILE=WEIGHT, here and below, mixes all "
         "inputs by weight (1 where none is given) instead of adding their counts")
      ->allow_extra_args(false);
  app.add_option("--import-imatrix", options->inputs.import_imatrix,
                 "Add the counts of experts in an importance matrix (GGUF of llama-imatrix); the model does not run")
      ->allow_extra_args(false);
  app.add_option("--import-counts", options->inputs.import_counts,
                 "Add the counts in a CSV file: layer,expert,count or token,layer,expert,...; the model does not run")
      ->allow_extra_args(false);
  app.add_option("--out", options->out, "Where the profile is written, or with --hardware the description of the machine");
  app.add_option("--tokens-per-window", options->window, "Tokens computed as one text; 0 = the context")
      ->capture_default_str();
  app.add_option("--threads", options->engine.threads, "Threads; 0 = every usable core")->capture_default_str();
  app.add_option("--chunk", options->engine.chunk, "Tokens computed together")->capture_default_str();
  app.add_option("--context", options->engine.context, "Tokens a window can hold; 0 = the model's limit or what fits");
  app.add_flag("--hardware", options->hardware,
               "Measure this machine as `tierpack doctor` does (the pack may be left out) and write what plan and serve reckon with; "
               "default --out: hardware.json in this user's state directory");
  app.add_option("--dir", options->directory, "With --hardware: directory whose disk is measured; default: the pack's, or the current one");
  app.add_flag("--tune", options->tune,
               "Run the pack with several numbers of threads, sizes of chunks and kernels in turns, and keep what is fastest for run, "
               "serve and bench: tuned.json in this user's state directory. Options given there win");
  app.add_flag("--json", options->json, "Print one JSON object instead of the table");
  app.footer(
      "Examples:\n"
      "  tierpack calibrate model.tierpack --corpus mails.txt --corpus code.txt --out work.profile.json\n"
      "  tierpack calibrate model.tierpack --merge a.json --merge b.json --out both.profile.json\n"
      "  tierpack calibrate model.tierpack --merge chat.json=3 --merge code.json=1 --out mix.profile.json\n"
      "  tierpack calibrate model.tierpack --import-imatrix model.imatrix.gguf --out model.profile.json\n"
      "  tierpack calibrate model.tierpack --import-counts counts.csv --out model.profile.json\n"
      "  tierpack calibrate --hardware model.tierpack\n"
      "  tierpack calibrate --tune model.tierpack\n"
      "  tierpack repack model/ --profile work.profile.json --to work.tierpack");
  return [options] { return run_calibrate(*options); };
}

}  // namespace tierpack::calibrate

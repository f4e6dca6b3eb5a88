#include "runtime/engine_cli.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "runtime/experts/cache_policy.h"
#include "runtime/planning/memory_plan.h"
#include "runtime/tuned_settings.h"

namespace tierpack {

void add_activations_option(CLI::App& app, EngineOptions& options) {
  app.add_option_function<std::string>(
         "--activations", [&options](const std::string& type) { options.activations = activation_type_named(type); },
         "Form in which activations meet quantised weights; f32 is slow and exact, for checks")
      ->check(CLI::IsMember({"f32", "int8"}))
      ->default_str("int8");
}

void add_workload_option(CLI::App& app, EngineOptions& options) {
  options.workload = "default";
  app.add_option_function<std::string>(
         "--workload", [&options](const std::string& name) { options.workload = name == "off" ? "" : name; },
         "Name under which expert use is learned from run to run; off = learn nothing")
      ->default_str("default");
}

void add_memory_options(CLI::App& app, EngineOptions& options) {
  options.device = DeviceChoice::kAuto;
  CLI::Option_group* const group = app.add_option_group("Memory", "Where weights lie; it changes speed, never an answer");
  group->add_option_function<std::string>(
      "--ram", [&options](const std::string& size) { options.ram_bytes = parse_size(size); },
      "Most memory to hold, page cache and all (14GiB); without it what the machine or control group allows");
  group->add_option_function<std::string>(
      "--vram", [&options](const std::string& size) {
        options.vram_bytes = parse_size(size);
        if (options.vram_bytes == 0) fail(ErrorKind::kUsage, "--vram {}: a budget of nothing; leave it out for what is free, or use --device cpu", size);
      }, "Most memory of the GPU to hold, the driver's share included (11GiB); without it what is free. With --device sim: for experts");
  group->add_option_function<std::string>(
           "--device", [&options](const std::string& device) {
             options.device = device == "auto" ? DeviceChoice::kAuto : device == "cpu" ? DeviceChoice::kCpu : device == "cuda" ? DeviceChoice::kCuda : DeviceChoice::kSim;
           },
           "What computes: auto = a GPU where there is one that the model's dense part fits; cpu; cuda; sim = the CPU, with host memory in the place of "
           "a GPU's, for trials")
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "sim"}))
      ->default_str("auto");
  group->add_option_function<std::string>(
           "--gpu-graph", [&options](const std::string& mode) { options.gpu_graph = mode == "auto"; },
           "Start the kernels of a token as one CUDA graph where all experts are in VRAM")
      ->check(CLI::IsMember({"auto", "off"}))
      ->default_str("auto");
  group->add_option("--gpu", options.gpu, "Which GPU, as doctor counts them")->check(CLI::Range(0, 63))->capture_default_str();
  group->add_option_function<std::string>(
      "--sim-link", [&options](const std::string& rate) { options.sim_link_bytes_s = static_cast<double>(parse_size(rate)); },
      "Bytes a second of the link to the sim device (16GB); without it as fast as memory");
  group->add_option("--place", options.placement, "REGEX=vram|ram|disk: where tensors with such names live; may be given several times")
      ->allow_extra_args(false);
  group->add_option("--profile", options.profile, "Fill the caches by this profile instead of the pack's own")->check(CLI::ExistingFile);
  group->add_option("--cache-policy", options.cache_policy, "What experts are kept by")
      ->check(CLI::IsMember(std::vector<std::string>(experts::policy_names().begin(), experts::policy_names().end())))
      ->default_str(std::string(experts::policy_names().front()));
  group->add_option_function<std::string>(
           "--prefetch", [&options](const std::string& mode) { options.prefetch = mode == "auto"; },
           "Read the next block's experts ahead by a guess, where it pays")
      ->check(CLI::IsMember({"auto", "off"}))
      ->default_str("auto");
  group->add_option("--pack-mirror", options.mirrors, "A directory with a copy of the pack, on another disk; may be given several times")
      ->check(CLI::ExistingDirectory)
      ->allow_extra_args(false);
  group->add_option_function<std::string>(
           "--io", [&options](const std::string& method) {
             options.read_method = method == "auto" ? ReadMethod::kAuto : method == "pread" ? ReadMethod::kPread : ReadMethod::kBuffered;
           },
           "How records are read: auto = io_uring with O_DIRECT where they work; pread; buffered = through the page cache, dropped behind")
      ->check(CLI::IsMember({"auto", "pread", "buffered"}))
      ->default_str("auto");
}

void add_engine_options(CLI::App& app, EngineOptions& options) {
  app.add_option("pack", options.pack, "The pack directory")->required();
  app.add_option("--threads", options.threads, "Threads; 0 = as tuned, or every usable core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--chunk", options.chunk, "Prompt tokens computed together, unless tuned otherwise")
      ->check(CLI::Range(1u, 65536u))
      ->each([&options](const std::string&) { options.chunk_given = true; })
      ->capture_default_str();
  app.add_option("--context", options.context,
                 "Tokens of prompt and answer together; 0 = the model's limit or what fits");
  app.add_option_function<std::string>(
         "--kv", [&options](const std::string& type) { options.kv = kv_type_named(type); }, "Type of the KV cache")
      ->check(CLI::IsMember({"f32", "f16", "q8"}))
      ->default_str("f16");
  add_activations_option(app, options);
  app.add_option("--isa", options.isa, "Kernels by name instead of those tuned or the best for this CPU");
  add_memory_options(app, options);
}

void add_sampling_options(CLI::App& app, text::SamplerOptions& options) {
  app.add_option("--temp", options.temperature, "Temperature; 0 = always the likeliest token")
      ->check(CLI::Range(0.0, 2.0))
      ->capture_default_str();
  app.add_option("--top-k", options.top_k, "Choose among the K likeliest tokens; 0 = all")->capture_default_str();
  app.add_option("--top-p", options.top_p, "Choose among the likeliest tokens that make up this probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--min-p", options.min_p, "Drop tokens below this share of the likeliest one's probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--repeat-penalty", options.repetition_penalty, "Divide the odds of recent tokens; 1 = off")
      ->check(CLI::Range(0.01, 10.0))
      ->capture_default_str();
}

std::string pack_name(const std::filesystem::path& pack) {
  const std::filesystem::path whole = std::filesystem::absolute(pack).lexically_normal();
  const std::filesystem::path last = whole.has_filename() ? whole : whole.parent_path();
  return last.extension() == ".tierpack" ? last.stem().string() : last.filename().string();
}

std::string describe(const Engine& engine) {
  const EngineOptions& o = engine.options();
  const std::string gpu = o.device == DeviceChoice::kCuda ? fmt::format("GPU {}, ", o.gpu) : std::string();
  return fmt::format("{}: {}, {}{} threads, {} kernels, context {}, chunks of {}, {} KV cache, {} activations",
                     pack_name(o.pack), architecture_name(engine.config().architecture), gpu, o.threads, o.isa, o.context,
                     o.chunk, kv_type_name(o.kv), activation_type_name(o.activations));
}

void log_plan(const Engine& engine) {
  const planning::MemoryPlan* const plan = engine.memory_plan();
  if (plan == nullptr) return;
  for (const std::string& note : plan->notes) log_warning(note);
  if (const std::string problem = engine.learning_problem(); !problem.empty()) log_warning(problem);
  for (const planning::PlanItem& item : plan->items) {
    log_detail(fmt::format("  {:<20} {:>9} of {}: {}", item.name, format_size(item.bytes), planning::tier_name(item.tier), item.how));
  }
}

void use_tuned_settings(EngineOptions& options) {
  options.on_pack = [](const Pack& pack, EngineOptions& open) {
    if (const std::string taken = apply_tuned(pack, open); !taken.empty()) log_detail(taken);
  };
}

std::unique_ptr<Engine> open_engine(EngineOptions options, ProgressStyle style) {
  std::unique_ptr<Progress> progress;
  uint64_t shown = 0;
  options.on_load = [&](uint64_t done, uint64_t total) {
    throw_if_interrupted();
    if (!progress) progress = std::make_unique<Progress>("loading " + pack_name(options.pack), total, style);
    progress->add(done - shown);
    shown = done;
  };
  use_tuned_settings(options);
  std::unique_ptr<Engine> engine = Engine::open(options);
  progress.reset();
  log_plan(*engine);
  log_detail(describe(*engine));
  return engine;
}

}  // namespace tierpack

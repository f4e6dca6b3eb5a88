#include "runtime/plan.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory_limits.h"
#include "base/threads.h"
#include "formats/hardware.h"
#include "runtime/plan_report.h"

namespace tierpack {

namespace fs = std::filesystem;

namespace {

struct PlanOptions {
  std::string reference;
  std::string ram, vram;
  std::string device;
  planning::MemoryOptions memory;
  int threads = 0;
  std::vector<std::string> rules;
  std::string profile;
  std::string hardware;
  bool explain = false;
  bool json = false;
};

PlanSubject open_pack(const fs::path& path) {
  const Pack pack = Pack::open(path);
  PlanSubject subject;
  subject.name = path.string();
  subject.manifest = pack.manifest();
  subject.config = pack.config();
  subject.profile = pack.profile();
  subject.is_pack = true;
  subject.routers_known = true;
  for (const PackFile& file : subject.manifest.files) subject.pack_bytes += file.bytes;
  subject.place = path;
  return subject;
}

// Expected uses by the profile that was asked for, else the pack's own.
std::vector<float> choose_profile(const PlanOptions& options, PlanReport& report) {
  PlanSubject& subject = report.subject;
  std::optional<Profile> profile = std::move(subject.profile);
  if (!options.profile.empty()) {
    profile = read_profile(options.profile);
    report.profile_name = options.profile;
    if (!subject.routers_known) {
      // No router was read: the shape is all there is to compare.
      subject.manifest.routing_id = profile->routing_id;
      report.notes.push_back("that the profile is this model's was judged by its shape alone");
    }
    require_profile_matches(*profile, subject.manifest.routing_id, subject.config.layers, subject.config.experts, options.profile);
  } else if (profile) {
    report.profile_name = "the pack's own profile";
    require_profile_matches(*profile, subject.manifest.routing_id, subject.config.layers, subject.config.experts, report.profile_name);
  }
  if (!profile) return {};
  report.profile_tokens = profile->tokens();
  return planning::expected_uses(subject.manifest, *profile);
}

// The machine that the plan is for: the one that a given file describes, else this one.
planning::MachineMemory machine_memory(const PlanOptions& options, const std::optional<HardwareProfile>& hardware) {
  if (options.hardware.empty()) return planning::MachineMemory::of(read_memory_limits());
  planning::MachineMemory machine;
  machine.available_bytes = hardware->memory.total_bytes;
  machine.cgroup_room_bytes = hardware->limits.cgroup_bytes;
  return machine;
}

std::optional<HardwareProfile> find_hardware(const PlanOptions& options, std::string& name) {
  fs::path path = options.hardware;
  if (path.empty()) path = default_hardware_path();
  if (options.hardware.empty() && (path.empty() || !fs::exists(path))) return std::nullopt;
  name = path.string();
  return read_hardware(path);
}

// Explicit sizes are planned as they are, whatever this machine has: a plan may be for another one.
void note_limits(const PlanOptions& options, const planning::MachineMemory& machine, const std::optional<HardwareProfile>& hardware, PlanReport& report) {
  const std::optional<uint64_t> most = machine.most_ram();
  if (options.memory.ram_bytes && most && *options.memory.ram_bytes > *most) {
    report.notes.push_back(fmt::format("--ram {} is more than the {} there {}; run and serve will take no more than is there", format_size(*options.memory.ram_bytes),
                                       format_size(*most), options.hardware.empty() ? "are on this machine now" : "are on that machine"));
  }
  if (!hardware || hardware->gpus.empty()) return;
  const uint64_t vram = std::max_element(hardware->gpus.begin(), hardware->gpus.end(), [](const GpuInfo& a, const GpuInfo& b) {
                          return a.memory_bytes < b.memory_bytes;
                        })->memory_bytes;
  if (options.memory.vram_bytes > vram) {
    report.notes.push_back(fmt::format("--vram {} is more than the {} of the machine's GPU", format_size(options.memory.vram_bytes), format_size(vram)));
  }
}

const DiskInfo* disk_for(const HardwareProfile& hardware, const fs::path& place) {
  const DiskInfo* disk = hardware.disk_of(place.empty() ? fs::current_path() : fs::absolute(place));
  return disk == nullptr && !hardware.disks.empty() ? &hardware.disks.front() : disk;
}

int run_plan(PlanOptions options, const PlanOpener& open) {
  PlanReport report;
  if (!options.ram.empty()) options.memory.ram_bytes = parse_size(options.ram);
  if (!options.vram.empty()) {
    options.memory.vram_bytes = parse_size(options.vram);
    if (options.memory.vram_bytes == 0) fail(ErrorKind::kUsage, "--vram {}: a budget of nothing; leave it out for a plan for the CPU", options.vram);
  }
  if (options.device == "cuda" && options.memory.vram_bytes == 0) fail(ErrorKind::kUsage, "--device cuda: how much memory of the GPU? add --vram SIZE");
  if (options.device == "cpu" && options.memory.vram_bytes > 0) fail(ErrorKind::kUsage, "--vram and --device cpu exclude each other: the CPU has no VRAM");
  options.memory.gpu = options.memory.vram_bytes > 0 && (options.device.empty() || options.device == "cuda");
  if (options.memory.gpu && options.memory.activations == ActivationType::kF32) {
    fail(ErrorKind::kUsage, "--activations f32 is a check that the CPU computes; leave it out, or --vram");
  }
  options.memory.threads = options.threads == 0 ? usable_cores() : options.threads;
  for (const std::string& rule : options.rules) options.memory.rules.push_back(planning::parse_placement_rule(rule));
  const std::optional<HardwareProfile> hardware = find_hardware(options, report.hardware_name);

  const bool is_pack = fs::exists(fs::path(options.reference) / kPackManifestName);
  report.subject = is_pack ? open_pack(options.reference) : open(options.reference, !options.profile.empty());
  PlanSubject& subject = report.subject;
  require_runnable(subject.config, subject.name);
  std::vector<float> uses = choose_profile(options, report);

  planning::MachineMemory machine = machine_memory(options, hardware);
  note_limits(options, machine, hardware, report);
  if (options.memory.ram_bytes) machine = {};
  report.options = options.memory;
  report.plan = planning::plan_memory(subject.manifest, subject.config, std::move(uses), options.memory, machine, subject.name);
  const double adapted = report.plan.uses.empty() ? 0 : planning::kAdaptedShare;
  report.hits = planning::predict_hits(subject.manifest, subject.config, report.plan, adapted);
  if (hardware && !options.memory.gpu) {  // rates of a GPU are not modelled
    planning::RateOptions rate;
    rate.threads = options.memory.threads;
    rate.adapted = adapted;
    rate.disk = disk_for(*hardware, subject.place);
    report.rates = planning::predict_rates(subject.manifest, subject.config, report.plan, *hardware, rate);
  }
  report.notes.insert(report.notes.end(), report.plan.notes.begin(), report.plan.notes.end());
  report.notes.insert(report.notes.end(), report.rates.notes.begin(), report.rates.notes.end());
  fmt::print("{}", options.json ? plan_json(report) : plan_text(report, options.explain));
  return 0;
}

}  // namespace

CommandRun setup_plan(CLI::App& app, PlanOpener open) {
  const auto options = std::make_shared<PlanOptions>();
  planning::MemoryOptions& memory = options->memory;
  app.description("Computes what of a model sits where within budgets of VRAM and RAM, how often its experts will be found there and how fast it will "
                  "be. Works for a pack, and from headers alone for a checkpoint on disk or on a hub: nothing is downloaded. Exits with 4 and the "
                  "changes that would do when the model does not fit.");
  app.add_option("PATH", options->reference, "Pack, GGUF, safetensors checkpoint, URL or hub reference (hf:ORG/NAME)")->required();
  app.add_option("--vram", options->vram, "Memory of the GPU that computes, such as 12GiB; without it a plan for the CPU");
  app.add_option("--device", options->device, "cuda: the GPU computes, as with --vram alone; cpu: the CPU does; sim: the CPU does, and --vram is for experts alone")
      ->check(CLI::IsMember({"cpu", "cuda", "sim"}));
  app.add_option("--ram", options->ram, "RAM for everything, such as 32GiB; by default what is free here, less a reserve");
  app.add_option("--context", memory.context, "Tokens of prompt and answer together; 0 = chosen")->capture_default_str();
  app.add_option("--chunk", memory.chunk, "Prompt tokens computed together")->capture_default_str();
  app.add_option("--threads", options->threads, "Threads; 0 = every usable core")->check(CLI::Range(0, planning::kThreadsMax))->capture_default_str();
  app.add_option_function<std::string>("--kv", [&memory](const std::string& type) { memory.kv = kv_type_named(type); }, "Type of the KV cache")
      ->check(CLI::IsMember({"f32", "f16", "q8"}))
      ->default_str("f16");
  app.add_option_function<std::string>(
         "--activations", [&memory](const std::string& type) { memory.activations = activation_type_named(type); }, "Form in which activations meet quantised weights")
      ->check(CLI::IsMember({"f32", "int8"}))
      ->default_str("int8");
  app.add_option("--profile", options->profile, "How often experts are used, written by calibrate; by default the pack's own");
  app.add_option("--hardware", options->hardware, "What a machine can do, written by calibrate --hardware; by default this machine's");
  app.add_option("--place", options->rules, "REGEX=vram|ram|disk: where tensors of such names live; the first that fits decides. May be given several times")
      ->allow_extra_args(false);
  app.add_flag("--explain", options->explain, "Say how each number came about");
  app.add_flag("--json", options->json, "Print one JSON object");
  app.footer(
      "Examples:\n"
      "  tierpack plan model.tierpack --ram 16GiB --explain\n"
      "  tierpack plan hf:ORG/NAME-GGUF --vram 12GiB --ram 48GiB --context 32768      before downloading it\n"
      "  tierpack plan model.gguf --ram 8GiB --profile code.json --place 'blk.[0-3].ffn_.*_exps=ram'");
  return [options, open = std::move(open)] { return run_plan(*options, open); };
}

}  // namespace tierpack

#include "runtime/planning/memory_plan.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory_placement.h"
#include "runtime/experts/adaptive_policy.h"
#include "runtime/experts/row_store.h"
#include "runtime/model/decoded_weights.h"
#include "runtime/model/gpu/device_sizes.h"
#include "runtime/model/model.h"
#include "runtime/model/state.h"
#include "runtime/model/tensor_binder.h"

namespace tierpack::planning {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
// Measured as what the resident memory of `eval` and `run` exceeds the other parts by, with vocabularies of 4,096 to 151,936 tokens.
constexpr uint64_t kEntryBytes = 96;  // of an expert in the store's index, the counts of use and what is learned
constexpr uint64_t kProgramBytes = 33 * kMiB / 2;  // code, libraries and heap of an empty model
constexpr uint64_t kVocabularyBytes = 320;         // a token with its merge
constexpr uint64_t kRecordBytes = 128;             // of the indexes of records and of what sources are made of
constexpr uint64_t kThreadBytes = 256 << 10;
constexpr uint64_t kReserveMin = 64 * kMiB;
constexpr uint64_t kDeviceReserveMin = 256 * kMiB;
constexpr uint64_t kDevicePageBytes = 2 * kMiB;  // in which a device hands out memory
constexpr uint64_t kReserveMax = 1024 * kMiB;
constexpr uint64_t kReserveShare = 32;    // of what is available
constexpr uint64_t kSessionShare = 4;     // a chosen context takes at most this part of what experts would have
constexpr uint32_t kContextStep = 256;    // of proposals
constexpr uint32_t kChunkProposedMin = 16;

// What allocate_placed takes for `bytes`.
uint64_t placed_bytes(uint64_t bytes) { return align_up(bytes, bytes >= kLargePageBytes ? kLargePageBytes : kRecordAlignment); }

std::string tokens_text(uint64_t tokens) { return format_count(tokens) + (tokens == 1 ? " token" : " tokens"); }

void require_possible(const ModelConfig& config, const MemoryOptions& options, const std::string& name) {
  if (options.threads < 1 || options.threads > kThreadsMax) {
    fail(ErrorKind::kUsage, "{} threads were asked for; expected 1 to {}, or 0 for every usable core", options.threads, kThreadsMax);
  }
  if (options.chunk < 1 || options.chunk > kChunkMax) {
    fail(ErrorKind::kUsage, "a prefill chunk of {} tokens was asked for; expected 1 to {}", options.chunk, kChunkMax);
  }
  if (options.context > config.context) {
    fail(ErrorKind::kUsage, "{}: a context of {} tokens was asked for; the model's own limit is {}", name, options.context, config.context);
  }
  if (options.gpu) {
    if (const std::string limit = model::device_model_limit(config); !limit.empty()) fail(ErrorKind::kUnsupported, "{}: {}", name, limit);
  }
  if (options.kv == KvType::kQ8 && config.head_dim % 32 != 0) {
    fail(ErrorKind::kUsage, "{}: a q8 KV cache has scales for 32 elements, and this model's heads have {}; ask for f16", name, config.head_dim);
  }
}

// What can be changed to make a model fit.
struct Setup {
  uint32_t context = 0;
  uint32_t chunk = 0;
  KvType kv = KvType::kF16;
  ActivationType activations = ActivationType::kInt8;
};

// The parts of one model under one set of options.
class Ledger {
 public:
  Ledger(const PackManifest& manifest, const ModelConfig& config, const MemoryOptions& options)
      : manifest_(manifest), config_(config), threads_(options.threads), sessions_(options.sessions), gpu_(options.gpu) {}

  // Every part but the experts.
  std::vector<PlanItem> items(const Setup& setup) const {
    std::vector<PlanItem> items;
    const Tier tier = gpu_ ? Tier::kVram : Tier::kRam;
    const auto add = [&](const char* part, Tier where, uint64_t bytes, std::string how) {
      items.push_back({part, where, where == Tier::kRam ? placed_bytes(bytes) : align_up(bytes, kDevicePageBytes), std::move(how)});
    };
    const uint32_t chunk = std::min(setup.chunk, setup.context);
    uint64_t dense = 0;
    for (const DenseTensor& tensor : manifest_.dense) dense += manifest_.records[tensor.record].bytes;
    add("dense weights", tier, gpu_ ? model::device_weight_bytes(manifest_, config_) : model::DenseTensors::arena_bytes(manifest_),
        gpu_ ? fmt::format("those of {} tensors of {} that the GPU reads, in one allocation", format_count(manifest_.dense.size()), format_size(dense))
             : fmt::format("{} tensors of {} in one allocation", format_count(manifest_.dense.size()), format_size(dense)));
    add("KV cache and states", tier, sessions_ * (gpu_ ? align_up(model::SessionState::bytes(config_, setup.context, setup.kv), kDevicePageBytes)
                                                       : placed_bytes(model::SessionState::bytes(config_, setup.context, setup.kv))),
        fmt::format("{} of {}, {} cache", sessions_ == 1 ? std::string("one session") : fmt::format("{} sessions", sessions_),
                    tokens_text(setup.context), kv_type_name(setup.kv)));
    add("workspace", tier, gpu_ ? model::device_work_bytes(config_, chunk, setup.context) : model::workspace_bytes(config_, chunk, setup.context),
        fmt::format("intermediate results of {} computed together", tokens_text(chunk)));
    if (gpu_) {
      add("staging", Tier::kVram, model::device_staging_bytes(manifest_), fmt::format("{} records on their way from RAM", model::kStagedRecords));
      add("device context", Tier::kVram, model::kDeviceContextBytes + model::kDeviceTableBytes, "what the driver takes for a process, and kernels and tables: an estimate");
      add("host buffers", Tier::kRam, model::device_host_bytes(manifest_, config_, chunk),
          "embedding, vectors on their way to and from the GPU, the CPU's share of the experts");
      items.push_back({"CUDA", Tier::kRam, model::kDeviceHostRuntimeBytes, "what the driver and its runtime take of RAM, an estimate"});
    }
    if (setup.activations == ActivationType::kF32) {
      add("decoded weights", Tier::kRam, model::decoded_weights_bytes(manifest_) * static_cast<uint64_t>(threads_),
          fmt::format("16 rows as f32 for each of {} threads, for --activations f32", threads_));
    }
    if (!manifest_.rows.empty()) items.push_back({"row cache", Tier::kRam, experts::kRowCacheBytes, "pages of the lookup table"});
    items.push_back({"program", Tier::kRam, program_bytes(manifest_, config_, threads_), "code, tokenizer, indexes, stacks and heap, by a measured formula"});
    return items;
  }
  uint64_t bytes(const Setup& setup, Tier tier = Tier::kRam) const {
    uint64_t sum = 0;
    for (const PlanItem& item : items(setup)) sum += item.tier == tier ? item.bytes : 0;
    return sum;
  }
  // RAM that is needed only until the dense weights are in VRAM, and then serves the experts.
  uint64_t loading_bytes() const { return gpu_ ? placed_bytes(model::DenseTensors::arena_bytes(manifest_)) : 0; }

 private:
  const PackManifest& manifest_;
  const ModelConfig& config_;
  int threads_;
  uint64_t sessions_;
  bool gpu_;
};

// The largest multiple of `step` in [step, most] that fits; 0 when none does. What fits does so for every smaller one.
uint32_t largest_that(uint32_t step, uint32_t most, const std::function<bool(uint32_t)>& fits) {
  uint32_t low = 0;
  uint32_t high = most / step + 1;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (fits(middle * step) ? low : high) = middle;
  }
  return low * step;
}

class Planner {
 public:
  Planner(const PackManifest& manifest, const ModelConfig& config, std::vector<float> uses, const MemoryOptions& options,
          const MachineMemory& machine, const std::string& name)
      : manifest_(manifest), config_(config), options_(options), machine_(machine), name_(name), ledger_(manifest, config, options) {
    plan_.uses = std::move(uses);
    plan_.order = placement_order(manifest, plan_.uses);
  }

  MemoryPlan plan() && {
    take_vram();
    take_ram();
    Setup setup{options_.context, options_.chunk, options_.kv, options_.activations};
    if (options_.gpu) {
      if (setup.context == 0) setup.context = chosen_context(setup, Tier::kVram);
      if (!fits(setup, Tier::kVram)) refuse(setup, Tier::kVram);
      fill_device((plan_.vram_bytes - ledger_.bytes(setup, Tier::kVram)) / kDevicePageBytes * kDevicePageBytes);
    } else {
      fill_device(plan_.vram_bytes);
      if (setup.context == 0) setup.context = chosen_context(setup, Tier::kRam);
    }
    if (!fits(setup, Tier::kRam)) refuse(setup, Tier::kRam);
    plan_.items = ledger_.items(setup);
    plan_.context = setup.context;
    plan_.chunk = std::min(setup.chunk, setup.context);
    plan_.context_most = largest_that(1, config_.context, [&](uint32_t context) {
      return fits(with_context(setup, context), options_.gpu ? Tier::kVram : Tier::kRam);
    });
    plan_.slots = *fill_ram(std::move(plan_.slots), manifest_, plan_.order, plan_.uses, room_for_experts(setup));
    add_cache_items();
    return std::move(plan_);
  }

 private:
  static Setup with_context(Setup setup, uint32_t context) {
    setup.context = context;
    return setup;
  }

  uint64_t budget(Tier tier) const { return tier == Tier::kVram ? plan_.vram_bytes : plan_.ram_bytes; }
  // The fewest bytes of experts.
  uint64_t least_experts(Tier tier) const { return tier == Tier::kVram ? pinned_experts_ : least_experts_; }
  // What nothing runs without.
  uint64_t needed(const Setup& setup, Tier tier) const {
    const uint64_t experts = least_experts(tier);
    return ledger_.bytes(setup, tier) + (tier == Tier::kRam ? std::max(experts, ledger_.loading_bytes()) : experts);
  }
  bool fits(const Setup& setup, Tier tier) const { return needed(setup, tier) <= budget(tier); }

  // What is left for slots beside everything else: whole large pages, where it is large.
  uint64_t room_for_experts(const Setup& setup) const {
    const uint64_t left = plan_.ram_bytes - ledger_.bytes(setup);
    return std::max(least_experts_, left >= kLargePageBytes ? left / kLargePageBytes * kLargePageBytes : left);
  }

  // The budget of VRAM and, before any slot is filled, the classes of layers.
  void take_vram() {
    plan_.vram_bytes = options_.vram_bytes;
    std::optional<uint64_t> most = machine_.vram_bytes;
    // What is free was read with this process's context there, which counts as its own; others keep a reserve.
    if (options_.gpu && most) *most = *most - std::min(*most, std::clamp(*most / kReserveShare, kDeviceReserveMin, kReserveMax)) + model::kDeviceContextBytes;
    if (options_.gpu && plan_.vram_bytes == 0) plan_.vram_bytes = most.value_or(0);
    if (plan_.vram_bytes > 0 && most && plan_.vram_bytes > *most) {
      plan_.notes.push_back(fmt::format("--vram {} is more than the device has to give: {} are used", format_size(plan_.vram_bytes), format_size(*most)));
      plan_.vram_bytes = *most;
    }
    plan_.slots = classify_layers(manifest_, config_, layer_placements(manifest_, options_.rules, plan_.vram_bytes > 0, name_));
    for (const PlannedClass& c : plan_.slots.classes) {
      pinned_experts_ += c.placement == Placement::kVram ? c.entries * c.slot_bytes : 0;
      whole_experts_ += c.placement == Placement::kFree || c.placement == Placement::kVram ? c.entries * c.slot_bytes : 0;
    }
  }

  // Experts into `bytes` of VRAM; then what RAM has to hold of them is known.
  void fill_device(uint64_t bytes) {
    std::optional<PlannedSlots> filled = fill_vram(plan_.slots, manifest_, plan_.order, plan_.uses, bytes);
    if (!filled) refuse_pinned();
    plan_.slots = *std::move(filled);
    least_experts_ = placed_bytes(plan_.slots.least_ram_bytes());
    all_experts_ = placed_bytes(plan_.slots.whole_ram_bytes());
  }

  void take_ram() {
    const std::optional<uint64_t> most = machine_.most_ram();
    if (!options_.ram_bytes) {
      plan_.ram_bytes = machine_.default_ram().value_or(UINT64_MAX);
    } else if (most && *options_.ram_bytes > *most) {
      plan_.notes.push_back(fmt::format("--ram {} is more than {} has to give: {} are used", format_size(*options_.ram_bytes),
                                        cgroup_binds() ? "this control group" : "this machine", format_size(*most)));
      plan_.ram_bytes = *most;
    } else {
      plan_.ram_bytes = *options_.ram_bytes;
    }
  }
  bool cgroup_binds() const {
    return machine_.cgroup_room_bytes && (!machine_.available_bytes || *machine_.cgroup_room_bytes < *machine_.available_bytes);
  }

  // The longest of the model's own, the default and halves of it that leaves the experts their room: all of it where they fit,
  // else at least three quarters.
  uint32_t chosen_context(const Setup& setup, Tier tier) const {
    const uint64_t empty = ledger_.bytes(with_context(setup, 1), tier);
    const uint64_t all = tier == Tier::kVram ? whole_experts_ : all_experts_;
    uint32_t context = std::min(config_.context, kContextDefault);
    for (; context > kContextChosenMin; context /= 2) {
      const uint64_t bytes = ledger_.bytes(with_context(setup, context), tier);
      if (bytes + all <= budget(tier)) break;
      const uint64_t room = budget(tier) - std::min(budget(tier), empty);
      if (bytes + least_experts(tier) <= budget(tier) && bytes - empty <= room / kSessionShare) break;
    }
    return context;
  }

  void add_cache_items() {
    const auto add = [&](Tier tier, uint64_t bytes, uint64_t PlannedClass::*slots) {
      std::string how;
      for (const PlannedClass& c : plan_.slots.classes) {
        if (c.*slots == 0) continue;
        how += fmt::format("{}{} of {} slots of {}", how.empty() ? "" : ", ", format_count(c.*slots), format_count(c.entries), format_size(c.slot_bytes));
      }
      if (bytes > 0) plan_.items.insert(plan_.items.begin() + (tier == Tier::kVram ? 0 : 1), {"expert cache", tier, bytes, how});
    };
    add(Tier::kRam, placed_bytes(plan_.slots.ram_bytes()), &PlannedClass::ram_slots);
    add(Tier::kVram, options_.gpu ? align_up(plan_.slots.vram_bytes(), kDevicePageBytes) : plan_.slots.vram_bytes(), &PlannedClass::vram_slots);
  }

  [[noreturn]] void refuse_pinned() const {
    fail(ErrorKind::kCapacity, "{}: the experts that --place puts into VRAM take {}, and --vram is {}; it would fit with --vram {} or a rule for fewer layers",
         name_, format_size(pinned_experts_), format_size(plan_.vram_bytes), size_argument(pinned_experts_));
  }

  [[noreturn]] void refuse(const Setup& setup, Tier tier) const {
    const bool vram = tier == Tier::kVram;
    std::string parts;
    for (const PlanItem& item : ledger_.items(setup)) {
      if (item.tier == tier) parts += fmt::format("{} {}, ", item.name, format_size(item.bytes));
    }
    const uint64_t experts = least_experts(tier);
    if (!vram && ledger_.loading_bytes() > experts) {
      parts += fmt::format("dense weights on their way to VRAM {}", format_size(ledger_.loading_bytes()));
    } else {
      parts += fmt::format("expert cache {}", format_size(experts));
    }
    const std::string limit = vram && options_.vram_bytes > 0 ? fmt::format("the budget (--vram) is {}", format_size(plan_.vram_bytes))
                              : vram                          ? fmt::format("the device has {} to give", format_size(plan_.vram_bytes))
                              : options_.ram_bytes ? fmt::format("the budget (--ram) is {}", format_size(plan_.ram_bytes))
                                                   : fmt::format("{} has {} to give", cgroup_binds() ? "this control group" : "this machine",
                                                                 format_size(plan_.ram_bytes));
    std::string changes;
    for (const std::string& change : proposals(setup, tier)) changes += (changes.empty() ? "" : " or ") + change;
    fail(ErrorKind::kCapacity, "{}: does not fit: with {} of context it needs at least {} of {} ({}), and {}; it would fit with {}", name_,
         tokens_text(setup.context), format_size(needed(setup, tier)), vram ? "VRAM" : "RAM", parts, limit, changes);
  }

  // Whether the same would fit with the forward pass on the CPU.
  bool fits_cpu() const {
    MemoryOptions cpu = options_;
    cpu.gpu = false;
    cpu.vram_bytes = 0;
    try {
      plan_memory(manifest_, config_, plan_.uses, cpu, machine_, name_);
    } catch (const Error&) {
      return false;
    }
    return true;
  }

  // Single changes that would do, those that cost least first.
  std::vector<std::string> proposals(const Setup& setup, Tier tier) const {
    std::vector<std::string> out;
    const auto fits = [&](const Setup& changed) { return this->fits(changed, tier); };
    Setup changed = setup;
    for (uint32_t chunk = kChunkMax; chunk >= kChunkProposedMin; chunk /= 2) {
      changed.chunk = chunk;
      if (chunk >= std::min(setup.chunk, setup.context) || !fits(changed)) continue;
      out.push_back(fmt::format("--chunk {}", chunk));
      break;
    }
    if (setup.activations == ActivationType::kF32) {
      changed = setup;
      changed.activations = ActivationType::kInt8;
      if (fits(changed)) out.push_back("--activations int8");
    }
    for (const KvType kv : {KvType::kF16, KvType::kQ8}) {
      changed = setup;
      changed.kv = kv;
      if (kv <= setup.kv || (kv == KvType::kQ8 && config_.head_dim % 32 != 0) || !fits(changed)) continue;
      out.push_back(fmt::format("--kv {}", kv_type_name(kv)));
      break;
    }
    const uint32_t step = setup.context > 4 * kContextStep ? kContextStep : 16;
    const uint32_t context = largest_that(step, setup.context - 1, [&](uint32_t n) { return fits(with_context(setup, n)); });
    if (context > 0) out.push_back(fmt::format("--context {}", context));
    if (tier == Tier::kVram) {
      if (!options_.rules.empty() && ledger_.bytes(setup, tier) <= plan_.vram_bytes) out.push_back("no --place");
      if (options_.vram_bytes > 0) out.push_back("--vram " + size_argument(needed(setup, tier)));
      if (fits_cpu()) out.push_back(options_.vram_bytes > 0 ? "--device cpu in the place of --vram" : "--device cpu");
      return out;
    }
    if (!options_.rules.empty()) {
      const PlannedSlots free = classify_layers(manifest_, config_, std::vector<Placement>(manifest_.expert_layers.size(), Placement::kFree));
      if (ledger_.bytes(setup) + placed_bytes(free.least_ram_bytes()) <= plan_.ram_bytes) out.push_back("no --place");
    }
    const std::optional<uint64_t> most = machine_.most_ram();
    if (!most || needed(setup, tier) <= *most) {
      out.push_back("--ram " + size_argument(needed(setup, tier)));
    } else {
      out.push_back(fmt::format("{} of free memory", size_argument(needed(setup, tier))));
    }
    if (options_.gpu && fits_cpu()) out.push_back(options_.vram_bytes > 0 ? "--device cpu in the place of --vram" : "--device cpu");
    return out;
  }

  const PackManifest& manifest_;
  const ModelConfig& config_;
  const MemoryOptions& options_;
  const MachineMemory& machine_;
  const std::string& name_;
  Ledger ledger_;
  MemoryPlan plan_;
  uint64_t pinned_experts_ = 0;  // into VRAM, by rules
  uint64_t whole_experts_ = 0;   // all that may be in VRAM
  uint64_t least_experts_ = 0;   // in RAM
  uint64_t all_experts_ = 0;     // that VRAM does not hold
};

}  // namespace

MachineMemory MachineMemory::of(const MemoryLimits& limits) {
  MachineMemory machine;
  // What this process holds already is a part of what it may hold.
  if (limits.cgroup_room_bytes) machine.cgroup_room_bytes = *limits.cgroup_room_bytes + limits.own_bytes;
  if (limits.available_bytes > 0) machine.available_bytes = limits.available_bytes + limits.own_bytes;
  return machine;
}

std::optional<uint64_t> MachineMemory::most_ram() const {
  if (!available_bytes || !cgroup_room_bytes) return available_bytes ? available_bytes : cgroup_room_bytes;
  return std::min(*available_bytes, *cgroup_room_bytes);
}

std::optional<uint64_t> MachineMemory::default_ram() const {
  const std::optional<uint64_t> most = most_ram();
  if (!most) return std::nullopt;
  return *most - std::min(*most, std::clamp(*most / kReserveShare, kReserveMin, kReserveMax));
}

uint64_t MemoryPlan::used(Tier tier) const {
  uint64_t sum = 0;
  for (const PlanItem& item : items) sum += item.tier == tier ? item.bytes : 0;
  return sum;
}

uint64_t MemoryPlan::left(Tier tier) const {
  const uint64_t budget = tier == Tier::kVram ? vram_bytes : ram_bytes;
  return budget - std::min(budget, used(tier));
}

const PlanItem* MemoryPlan::item(std::string_view name) const {
  for (const PlanItem& item : items) {
    if (item.name == name) return &item;
  }
  return nullptr;
}

MemoryPlan plan_memory(const PackManifest& manifest, const ModelConfig& config, std::vector<float> uses, const MemoryOptions& options,
                       const MachineMemory& machine, const std::string& name) {
  require_possible(config, options, name);
  return Planner(manifest, config, std::move(uses), options, machine, name).plan();
}

uint64_t program_bytes(const PackManifest& manifest, const ModelConfig& config, int threads) {
  uint64_t pieces = 0;
  for (const SourceShard& shard : manifest.sources) pieces += shard.pieces.size();
  const CacheShape shape = cache_shape(manifest);
  return experts::AdaptivePolicy::table_bytes(shape) + uint64_t{shape.entries()} * kEntryBytes + kProgramBytes + uint64_t{config.vocab} * kVocabularyBytes + (manifest.records.size() + pieces) * kRecordBytes +
         static_cast<uint64_t>(threads) * kThreadBytes;
}

std::string size_argument(uint64_t bytes) {
  if (bytes < 10240 * kMiB) return fmt::format("{}MiB", ceil_div(bytes, kMiB));
  const uint64_t tenths = ceil_div(bytes * 10, 1024 * kMiB);
  return tenths % 10 == 0 ? fmt::format("{}GiB", tenths / 10) : fmt::format("{}.{}GiB", tenths / 10, tenths % 10);
}

}  // namespace tierpack::planning

// The ledger of a model on a machine: every part that takes memory, where it lies, and what is left for the experts. Computed
// before anything is loaded or downloaded: the engine acts on it, `tierpack plan` prints it. Pure: headers, options and limits in,
// a value or kCapacity out.
//
// With a forward pass on the CPU everything but experts lies in RAM; with one on a GPU dense weights, sessions and workspace lie in VRAM, and RAM
// must hold the dense weights for a moment while they are loaded, before the experts' cache takes that place.
//
// The fixed parts come first, then a session of the chosen context, then the fewest expert slots that a forward pass can work
// with; what is left of the budgets is filled with experts by expected benefit per byte. The sizes are those that the parts
// themselves compute (carved layouts, arenas); `program_bytes` alone is a measured formula.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/memory_limits.h"
#include "formats/model_config.h"
#include "formats/pack.h"
#include "runtime/kernels/activation_type.h"
#include "runtime/kernels/kv_type.h"
#include "runtime/planning/expert_placement.h"

namespace tierpack::planning {

// Tokens of a session unless asked otherwise, and the fewest that are chosen without being asked for.
inline constexpr uint32_t kContextDefault = 32768;
inline constexpr uint32_t kContextChosenMin = 1024;
inline constexpr uint32_t kChunkMax = 4096;
inline constexpr int kThreadsMax = 1024;

// What a machine lets this process have; nullopt where that is not known or not bounded.
struct MachineMemory {
  std::optional<uint64_t> cgroup_room_bytes;  // what the limits of control groups leave
  std::optional<uint64_t> available_bytes;    // without swapping
  std::optional<uint64_t> vram_bytes;         // free on the device; nullopt without one
  static MachineMemory of(const MemoryLimits& limits);
  // What may be taken at all, and what is taken unless asked otherwise: less a reserve for the kernel and for others.
  std::optional<uint64_t> most_ram() const;
  std::optional<uint64_t> default_ram() const;
};

struct MemoryOptions {
  std::optional<uint64_t> ram_bytes;  // --ram; nullopt = MachineMemory::default_ram()
  uint64_t vram_bytes = 0;            // --vram; 0 with `gpu` = what the device has free, less a reserve
  bool gpu = false;                   // the forward pass runs on a GPU: dense weights, sessions and workspace lie in VRAM
  uint32_t context = 0;               // tokens of a session; 0 = chosen
  uint32_t sessions = 1;              // open at the same time
  uint32_t chunk = 512;
  int threads = 1;                    // resolved, at least 1
  KvType kv = KvType::kF16;
  ActivationType activations = ActivationType::kInt8;
  std::vector<PlacementRule> rules;   // --place
};

struct PlanItem {
  std::string name;  // "dense weights"
  Tier tier = Tier::kRam;
  uint64_t bytes = 0;
  std::string how;   // how the number came about, in words
};

struct MemoryPlan {
  uint64_t ram_bytes = 0;   // the budgets
  uint64_t vram_bytes = 0;
  std::vector<PlanItem> items;
  uint32_t context = 0;
  uint32_t context_most = 0;  // tokens that would fit beside the fewest expert slots
  uint32_t chunk = 0;
  PlannedSlots slots;
  std::vector<float> uses;      // per token, by entry; empty = not known
  std::vector<uint32_t> order;  // entries, the one most worth keeping first: how the slots are filled at the start
  std::vector<std::string> notes;  // sizes that were clamped

  uint64_t used(Tier tier) const;
  uint64_t left(Tier tier) const;
  const PlanItem* item(std::string_view name) const;
};

// `uses` as of expected_uses, empty without a profile. `name` is what messages call the model. Throws kUsage for options that no
// machine could serve, kCapacity when it does not fit: naming the parts and each single change that would make it fit.
MemoryPlan plan_memory(const PackManifest& manifest, const ModelConfig& config, std::vector<float> uses, const MemoryOptions& options,
                       const MachineMemory& machine, const std::string& name);

// What the program itself holds besides the parts above: code, tokenizer, metadata, indexes, stacks, heap.
uint64_t program_bytes(const PackManifest& manifest, const ModelConfig& config, int threads);

// Whole MiB, or tenths of GiB from 10 GiB on, rounded up: a size to be typed.
std::string size_argument(uint64_t bytes);

}  // namespace tierpack::planning

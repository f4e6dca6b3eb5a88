// The face of the runtime. An Engine is a loaded model: immutable, shared by all its sessions. A Session is one timeline
// of tokens with its KV cache and recurrent state. Logits are a function of (pack, tokens) alone: no option below
// changes a bit of them except kv and activations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "formats/model_config.h"
#include "formats/pack.h"
#include "runtime/experts/expert_store.h"
#include "runtime/kernels/activation_type.h"
#include "runtime/kernels/kv_type.h"

namespace tierpack {

namespace text {
class Tokenizer;
}
namespace experts {
class ReadFaults;
}
namespace planning {
struct MemoryPlan;
}

// What computes. kAuto is a GPU where the program has kernels for one, it is there and the model's dense part fits it, else the CPU; kSim
// computes on the CPU with host memory in the place of a GPU's.
enum class DeviceChoice { kAuto, kCpu, kCuda, kSim };

// How expert records are read: kAuto tries io_uring with O_DIRECT.
enum class ReadMethod { kAuto, kPread, kBuffered };

struct EngineOptions {
  std::filesystem::path pack;
  int threads = 0;           // 0 = usable cores
  uint32_t chunk = 512;      // prefill tokens computed together
  bool chunk_given = false;  // the user named `chunk`; for on_pack
  uint32_t sessions = 1;     // that will be open at the same time, for the plan of memory
  uint32_t context = 0;      // tokens a session can hold; 0 = the model's own limit or what kContextDefault allows
  KvType kv = KvType::kF16;  // of the KV cache
  ActivationType activations = ActivationType::kInt8;  // in products with quantised weights
  std::string isa;           // kernel table by name; empty = best for this CPU

  // Where weights may lie (docs/expert_cache.md). None of it changes an answer.
  std::optional<uint64_t> ram_bytes;   // everything the process makes the machine hold; none = what the machine allows
  DeviceChoice device = DeviceChoice::kCpu;  // the command line asks for kAuto; resolved: never that
  int gpu = 0;                         // which of the GPUs
  uint64_t vram_bytes = 0;             // everything on the GPU, with kSim the experts alone; 0 = what is free, with kSim none
  double sim_link_bytes_s = 0;         // speed of its link; 0 = that of memory
  std::vector<std::string> placement;  // REGEX=vram|ram|disk
  std::vector<std::filesystem::path> mirrors;  // further copies of the pack's segments
  std::filesystem::path profile;       // expected use instead of the pack's own; empty = the pack's
  std::string cache_policy;            // empty = the default one
  std::string workload;                // what use is learned under between runs (experts/learned_profile.h); empty = not at all
  bool prefetch = true;
  bool gpu_graph = true;               // start the kernels of a token as one graph where no host is needed in between
  ReadMethod read_method = ReadMethod::kAuto;
  experts::ReadFaults* read_faults = nullptr;  // for tests; not owned
  // Called with the pack before anything is loaded; may change the options above. None of the engine's own.
  std::function<void(const Pack& pack, EngineOptions& options)> on_pack;
  // Called while loading with bytes done and bytes in all; may throw to stop.
  std::function<void(uint64_t done, uint64_t total)> on_load;
};

// What the forward pass decided, for calibrate, trace and tests. Called on the session's thread, in order of layers
// within a chunk of tokens.
struct ForwardObserver {
  virtual ~ForwardObserver() = default;
  // One token's routing in block `layer`: ids and weights, largest weight first.
  virtual void on_route(uint32_t layer, uint32_t position, std::span<const uint32_t> experts,
                        std::span<const float> weights) {
    (void)layer, (void)position, (void)experts, (void)weights;
  }
  // Whether on_attend is to be called: a GPU has to be waited for to tell.
  virtual bool wants_attention() const { return false; }
  // The positions a query attends to in a full-attention block (ascending).
  virtual void on_attend(uint32_t layer, uint32_t position, std::span<const uint32_t> visible) {
    (void)layer, (void)position, (void)visible;
  }
};

class Session;

class Engine {
 public:
  // Loads the pack; throws kCapacity, kCorrupt, kUnsupported.
  static std::unique_ptr<Engine> open(const EngineOptions& options);
  virtual ~Engine() = default;

  virtual const EngineOptions& options() const = 0;  // with defaults resolved
  virtual const Pack& pack() const = 0;
  virtual const ModelConfig& config() const = 0;
  // Throws what Tokenizer::from_metadata threw when the pack's tokenizer is not one we have; the model itself still runs on
  // token ids.
  virtual const text::Tokenizer& tokenizer() const = 0;
  // Empty session. Sessions of one engine may not run forward passes at the same time (they share the thread team).
  virtual std::unique_ptr<Session> new_session() = 0;
  virtual ExpertCounters expert_counters() const = 0;
  // By block with experts, in order.
  virtual std::vector<ExpertLayerCounters> expert_layer_counters() const { return {}; }
  // Of the experts that the engine begins with: requests are answered correctly before it is done.
  virtual SeedProgress seed_progress() const { return {}; }
  virtual void wait_until_seeded() {}
  // Why what an earlier run learned could not be used; empty when nothing stood in the way.
  virtual std::string learning_problem() const { return {}; }
  // Saves what was learned, which the engine's end does too, but silently. Returns why it could not; empty when it could.
  virtual std::string save_learned() { return {}; }
  // What lies where, and remarks about sizes that were asked for; null for an engine without one.
  virtual const planning::MemoryPlan* memory_plan() const { return nullptr; }
};

class Session {
 public:
  virtual ~Session() = default;

  // Appends tokens and computes their logits. on_logits is called for the tokens whose logits were asked for, in order:
  // every token if `all`, else only the last. `logits` has config().vocab values and lives until the call returns. An
  // empty on_logits computes no logits at all. Throws kUsage if a token is out of range or the context is full, without
  // having changed the session; kInterrupted if should_stop returns true between chunks: then length() tells how many
  // tokens were taken.
  using LogitsCallback = std::function<void(uint32_t position, std::span<const float> logits)>;
  virtual void append(std::span<const uint32_t> tokens, bool all, const LogitsCallback& on_logits,
                      const std::function<bool()>& should_stop = {}) = 0;

  virtual uint32_t length() const = 0;    // tokens so far
  virtual uint32_t capacity() const = 0;  // tokens it can hold
  virtual const std::vector<uint32_t>& tokens() const = 0;
  virtual void clear() = 0;               // back to the empty timeline
  virtual void set_observer(ForwardObserver* observer) = 0;  // not owned; null = none
};

}  // namespace tierpack

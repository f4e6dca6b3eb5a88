#include "runtime/engine.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory_limits.h"
#include "base/threads.h"
#include "runtime/device/device.h"
#include "runtime/device/vram_memory.h"
#include "runtime/experts/learned_profile.h"
#include "runtime/experts/tiered_store.h"
#include "runtime/kernels/kernels.h"
#include "runtime/model/gpu/device_model.h"
#include "runtime/model/gpu/device_sizes.h"
#include "runtime/model/model.h"
#include "runtime/model/weights.h"
#include "runtime/planning/memory_plan.h"
#include "runtime/text/tokenizer.h"

namespace tierpack {

namespace {

// Tokens that a profile made by calibrate counts as beside what was learned, and those that must have been seen before what
// was learned is taken alone.
constexpr uint64_t kProfileTokens = 4096;
constexpr uint64_t kTokensTrusted = 64;

// Reports loading of several segments as one sum, one call at a time.
class LoadProgress {
 public:
  LoadProgress(const EngineOptions& options, uint64_t total) : options_(options), total_(total) {}
  void add(uint64_t bytes) {
    if (!options_.on_load) return;
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    options_.on_load(done_, total_);
  }

 private:
  const EngineOptions& options_;
  uint64_t total_;
  std::mutex mutex_;
  uint64_t done_ = 0;
};

experts::ReaderOptions reader_options(const EngineOptions& options) {
  experts::ReaderOptions reader;
  reader.direct = options.read_method != ReadMethod::kBuffered;
  reader.ring = options.read_method == ReadMethod::kAuto;
  reader.mirrors = options.mirrors;
  reader.faults = options.read_faults;
  return reader;
}

experts::StoreOptions store_options(const EngineOptions& options, const Pack& pack, const planning::MemoryPlan& plan) {
  experts::StoreOptions store;
  store.slots = plan.slots.expert_slots();
  store.uses_per_token = plan.uses;
  store.seed_order = plan.order;
  for (const planning::PlannedClass& c : plan.slots.classes) {
    for (const uint32_t layer : c.layers) {
      store.keep_resident.resize(pack.manifest().expert_layers.size(), false);
      store.keep_out.resize(pack.manifest().expert_layers.size(), false);
      store.keep_resident[layer] = c.placement == planning::Placement::kRam || c.placement == planning::Placement::kVram;
      store.keep_out[layer] = c.placement == planning::Placement::kDisk;
    }
  }
  store.reader = reader_options(options);
  store.prefetch = options.prefetch;
  if (!options.cache_policy.empty()) store.policy = options.cache_policy;
  if (const uint64_t bytes = store.slots.vram_bytes(); bytes > 0) {
    store.vram = options.device == DeviceChoice::kCuda ? device::make_device_vram(bytes, options.gpu) : device::make_sim_vram(bytes, options.sim_link_bytes_s);
  }
  return store;
}

// What use teaches, saved now and then and at the end, in front of the session's own observer.
class Learner final : public ForwardObserver {
 public:
  Learner(const Pack& pack, const std::filesystem::path& path) : profile_(identity(pack), path), layers_(pack.config().layers) {
    std::optional<std::string> problem = profile_.load();
    if (!problem) return;
    std::error_code ignored;
    const std::filesystem::path aside = path.string() + ".unusable";
    std::filesystem::rename(path, aside, ignored);
    problem_ = fmt::format("{}; it is kept as {}", *problem, aside.filename().string());
  }
  ~Learner() override { save(); }

  std::string save() {
    if (unsaved_ == 0) return {};
    unsaved_ = 0;
    try {
      profile_.save();
    } catch (const std::exception& e) {
      return fmt::format("what was learned could not be saved: {}", e.what());  // the next run begins with what was saved before
    }
    return {};
  }

  const experts::LearnedProfile& profile() const { return profile_; }
  const std::string& problem() const { return problem_; }

  // For one pass.
  void observe_for(ForwardObserver* observer) { observer_ = observer; }
  void on_route(uint32_t layer, uint32_t position, std::span<const uint32_t> experts, std::span<const float> weights) override {
    if (layer < layers_) profile_.add(layer, experts, weights);
    if (observer_ != nullptr) observer_->on_route(layer, position, experts, weights);
  }
  bool wants_attention() const override { return observer_ != nullptr && observer_->wants_attention(); }
  void on_attend(uint32_t layer, uint32_t position, std::span<const uint32_t> visible) override {
    if (observer_ != nullptr) observer_->on_attend(layer, position, visible);
  }
  void end_tokens(uint32_t tokens) {
    profile_.end_tokens(tokens);
    unsaved_ += tokens;
    if (unsaved_ >= kTokensBetweenSaves) save();
  }

 private:
  static constexpr uint64_t kTokensBetweenSaves = 4096;
  static Profile identity(const Pack& pack) {
    Profile model;
    model.architecture = architecture_name(pack.config().architecture);
    model.routing_id = pack.manifest().routing_id;
    model.layers = pack.config().layers;
    model.experts = pack.config().experts;
    model.used = pack.config().experts_used;
    model.tool_version = pack.manifest().tool_version;
    return model;
  }

  experts::LearnedProfile profile_;
  uint32_t layers_;
  std::string problem_;
  ForwardObserver* observer_ = nullptr;
  uint64_t unsaved_ = 0;
};

class LoadedEngine final : public Engine {
 public:
  LoadedEngine(EngineOptions options, Pack pack, planning::MemoryPlan plan, std::unique_ptr<Learner> learner,
               const kernels::KernelTable& table)
      : options_(std::move(options)),
        pack_(std::move(pack)),
        plan_(std::move(plan)),
        learner_(std::move(learner)),
        team_(options_.threads) {
    try {
      tokenizer_.emplace(text::Tokenizer::from_metadata(pack_.metadata()));
    } catch (const Error&) {
      tokenizer_problem_ = std::current_exception();  // the model still runs on token ids
    }
    device::lock_pages(options_.device == DeviceChoice::kCuda);
    LoadProgress progress(options_, model::DenseTensors::total_bytes(pack_));
    const auto on_bytes = [&](uint64_t bytes) { progress.add(bytes); };
    model::ModelWeights weights = model::bind_weights(pack_, model::DenseTensors::load(pack_, reader_options(options_), on_bytes));
    const auto open_store = [&] { store_ = std::make_unique<experts::TieredStore>(pack_, store_options(options_, pack_, plan_)); };
    if (options_.device == DeviceChoice::kCuda) {
      device::use_device(options_.gpu);
      device::Stream stream;
      model::DeviceWeights on_device(config(), std::move(weights), stream);
      open_store();  // in the memory that the dense weights had
      model_ = model::make_device_model({pack_, std::move(on_device), *store_, table, team_, options_.chunk, options_.context,
                                         reader_options(options_), options_.gpu, options_.gpu_graph});
    } else {
      open_store();
      model_ = model::make_model(
          {pack_, std::move(weights), *store_, table, team_, options_.chunk, options_.context, options_.activations, reader_options(options_)});
    }
    options_.on_load = {};
    options_.on_pack = {};
  }

  const EngineOptions& options() const override { return options_; }
  const Pack& pack() const override { return pack_; }
  const ModelConfig& config() const override { return pack_.config(); }
  const text::Tokenizer& tokenizer() const override {
    if (!tokenizer_) std::rethrow_exception(tokenizer_problem_);
    return *tokenizer_;
  }
  std::unique_ptr<Session> new_session() override;
  ExpertCounters expert_counters() const override {
    ExpertCounters counters = store_->counters();
    model_->add_counters(counters);
    return counters;
  }
  std::vector<ExpertLayerCounters> expert_layer_counters() const override { return store_->layer_counters(); }
  SeedProgress seed_progress() const override { return store_->seed_progress(); }
  const planning::MemoryPlan* memory_plan() const override { return &plan_; }
  void wait_until_seeded() override { store_->wait_until_seeded(); }

  std::string learning_problem() const override { return learner_ ? learner_->problem() : std::string(); }

  std::string save_learned() override { return learner_ ? learner_->save() : std::string(); }

  model::Model& model() { return *model_; }
  Learner* learner() { return learner_.get(); }

 private:
  EngineOptions options_;
  Pack pack_;
  planning::MemoryPlan plan_;
  std::unique_ptr<Learner> learner_;
  std::optional<text::Tokenizer> tokenizer_;
  std::exception_ptr tokenizer_problem_;
  ThreadTeam team_;
  std::unique_ptr<experts::TieredStore> store_;
  std::unique_ptr<model::Model> model_;
};

class LoadedSession final : public Session {
 public:
  explicit LoadedSession(LoadedEngine& engine) : engine_(engine), state_(engine.model().new_state(engine.options().kv)) {
    tokens_.reserve(capacity());
  }

  void append(std::span<const uint32_t> tokens, bool all, const LogitsCallback& on_logits,
              const std::function<bool()>& should_stop) override {
    require_acceptable(tokens);
    const uint32_t chunk = engine_.options().chunk;
    for (size_t at = 0; at < tokens.size(); at += chunk) {
      if (should_stop && should_stop()) {
        fail(ErrorKind::kInterrupted, "stopped after {} of {} tokens", at, tokens.size());
      }
      const auto piece = tokens.subspan(at, std::min<size_t>(chunk, tokens.size() - at));
      const bool last = at + piece.size() == tokens.size();
      append_chunk(piece);
      if (!on_logits) continue;
      const auto count = static_cast<uint32_t>(piece.size());
      if (all) {
        give_logits(0, count, on_logits);
      } else if (last) {
        give_logits(count - 1, 1, on_logits);
      }
    }
  }

  uint32_t length() const override { return static_cast<uint32_t>(tokens_.size()); }
  uint32_t capacity() const override { return state_->capacity(); }
  const std::vector<uint32_t>& tokens() const override { return tokens_; }
  void clear() override {
    tokens_.clear();
    state_->clear();
    broken_ = false;
  }
  void set_observer(ForwardObserver* observer) override { observer_ = observer; }

 private:
  void require_acceptable(std::span<const uint32_t> tokens) const {
    if (broken_) fail(ErrorKind::kUsage, "this session failed in the middle of a token; clear it before it goes on");
    const uint32_t vocab = engine_.config().vocab;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] >= vocab) {
        fail(ErrorKind::kUsage, "token {} (number {} of {}) is not in the vocabulary of {} tokens", tokens[i], i + 1,
             tokens.size(), vocab);
      }
    }
    if (tokens.size() > capacity() - length()) {
      fail(ErrorKind::kUsage, "{} tokens do not fit: the session holds {} of at most {}; ask for a larger context (the "
           "model's own limit is {}) or send less", tokens.size(), length(), capacity(), engine_.config().context);
    }
  }

  void append_chunk(std::span<const uint32_t> piece) {
    broken_ = true;  // unless the pass comes to its end
    const uint32_t first = length();
    tokens_.insert(tokens_.end(), piece.begin(), piece.end());
    Learner* const learner = engine_.learner();
    if (learner != nullptr) learner->observe_for(observer_);
    ForwardObserver* const observer = learner != nullptr ? learner : observer_;
    engine_.model().forward({tokens_, first, static_cast<uint32_t>(piece.size()), observer}, *state_);
    broken_ = false;
    if (learner != nullptr) learner->end_tokens(static_cast<uint32_t>(piece.size()));
  }

  // Logits of tokens [first, first + count) of the chunk just computed.
  void give_logits(uint32_t first, uint32_t count, const LogitsCallback& on_logits) {
    model::Model& model = engine_.model();
    const uint32_t vocab = engine_.config().vocab;
    const uint32_t chunk_tokens = first + count;
    for (uint32_t at = first; at < chunk_tokens;) {
      const uint32_t rows = std::min(model.logit_rows(), chunk_tokens - at);
      const std::span<const float> logits = model.logits(at, rows);
      for (uint32_t i = 0; i < rows; ++i) {
        on_logits(length() - chunk_tokens + at + i, logits.subspan(size_t{i} * vocab, vocab));
      }
      at += rows;
    }
  }

  LoadedEngine& engine_;
  std::unique_ptr<model::SessionState> state_;
  std::vector<uint32_t> tokens_;
  ForwardObserver* observer_ = nullptr;
  bool broken_ = false;
};

std::unique_ptr<Session> LoadedEngine::new_session() { return std::make_unique<LoadedSession>(*this); }

// Expected uses of the experts: of the profile that was asked for, or the pack's own; what was learned here counts by the
// tokens it stands for. Empty without any.
std::vector<float> uses_of(const EngineOptions& options, const Pack& pack, const Learner* learner) {
  std::optional<Profile> profile;
  if (!options.profile.empty()) {
    profile = read_profile(options.profile);
    require_profile_matches(*profile, pack.manifest().routing_id, pack.config().layers, pack.config().experts, options.profile.string());
  } else {
    profile = pack.profile();
  }
  std::vector<float> uses = profile ? planning::expected_uses(pack.manifest(), *profile) : std::vector<float>{};
  const uint64_t tokens = learner != nullptr ? learner->profile().tokens() : 0;
  if (tokens == 0) return uses;
  const std::vector<float> learned = planning::expected_uses(pack.manifest(), learner->profile().profile());
  if (learned.empty()) return uses;
  if (uses.empty()) return tokens >= kTokensTrusted ? learned : uses;
  const float share = static_cast<float>(tokens) / static_cast<float>(tokens + kProfileTokens);
  for (size_t i = 0; i < uses.size(); ++i) uses[i] += share * (learned[i] - uses[i]);
  return uses;
}

planning::MachineMemory machine_memory(const EngineOptions& options) {
  if (options.device == DeviceChoice::kCuda) device::use_device(options.gpu);  // what the driver takes of RAM is taken then
  MemoryLimits limits = read_memory_limits();
  if (options.device == DeviceChoice::kSim) {
    // Host memory: what stands in for the device is not there for anything else.
    const auto take = [&](uint64_t from) { return from - std::min(from, options.vram_bytes); };
    limits.available_bytes = take(limits.available_bytes);
    if (limits.cgroup_room_bytes) limits.cgroup_room_bytes = take(*limits.cgroup_room_bytes);
  }
  planning::MachineMemory machine = planning::MachineMemory::of(limits);
  if (options.device == DeviceChoice::kSim) machine.vram_bytes = options.vram_bytes;
  if (options.device == DeviceChoice::kCuda) machine.vram_bytes = device::free_device_bytes();
  return machine;
}

// Why the GPU that was asked for cannot compute; empty when it can.
std::string gpu_problem(const EngineOptions& options, const ModelConfig& config) {
  if (std::string problem = model::device_model_problem(options.gpu); !problem.empty()) return problem;
  if (options.activations == ActivationType::kF32) return "--activations f32 is a check of the CPU's";
  return model::device_model_limit(config);
}

planning::MemoryPlan plan_for(const EngineOptions& options, const Pack& pack, const Learner* learner) {
  planning::MemoryOptions memory;
  memory.ram_bytes = options.ram_bytes;
  memory.vram_bytes = options.vram_bytes;
  memory.gpu = options.device == DeviceChoice::kCuda;
  memory.sessions = options.sessions;
  memory.context = options.context;
  memory.chunk = options.chunk;
  memory.threads = options.threads;
  memory.kv = options.kv;
  memory.activations = options.activations;
  for (const std::string& rule : options.placement) memory.rules.push_back(planning::parse_placement_rule(rule));
  return planning::plan_memory(pack.manifest(), pack.config(), uses_of(options, pack, learner), memory, machine_memory(options),
                               pack.directory().filename().string());
}

// What computes and what is kept where; the defaults of `options` are set to what the plan chose.
planning::MemoryPlan resolve(EngineOptions& options, const Pack& pack, const Learner* learner) {
  if (options.threads == 0) options.threads = usable_cores();
  const bool chosen = options.device == DeviceChoice::kAuto;
  std::string why_not;  // an idle GPU's
  if (options.device == DeviceChoice::kAuto || options.device == DeviceChoice::kCuda) {
    const std::string problem = gpu_problem(options, pack.config());
    if (problem.empty()) {
      options.device = DeviceChoice::kCuda;
    } else if (chosen && options.vram_bytes == 0 && options.gpu == 0) {
      options.device = DeviceChoice::kCpu;
      if (device::device_count() > 0) why_not = problem;
    } else {
      const char* const asked = options.device == DeviceChoice::kCuda ? "--device cuda" : options.vram_bytes > 0 ? "--vram" : "--gpu";
      if (device::device_count() > 0) fail(ErrorKind::kUsage, "{}: the GPU cannot compute this: {}; --device cpu computes it", asked, problem);
      fail(ErrorKind::kUsage, "{}: no GPU computes here ({}); --device sim lets host memory stand in for one's", asked, problem);
    }
  }
  if (options.device == DeviceChoice::kCpu && options.vram_bytes > 0) fail(ErrorKind::kUsage, "--vram and --device cpu exclude each other: the CPU has no VRAM");
  std::optional<planning::MemoryPlan> plan;
  try {
    plan = plan_for(options, pack, learner);
  } catch (const Error& e) {
    const bool of_gpu = e.kind() == ErrorKind::kCapacity || e.kind() == ErrorKind::kCuda;
    if (!of_gpu || options.device != DeviceChoice::kCuda || !chosen || options.vram_bytes > 0) throw;
    why_not = e.what();
  }
  if (!plan) {
    options.device = DeviceChoice::kCpu;
    device::leave_devices();
    plan = plan_for(options, pack, learner);
  }
  if (!why_not.empty()) plan->notes.push_back("the GPU is left alone: " + why_not);
  options.context = plan->context;
  options.chunk = plan->chunk;
  options.ram_bytes = plan->ram_bytes;
  options.vram_bytes = plan->vram_bytes;
  return *std::move(plan);
}

}  // namespace

std::unique_ptr<Engine> Engine::open(const EngineOptions& wanted) {
  EngineOptions options = wanted;
  Pack pack = Pack::open(options.pack);
  require_runnable(pack.config(), options.pack.string());
  if (options.on_pack) options.on_pack(pack, options);
  const kernels::KernelTable& table = options.isa.empty() ? kernels::best() : kernels::by_name(options.isa);
  EngineOptions effective = options;
  std::unique_ptr<Learner> learner;
  if (!options.workload.empty()) {
    const std::filesystem::path path = experts::learned_profile_path(pack.manifest().routing_id, options.workload);
    if (!path.empty()) learner = std::make_unique<Learner>(pack, path);
  }
  planning::MemoryPlan plan = resolve(effective, pack, learner.get());
  effective.isa = table.name;
  return std::make_unique<LoadedEngine>(std::move(effective), std::move(pack), std::move(plan), std::move(learner), table);
}

}  // namespace tierpack

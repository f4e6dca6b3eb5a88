#include "runtime/planning/rate_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"

namespace tierpack::planning {

namespace {

bool computed(const ExpertLayer& layer, const ModelConfig& config) { return layer.layer < config.layers; }

// Uses per token of every expert of a layer; alike without a profile.
std::vector<double> uses_of(const PackManifest& manifest, const ModelConfig& config, const MemoryPlan& plan, uint32_t index) {
  const ExpertLayer& layer = manifest.expert_layers[index];
  const CacheShape shape = cache_shape(manifest);
  std::vector<double> uses(layer.experts, static_cast<double>(config.experts_used) / layer.experts);
  for (uint32_t e = 0; e < layer.experts && !plan.uses.empty(); ++e) uses[e] = static_cast<double>(plan.uses[shape.entry(index, e)]);
  return uses;
}

// What every token reads: dense tensors of the trunk and the head, without the table of which it reads a row.
bool read_by_every_token(const PackManifest& manifest, const ModelConfig& config, const DenseTensor& tensor) {
  const std::string_view name = tensor.name;
  if (name == "token_embd.weight") {
    return std::none_of(manifest.dense.begin(), manifest.dense.end(), [](const DenseTensor& t) { return t.name == "output.weight"; });
  }
  if (!name.starts_with("blk.")) return true;
  uint32_t block = 0;
  std::from_chars(name.data() + 4, name.data() + name.size(), block);
  return block < config.layers;  // others are for drafting
}

// Rates of this machine's kernels, with stand-ins for types that were not measured.
class Kernels {
 public:
  Kernels(const HardwareProfile& hardware, int threads) : hardware_(hardware) {
    if (hardware.cpu.cores > 0) share_ = std::min(1.0, static_cast<double>(threads) / hardware.cpu.cores);
  }

  // Seconds in which one token goes through `bytes` of weights; nullopt when nothing is known.
  std::optional<double> decode_seconds(DType type, uint64_t bytes) {
    const KernelRate* rate = hardware_.kernel(dtype_name(type));
    double bytes_s = rate != nullptr ? rate->decode_bytes_s : 0;
    if (bytes_s <= 0) {
      note(type);
      bytes_s = hardware_.memory.read_bytes_s;
    }
    if (bytes_s <= 0) return std::nullopt;
    return static_cast<double>(bytes) / (bytes_s * share_);
  }
  std::optional<double> prefill_seconds(DType type, double madds) {
    const KernelRate* rate = hardware_.kernel(dtype_name(type));
    double madds_s = rate != nullptr ? rate->prefill_madds_s : 0;
    if (madds_s <= 0) {  // as slow as the slowest
      note(type);
      for (const KernelRate& other : hardware_.kernels) {
        if (other.prefill_madds_s > 0 && (madds_s <= 0 || other.prefill_madds_s < madds_s)) madds_s = other.prefill_madds_s;
      }
    }
    if (madds_s <= 0) return std::nullopt;
    return madds / (madds_s * share_);
  }
  std::vector<std::string> notes() const {
    std::vector<std::string> out;
    for (const auto& [type, unused] : missing_) {
      out.push_back(fmt::format("products with {} were not measured: memory's rate and the slowest type's are taken", dtype_name(type)));
    }
    return out;
  }

 private:
  void note(DType type) { missing_.emplace(type, true); }
  const HardwareProfile& hardware_;
  double share_ = 1;
  std::map<DType, bool> missing_;
};

// Chances that exactly n of `draws` experts are missed when `missed` are on average.
std::vector<double> miss_chances(uint32_t draws, double missed) {
  const double q = draws == 0 ? 0 : std::clamp(missed / draws, 0.0, 1.0);
  std::vector<double> chances(size_t{draws} + 1, 0.0);
  chances[0] = 1;
  for (uint32_t i = 0; i < draws; ++i) {
    for (size_t n = i + 1; n > 0; --n) chances[n] = chances[n] * (1 - q) + chances[n - 1] * q;
    chances[0] *= 1 - q;
  }
  return chances;
}

// One layer's experts as the model sees them.
struct LayerCost {
  uint64_t record_bytes = 0;
  double token_s = 0;       // computing one expert for one token
  double madds_s = 0;       // computing one token's multiply-adds with many tokens
  std::vector<double> uses;
  std::vector<bool> on_disk;
};

class Model {
 public:
  Model(const PackManifest& manifest, const ModelConfig& config, const MemoryPlan& plan, const HardwareProfile& hardware, const RateOptions& options)
      : manifest_(manifest), config_(config), options_(options), plan_(plan), kernels_(hardware, options.threads) {}

  RatePrediction predict() {
    RatePrediction out;
    if (measure_dense() && measure_layers()) {
      if (misses_ && (options_.disk == nullptr || options_.disk->record_bytes_s <= 0)) {
        out.notes.push_back("the disk that holds the pack was not measured");
      } else {
        out.decode = decode();
        if (prefill_known_) out.prefill = prefill();
      }
    } else {
      out.notes.push_back("neither the kernels nor memory were measured");
    }
    const std::vector<std::string> assumed = kernels_.notes();
    out.notes.insert(out.notes.end(), assumed.begin(), assumed.end());
    return out;
  }

 private:
  bool measure_dense() {
    for (const DenseTensor& tensor : manifest_.dense) {
      if (!read_by_every_token(manifest_, config_, tensor) || tensor.shape.ne[1] <= 1) continue;
      const auto decode = kernels_.decode_seconds(tensor.dtype, manifest_.records[tensor.record].bytes);
      if (!decode) return false;
      dense_token_s_ += *decode;
      // Logits are computed for the last token of a prompt alone.
      if (tensor.name == "output.weight" || tensor.name == "token_embd.weight") continue;
      add_prefill(dense_madds_s_, tensor.dtype, static_cast<double>(tensor.shape.elements()));
    }
    return true;
  }

  bool measure_layers() {
    const std::vector<Tier> tiers = initial_tiers(plan_.slots, manifest_, plan_.order);
    const CacheShape shape = cache_shape(manifest_);
    for (uint32_t l = 0; l < manifest_.expert_layers.size(); ++l) {
      const ExpertLayer& layer = manifest_.expert_layers[l];
      if (!computed(layer, config_)) continue;
      LayerCost cost;
      cost.record_bytes = layer.record_bytes;
      cost.uses = uses_of(manifest_, config_, plan_, l);
      for (const ExpertPart* part : layer.parts()) {
        const auto token = kernels_.decode_seconds(part->dtype, part->bytes);
        if (!token) return false;
        cost.token_s += *token;
        add_prefill(cost.madds_s, part->dtype, static_cast<double>(part->in * part->out));
      }
      for (uint32_t e = 0; e < layer.experts; ++e) {
        cost.on_disk.push_back(tiers[shape.entry(l, e)] == Tier::kDisk);
        misses_ = misses_ || (cost.on_disk.back() && cost.uses[e] > 0);
      }
      layers_.push_back(std::move(cost));
    }
    return true;
  }

  void add_prefill(double& sum, DType type, double madds) {
    const auto seconds = kernels_.prefill_seconds(type, madds);
    if (seconds) sum += *seconds;
    prefill_known_ = prefill_known_ && seconds.has_value();
  }

  DecodeRate decode() const {
    DecodeRate out;
    out.dense_s = dense_token_s_;
    for (const LayerCost& layer : layers_) {
      double missed = 0;
      for (size_t e = 0; e < layer.uses.size(); ++e) missed += layer.on_disk[e] ? layer.uses[e] : 0;
      missed *= 1 - options_.adapted;
      out.missed_records += missed;
      out.missed_bytes += missed * static_cast<double>(layer.record_bytes);
      const double computing = config_.experts_used * layer.token_s;
      out.experts_s += computing;
      if (missed <= 0) continue;
      const std::vector<double> chances = miss_chances(config_.experts_used, missed);
      for (size_t n = 1; n < chances.size(); ++n) {
        const double hits = computing - static_cast<double>(n) * layer.token_s;
        const double reading = read_seconds(*options_.disk, layer.record_bytes, static_cast<double>(n));
        // All but the last record are computed as they come.
        const double all = std::max(reading, hits + static_cast<double>(n - 1) * layer.token_s) + layer.token_s;
        out.stall_s += chances[n] * (all - computing);
      }
    }
    out.tokens_s = 1 / (out.dense_s + out.experts_s + out.stall_s);
    return out;
  }

  PrefillRate prefill() const {
    PrefillRate out;
    out.chunk = plan_.chunk;
    const double tokens = plan_.chunk;
    double seconds = std::max(tokens * dense_madds_s_, dense_token_s_);
    out.compute_s = seconds;
    for (const LayerCost& layer : layers_) {
      double distinct = 0;
      double read = 0;
      double chosen = 0;
      for (size_t e = 0; e < layer.uses.size(); ++e) {
        const double used = 1 - std::pow(1 - std::min(layer.uses[e], 1.0), tokens);
        distinct += used;
        chosen += layer.uses[e];
        if (layer.on_disk[e]) read += used;
      }
      const double computing = std::max(tokens * chosen * layer.madds_s, distinct * layer.token_s);
      const double reading = read > 0 ? read_seconds(*options_.disk, layer.record_bytes, read) : 0;
      out.records += read;
      out.read_bytes += read * static_cast<double>(layer.record_bytes);
      out.compute_s += computing;
      out.disk_s += reading;
      seconds += std::max(computing, reading);
    }
    out.tokens_s = tokens / seconds;
    return out;
  }

  const PackManifest& manifest_;
  const ModelConfig& config_;
  const RateOptions& options_;
  const MemoryPlan& plan_;
  Kernels kernels_;
  std::vector<LayerCost> layers_;
  double dense_token_s_ = 0;  // decoding: a token through the dense weights
  double dense_madds_s_ = 0;  // prefill: a token among many
  bool misses_ = false;
  bool prefill_known_ = true;
};

}  // namespace

HitRates predict_hits(const PackManifest& manifest, const ModelConfig& config, const MemoryPlan& plan, double adapted) {
  HitRates out;
  out.profiled = !plan.uses.empty();
  const std::vector<Tier> tiers = initial_tiers(plan.slots, manifest, plan.order);
  const CacheShape shape = cache_shape(manifest);
  for (uint32_t l = 0; l < manifest.expert_layers.size(); ++l) {
    const ExpertLayer& layer = manifest.expert_layers[l];
    if (!computed(layer, config)) continue;
    const std::vector<double> uses = uses_of(manifest, config, plan, l);
    for (uint32_t e = 0; e < layer.experts; ++e) {
      const Tier tier = tiers[shape.entry(l, e)];
      (tier == Tier::kVram ? out.vram : tier == Tier::kRam ? out.ram : out.disk) += uses[e];
      out.vram_entries += tier == Tier::kVram ? 1 : 0;
      out.ram_entries += tier == Tier::kRam ? 1 : 0;
      ++out.entries;
    }
  }
  const double all = out.vram + out.ram + out.disk;
  if (all <= 0) return out;
  const double saved = out.disk * adapted;
  out.misses_saved = saved / all;
  out.vram /= all;
  out.ram = (out.ram + saved) / all;
  out.disk = (out.disk - saved) / all;
  return out;
}

double read_seconds(const DiskInfo& disk, uint64_t bytes, double count) {
  const double streaming = count * static_cast<double>(bytes) / disk.record_bytes_s;
  // The latency of one record of this size: on the line through a page's and a measured record's.
  const double share = disk.record_bytes > 0 ? static_cast<double>(bytes) / static_cast<double>(disk.record_bytes) : 1;
  const double latency_s = (disk.page_latency_us + (disk.record_latency_us - disk.page_latency_us) * share) * 1e-6;
  const double more = std::max(0.0, count - 1) * static_cast<double>(bytes) / disk.record_bytes_s;
  return std::max(streaming, std::min(count, 1.0) * latency_s + more);
}

RatePrediction predict_rates(const PackManifest& manifest, const ModelConfig& config, const MemoryPlan& plan, const HardwareProfile& hardware,
                             const RateOptions& options) {
  return Model(manifest, config, plan, hardware, options).predict();
}

}  // namespace tierpack::planning

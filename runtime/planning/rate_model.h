// How fast a planned model will be: hit rates by tier from the profile, and tokens a second from what the machine was measured
// to do. Pure arithmetic over a MemoryPlan and a HardwareProfile.
//
// Decoding a token reads the dense weights once and the experts that a layer's router chose; hits are computed while misses are
// read, and the record that comes last is computed after it. A prompt reads, for each chunk and layer, the union of the experts
// that its tokens chose, and computes meanwhile. What the kernels take per byte and the disk per record is measured
// (calibrate --hardware); attention over a long context is not in the model, so rates are those of short ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/hardware.h"
#include "formats/model_config.h"
#include "formats/pack.h"
#include "runtime/planning/memory_plan.h"

namespace tierpack::planning {

struct HitRates {
  double vram = 0, ram = 0, disk = 0;  // shares of all uses of routed experts, sum 1
  uint64_t vram_entries = 0, ram_entries = 0, entries = 0;  // experts of the trunk's layers
  double misses_saved = 0;  // of all uses, by adaption; counted in ram
  bool profiled = false;  // else every expert counts alike: what a model with uneven routing has at least
};

// The share of the misses of a placement by profile that the store saves by following the text: experts used a moment ago are used
// again more often than the profile says. Measured on texts of the kind that was profiled, with caches of a fifth to nine
// tenths of a model's experts.
inline constexpr double kAdaptedShare = 0.2;

// Of the placement that the store starts with, less `adapted` of its misses.
HitRates predict_hits(const PackManifest& manifest, const ModelConfig& config, const MemoryPlan& plan, double adapted = 0);

struct DecodeRate {
  double tokens_s = 0;
  double dense_s = 0;    // of a token: weights that every token reads
  double experts_s = 0;  // computing the chosen experts
  double stall_s = 0;    // waiting for the disk beyond that
  double missed_records = 0, missed_bytes = 0;  // a token
};

struct PrefillRate {
  double tokens_s = 0;
  double compute_s = 0;  // of a chunk
  double disk_s = 0;     // reading what is not resident; overlaps with computing, layer by layer
  double records = 0, read_bytes = 0;  // a chunk: distinct experts that are read
  uint32_t chunk = 0;
};

struct RatePrediction {
  std::optional<DecodeRate> decode;    // nullopt: something was not measured, see notes
  std::optional<PrefillRate> prefill;
  std::vector<std::string> notes;      // what had to be assumed
};

struct RateOptions {
  int threads = 1;
  const DiskInfo* disk = nullptr;  // that will hold the pack; not needed when every expert is resident
  double adapted = 0;              // see predict_hits
};

RatePrediction predict_rates(const PackManifest& manifest, const ModelConfig& config, const MemoryPlan& plan, const HardwareProfile& hardware,
                             const RateOptions& options);

// Seconds until `count` records of `bytes` that were asked for together are there, and the last of them is proved.
double read_seconds(const DiskInfo& disk, uint64_t bytes, double count);

}  // namespace tierpack::planning

// What a model takes of a GPU's memory besides the experts: the sizes that the plan counts and the model allocates. Needs no
// CUDA, so that plans for machines with a GPU are made anywhere.
#pragma once

#include <cstdint>
#include <string>

#include "formats/model_config.h"
#include "formats/pack.h"
#include "runtime/model/carver.h"
#include "runtime/model/workspace.h"

namespace tierpack::model {

// Records on their way through device memory to be computed, while others are.
inline constexpr uint32_t kStagedRecords = 8;

// Device memory of a pass beside the workspace.
struct DeviceScratch {
  float* inv_freq = nullptr;         // (rotary_dim / 2)
  float* block_cos = nullptr;        // (blocks completed by a chunk, rotary_dim / 2)
  float* block_sin = nullptr;
  float* attention = nullptr;        // partial results of split attention
  uint64_t attention_bytes = 0;
  float* next_router = nullptr;      // (E): the next block's router, for the guess
  uint32_t* guess = nullptr;         // (K)
  float* guess_weights = nullptr;    // (K)
  uint32_t* ids = nullptr;           // (trunk blocks, K): routing of one token
  float* weights = nullptr;          // (trunk blocks, K)
  uint64_t* addresses = nullptr;     // (trunk blocks, E): records that stay in device memory

  static DeviceScratch carve(Carver& carver, const ModelConfig& config, uint32_t tokens, uint32_t capacity);
};

// Why the kernels of a GPU cannot compute a model of these sizes; empty when they can.
std::string device_model_limit(const ModelConfig& config);

// The dense weights that a GPU holds: all of the trunk's but an embedding that is looked up alone. An upper bound that is
// off by the alignment of the tensors.
uint64_t device_weight_bytes(const PackManifest& manifest, const ModelConfig& config);
// Workspace and scratch in device memory.
uint64_t device_work_bytes(const ModelConfig& config, uint32_t tokens, uint32_t capacity);
// Slots that missing records pass through.
uint64_t device_staging_bytes(const PackManifest& manifest);
// Code tables of the grid types, kernels as they are loaded and graphs; the driver's context; what both take of the host. Estimates.
inline constexpr uint64_t kDeviceTableBytes = uint64_t{64} << 20;
inline constexpr uint64_t kDeviceContextBytes = uint64_t{400} << 20;
inline constexpr uint64_t kDeviceHostRuntimeBytes = uint64_t{200} << 20;

// Page-locked host memory of the model: what goes to the device and comes back, and the CPU's share of the experts.
uint64_t device_host_bytes(const PackManifest& manifest, const ModelConfig& config, uint32_t tokens);

// Layout of that memory.
struct DeviceHostBuffers {
  float* embedding = nullptr;      // (T, D), then the n-gram rows
  float* ngram = nullptr;          // (T, e)
  uint32_t* ids = nullptr;         // (trunk blocks or 1, T, K)
  float* weights = nullptr;        // (trunk blocks or 1, T, K)
  uint32_t* guess = nullptr;       // (K)
  uint32_t* row = nullptr;         // (T * K)
  uint32_t* pair_token = nullptr;  // (T * K)
  float* out = nullptr;            // (T * K, D): of the experts that the CPU computes
  float* logits = nullptr;         // (logit rows, vocab)
  Activations input;               // (T, D): what the experts read; its f32 form comes from the device
  // Not read by the device:
  Activations gathered;            // (T * K, D); one token needs none
  float* gate = nullptr;           // (T * K, F)
  float* up = nullptr;             // (T * K, F)
  Activations hidden;              // (T * K, F filled up)
  uint32_t* pairs = nullptr;       // (T * K): pairs by expert
  uint32_t* first_pair = nullptr;  // (E + 1)
  uint32_t* requested = nullptr;   // (E)
  uint32_t* counts = nullptr;      // (E)

  static DeviceHostBuffers carve(Carver& carver, const ModelConfig& config, uint32_t tokens);
};

}  // namespace tierpack::model

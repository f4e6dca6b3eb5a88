// A model whose forward pass runs on a GPU: dense weights, workspace and state in device memory, experts wherever the store has
// them. The same bits as on the CPU (docs/arithmetic.md).
#pragma once

#include <memory>

#include "formats/pack.h"
#include "runtime/experts/expert_store.h"
#include "runtime/experts/record_reader.h"
#include "runtime/model/compute.h"
#include "runtime/model/gpu/device_weights.h"
#include "runtime/model/model.h"

namespace tierpack::model {

struct DeviceModelParts {
  const Pack& pack;
  DeviceWeights weights;
  ExpertStore& experts;
  const kernels::KernelTable& kernels;  // of the CPU, for its share
  ThreadTeam& team;
  uint32_t chunk = 0;     // most tokens of one pass
  uint32_t capacity = 0;  // most tokens of one session
  experts::ReaderOptions reader;  // of the lookup tables' rows
  int device = 0;                 // of device::enumerate()
  bool graph = true;              // start the kernels of a token as one graph where no host is needed in between
};

// Throws kUnsupported as make_model does, kCapacity without the memory, kCuda in a program built without CUDA.
std::unique_ptr<Model> make_device_model(DeviceModelParts parts);
// Why no model can run on GPU `device`: built without CUDA, no driver, no such device, one that is too old; empty when one can.
std::string device_model_problem(int device);

}  // namespace tierpack::model

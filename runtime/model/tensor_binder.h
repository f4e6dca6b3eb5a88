// The dense tensors of a pack in memory, handed out only to those who state what they expect.
//
// DenseTensors reads the dense segment, record by record and proved, into one pinned allocation. A TensorBinder gives
// out a tensor for a name, a shape and the kind of use; anything else than what was stated is an error that prints both.
// At the end it refuses tensors nobody asked for: a weight that the forward pass does not know would be left out of the
// answer silently.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "base/threads.h"
#include "formats/pack.h"
#include "runtime/device/device.h"
#include "runtime/kernels/kernels.h"

namespace tierpack::model {

class DenseTensors {
 public:
  // Bytes that load() reads, and those that it takes for them.
  static uint64_t total_bytes(const Pack& pack);
  static uint64_t arena_bytes(const PackManifest& manifest);
  // Reads with every thread of the team. `on_bytes` is called with the size of each record read, from any thread; what it
  // throws ends the loading.
  static DenseTensors load(const Pack& pack, ThreadTeam& team, const std::function<void(uint64_t)>& on_bytes);

  // Bytes of manifest().dense[index].
  Bytes tensor(size_t index) const;
  uint64_t bytes() const { return arena_.bytes().size(); }

 private:
  device::PinnedBuffer arena_;
  std::vector<uint64_t> offsets_;  // per dense tensor
  std::vector<uint64_t> sizes_;
};

class TensorBinder {
 public:
  // Both must outlive what is bound. `decoded` receives vectors that are not stored as F32.
  TensorBinder(const Pack& pack, const DenseTensors& tensors, std::vector<std::unique_ptr<float[]>>& decoded);

  bool has(const std::string& name) const { return pack_.find_dense(name) != nullptr; }

  // A matrix {in, out} of any type that products accept: F32, F16, BF16, F8_E4M3 or a quantised weight type. The scales
  // beside "X.weight", a tensor "X.scale" of F32, belong to it: {1} or {1, 1} for the matrix, and where it is not
  // quantised also {1, out} or {ceil(in / 128), ceil(out / 128)}. "X.input_scale" is not used.
  kernels::MatrixView matrix(const std::string& name, uint64_t in, uint64_t out);

  // Plain numbers for elementwise use, of any type, in one of the given shapes.
  const float* floats(const std::string& name, std::initializer_list<Shape> shapes);
  const float* vector(const std::string& name, uint64_t n) { return floats(name, {Shape{{n, 1, 1, 1}, 1}}); }

  // Scales of quantised experts that lie beside the stack "X.weight": "X.scale", F32 {experts}, one factor for the
  // results of each; null without such a tensor. "X.input_scale" is not used.
  const float* expert_scales(const std::string& stack, uint64_t experts);

  // Throws kUnsupported when tensors of the pack were not bound.
  void require_all_bound() const;

 private:
  size_t find(const std::string& name, std::initializer_list<Shape> shapes);
  // The scales beside "X.weight", checked for type and numbers, not for their shape; null when there are none.
  const DenseTensor* find_scales(const std::string& name);
  const float* scales_of(const DenseTensor& tensor) const;
  void bind_scales(const std::string& name, kernels::MatrixView& matrix);
  const Pack& pack_;
  const DenseTensors& tensors_;
  std::vector<std::unique_ptr<float[]>>& decoded_;
  std::vector<bool> bound_;
};

// Throws kUnsupported unless products accept weights of this type; `what` names the tensor.
void require_weight_type(DType type, const std::string& what);

}  // namespace tierpack::model

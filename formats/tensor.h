// What a container says about a tensor: name, type, shape, and where its bytes are.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "formats/dtype.h"

namespace tierpack {

// Shape in ggml order: ne[0] is contiguous. A matrix {in, out} computes y[o] = sum_i W[o][i] x[i]; a stack of experts
// is {in, out, experts}. Missing dimensions are 1.
struct Shape {
  std::array<uint64_t, 4> ne{1, 1, 1, 1};
  uint32_t dims = 1;  // as written in the file, 0..4
  uint64_t elements() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
  uint64_t rows() const { return ne[1] * ne[2] * ne[3]; }
  bool operator==(const Shape& other) const { return ne == other.ne; }
  std::string text() const;  // "{256, 96, 32}"
};

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t offset = 0;  // from the start of its file
  uint64_t bytes = 0;   // without padding
  uint32_t shard = 0;   // index of the file in its source
};

}  // namespace tierpack

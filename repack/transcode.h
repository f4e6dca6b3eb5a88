// Explicit transcoding: tensors whose values are quantised anew on their way into a pack. Such a pack does not give its source back, and says so.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/regex.h"
#include "formats/imatrix.h"
#include "formats/tensor.h"

namespace tierpack::repack {

// "ffn_.*_exps=Q4_K": tensors whose name the expression is found in become that type.
struct TranscodeRule {
  Regex names;
  DType to;
};
// Throws kUsage for text that is no REGEX=TYPE, and for types that cannot be written.
TranscodeRule parse_transcode_rule(const std::string& text);

// The new types of tensors, by name: the first rule that fits one decides. Vectors and kernels of convolutions keep their type. Throws kUsage for rules that fit no
// matrix, kUnsupported for matrices whose rows are no whole blocks of the type.
std::map<std::string, DType> transcoded_types(const std::vector<TranscodeRule>& rules, const std::vector<TensorInfo>& tensors, const std::string& source);

// Squared error of a run of values, and their squares.
struct CodingError {
  double error = 0, square = 0;
};

// Rows of one type -> rows of another, values decoded to f32 in between.
class Transcoder {
 public:
  Transcoder(std::optional<Imatrix> imatrix) : imatrix_(std::move(imatrix)) {}

  struct Rows {
    std::string_view tensor;    // its name, for the imatrix
    DType from = DType::kF32, to = DType::kF32;
    uint64_t columns = 0;
    uint64_t rows = 0;
    uint64_t matrix = 0, matrices = 1;
    float scale = 1;            // second scale of NVFP4: values are divided by it first
  };
  // `values` holds rows * columns f32 of scratch.
  CodingError encode(const Rows& rows, Bytes source, std::span<float> values, MutableBytes out) const;

 private:
  std::optional<Imatrix> imatrix_;
};

}  // namespace tierpack::repack

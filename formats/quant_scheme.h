// How a safetensors checkpoint stores its weights: which tensors together are one weight, and by what rule they become
// numbers. Decided for each tensor by what lies beside it, never by the configuration's lists of excluded modules; the
// configuration only says the size of FP8 blocks, and by whom the checkpoint was quantised when nobody else does.
//
//   scheme          tensors (X is a module, W a stack of experts)             value of element [o][i]
//   plain           X.weight, any floating or integer type                    as stored
//   fp8             X.weight F8_E4M3 or F8_E5M2 with X.weight_scale_inv       code * scale[o / rows][i / columns]
//                   or X.weight_scale
//   nvfp4           X.weight U8, X.weight_scale F8_E4M3 [out, in/16],         (E2M1 * scale[o][i / 16]) * scale_2
//                   X.weight_scale_2 F32                   (ModelOpt)
//                   X.weight_packed, X.weight_scale,                          (E2M1 * scale[o][i / 16]) / global
//                   X.weight_global_scale F32              (compressed-tensors)
//   mxfp4           W_blocks U8 [.., out, in/32, 16], W_scales (gpt-oss);     E2M1 * 2^(scale[o][i / 32] - 127)
//                   X.weight or X.weight_packed U8, X.weight_scale U8 or F8_E8M0 [out, in/32]
//   mxfp8           X.weight F8_E4M3, X.weight_scale U8 or F8_E8M0 [out, in/32]   E4M3 * 2^(scale[o][i / 32] - 127)
//
// A 4-bit byte holds element 2k in its low nibble and 2k + 1 in its high nibble. Every form also exists fused over
// experts, with a leading dimension; then a companion's name follows the stack's: W_scale_inv, W_weight_scale, ...
// docs/safetensors.md has the shapes in full and where each form comes from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "formats/safetensors.h"

namespace tierpack {

enum class QuantScheme : uint8_t {
  kPlain,
  kFp8Tensor,   // one scale a matrix, or one for each equal share of its rows (a fused gate and up)
  kFp8Channel,  // one scale a row
  kFp8Block,    // one scale a rectangle, usually 128 x 128
  kNvfp4,
  kMxfp4,
  kMxfp8,
};
const char* quant_scheme_name(QuantScheme scheme);  // "fp8-block"

// One weight: a matrix [out, in], a stack of matrices [.., out, in], or anything plain. Pointers and views are into the
// source and the catalog.
struct QuantWeight {
  std::string_view name;  // "...q_proj.weight", "...experts.down_proj": without the suffix of packed forms
  QuantScheme scheme = QuantScheme::kPlain;
  std::span<const uint64_t> shape;  // of the values, last dimension contiguous
  const SafetensorsTensor* data = nullptr;
  const SafetensorsTensor* scale = nullptr;    // first-level scales; null for kPlain
  const SafetensorsTensor* scale_2 = nullptr;  // second-level scales of kNvfp4
  bool scale_2_divides = false;                // compressed-tensors' global scale

  // One first-level scale covers block_rows x block_columns of each matrix; edge blocks may be smaller. A scale that
  // covers every matrix of a stack has whole_stack set.
  uint64_t block_rows = 0;
  uint64_t block_columns = 0;
  bool whole_stack = false;
  // Consecutive rows, over the whole stack, that share one second-level scale.
  uint64_t scale_2_rows = 0;

  // Lines of the last dimension over the whole stack; a scalar is one row of one column.
  uint64_t columns() const { return shape.empty() ? 1 : shape.back(); }
  uint64_t rows() const;
  // Rows of one matrix.
  uint64_t matrix_rows() const { return shape.size() < 2 ? 1 : shape[shape.size() - 2]; }
};

// What the configuration says about quantisation; all defaults when it says nothing.
struct QuantConfig {
  std::string method;     // quant_method: "modelopt", "compressed-tensors", "fp8", "mxfp4", ...
  std::string algorithm;  // ModelOpt's quant_algo or compressed-tensors' format, for people
  uint64_t block_rows = 128;
  uint64_t block_columns = 128;
};

// From config.json and hf_quant_config.json, either of which may be absent (empty). kCorrupt for malformed JSON.
QuantConfig parse_quant_config(std::string_view config_json, std::string_view hf_quant_config_json,
                               const std::string& source);
// The same from the files beside a checkpoint.
QuantConfig read_quant_config(const std::filesystem::path& directory);

// A tensor that cannot be read as a weight, and why.
struct QuantProblem {
  std::string tensor;
  ErrorKind kind = ErrorKind::kUnsupported;  // or kCorrupt
  std::string message;                       // a sentence
};

// Every listed tensor of a source is in one place: the data or a scale of a weight, `ignored`, or `problems` (there a
// weight's companions are not named again).
struct QuantCatalog {
  std::vector<QuantWeight> weights;               // in the order of their data in the source
  std::vector<const SafetensorsTensor*> ignored;  // scales of activations and of the KV cache: not part of any weight
  std::vector<QuantProblem> problems;
  NameIndex index;  // of weights; ids are positions
  NameArena arena;  // owns names and shapes that the source does not have

  const QuantWeight* find(std::string_view name) const;
  // Throws the first problem, with the number of others.
  void require_readable(const std::string& source) const;
};

// Must not outlive `source`. Looks at names, types and shapes only; reads no data.
QuantCatalog recognise_weights(const SafetensorsSource& source, const QuantConfig& config);

}  // namespace tierpack

// Which tensors of a pack a safetensors checkpoint becomes, and where every byte of its weights goes: computed from
// names, types and shapes, without reading data.
//
// Bulk weights are moved: whole rows of a source matrix become rows of a target matrix, with their block scales where
// the target's type holds them (NVFP4, MXFP4). A move loses nothing, so the source is restored from the pack. Small
// tensors that change by arithmetic (gamma + 1, -exp(A_log), scales) are derived: the pack keeps their source bytes as
// they are, and the values beside them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "formats/quant_scheme.h"
#include "formats/source_rows.h"
#include "formats/tensor.h"

namespace tierpack::repack {

// Consecutive rows of a weight -> consecutive rows of one target, or alternately of two (ways = 2: row i goes to
// target[i % 2], row i / 2; gpt-oss interleaves gate and up). Rows are counted over a whole stack.
struct RowMove {
  uint32_t weight = 0;      // index into QuantCatalog::weights
  uint64_t source_row = 0;  // first
  uint64_t rows = 0;        // of the source
  uint32_t ways = 1;
  std::array<uint32_t, 2> target{};      // index into HfMapping::tensors
  std::array<uint64_t, 2> target_row{};  // first
  uint64_t target_column = 0;            // first; the weight's columns are a window of the target's
  ColumnTiles tiles;
  // Rows of the source are columns of the target: source element [source_row + i][j] is target element [target_row +
  // j][i]. `rows` is then the target's number of columns, and the target has as many rows from target_row as the source
  // has columns. With ways = 2 the columns alternate: element [source_row + i][j] is element [target_row[j % 2] + j /
  // 2][i] of target[j % 2]. Types with one element a block only (F8_E4M3 too).
  bool transposed = false;
};

enum class DerivedOp : uint8_t {
  kFloats,   // values as they are, as F32
  kPlusOne,  // 1 + x in f32
  kNegExp,   // -exp(x), computed in f64 and rounded
  kScale,    // scales of a moved weight, as multipliers
};

// A tensor of the pack that is computed, see derived_values().
struct DerivedTensor {
  TensorInfo target;  // F32; offset 0
  DerivedOp op = DerivedOp::kFloats;
  std::vector<uint32_t> weights;  // indices into QuantCatalog::weights, each once: all that the values depend on
  std::string scaled;  // kScale: name of the target whose products or blocks it multiplies ("blk.0.attn_q.weight")
  // kScale: shape of that target, and its moves in the order of HfMapping::moves.
  Shape scaled_shape;
  std::vector<RowMove> moves;
  // Otherwise the target consists of items of `item` elements, and its item i is item first + step * tile(i) of the one
  // source. Up to tile_first, and without tiles (tile_groups = 0), tile(i) = i; from there on block j * tile_groups + g
  // of tile_block items is block g * tile_per_group + j.
  uint64_t item = 1;
  uint64_t first = 0;
  uint32_t step = 1;
  uint64_t tile_first = 0;
  uint32_t tile_groups = 0, tile_per_group = 0, tile_block = 0;
};

struct HfMapping {
  std::vector<TensorInfo> tensors;  // filled by moves: ggml names, native types; every element is covered exactly once
  std::vector<RowMove> moves;
  std::vector<DerivedTensor> derived;
  std::vector<std::string> kept_only;  // weights that stay in the pack for unpack alone, such as a vision tower
};

// Throws kUnsupported for an architecture, scheme or tensor that the tables do not know (naming it), kCorrupt for a
// missing tensor or shapes that contradict the configuration.
HfMapping map_checkpoint(const SafetensorsSource& source, const QuantCatalog& catalog, const ModelConfig& config);

// A target of type F8_E4M3 or NVFP4 whose source has scales has a derived kScale tensor: "blk.3.attn_q.scale" beside
// "blk.3.attn_q.weight". A value is multiplied by cell [o / 128][i / 128] of {ceil(in / 128), ceil(out / 128)} (FP8
// blocks), by cell [o] of {1, out} (FP8 channels) or by the one of {1} (FP8 tensors, NVFP4); stacks have as many such
// matrices, {.., .., n}. An F8_E4M3 target without one has scale 1.

// Throws kInternal unless every target of `mapping` is covered exactly once, and every weight is either moved as a
// whole and once, or derived, or kept. O(n log n) in the number of moves.
void check_mapping(const QuantCatalog& catalog, const HfMapping& mapping);

// The values of matrix `matrix` (0 unless the target has more than two dimensions) of a derived tensor, ne[0] * ne[1]
// of them.
std::vector<float> derived_values(const SafetensorsSource& source, const QuantCatalog& catalog,
                                  const DerivedTensor& derived, uint64_t matrix);

}  // namespace tierpack::repack

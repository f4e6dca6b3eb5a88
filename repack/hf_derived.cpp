#include <cmath>

#include "formats/quant_decode.h"
#include "repack/hf_scales.h"

namespace tierpack::repack {

namespace {

// Item of the source that becomes item i of the target.
uint64_t source_item(const DerivedTensor& d, uint64_t i) {
  if (d.tile_groups != 0 && i >= d.tile_first) {
    const uint64_t at = i - d.tile_first, block = at / d.tile_block;
    const uint64_t j = block / d.tile_groups, g = block % d.tile_groups;
    i = d.tile_first + (g * d.tile_per_group + j) * d.tile_block + at % d.tile_block;
  }
  return d.first + i * d.step;
}

float apply(DerivedOp op, float x) {
  switch (op) {
    case DerivedOp::kPlusOne: return 1.0f + x;
    case DerivedOp::kNegExp: return static_cast<float>(-std::exp(static_cast<double>(x)));
    default: return x;
  }
}

}  // namespace

std::vector<float> derived_values(const SafetensorsSource& source, const QuantCatalog& catalog,
                                  const DerivedTensor& derived, uint64_t matrix) {
  const Shape& shape = derived.target.shape;
  TIERPACK_CHECK(matrix < shape.ne[2] * shape.ne[3]);
  if (derived.op == DerivedOp::kScale) return scale_values(source, catalog, derived, matrix);
  TIERPACK_CHECK(derived.weights.size() == 1 && matrix == 0);
  const QuantWeight& weight = catalog.weights[derived.weights[0]];
  std::vector<float> from(weight.rows() * weight.columns());
  decode_rows(source, weight, 0, weight.rows(), from, GlobalScale::kMultiplyByReciprocal);
  std::vector<float> out(shape.ne[0] * shape.ne[1]);
  TIERPACK_CHECK(out.size() % derived.item == 0);
  for (uint64_t i = 0; i < out.size() / derived.item; ++i) {
    const uint64_t item = source_item(derived, i);
    TIERPACK_CHECK(item < from.size() / derived.item);
    for (uint64_t k = 0; k < derived.item; ++k) {
      out[i * derived.item + k] = apply(derived.op, from[item * derived.item + k]);
    }
  }
  return out;
}

}  // namespace tierpack::repack

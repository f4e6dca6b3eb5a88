// Types and scales of weights that are moved: the pack's type of a weight, and the scale tensor beside a target. For
// the implementation of hf_mapping.h.
#pragma once

#include <optional>
#include <span>

#include "repack/hf_mapping.h"

namespace tierpack::repack {

// The type of a target that the weight is moved into. kUnsupported for types that a pack does not have.
DType native_type(const SafetensorsSource& source, const QuantWeight& weight);

// kUnsupported unless the weight is of floating-point numbers, whatever their scheme.
void require_numbers(const SafetensorsSource& source, const QuantWeight& weight);

// The kScale tensor of `target`, which `moves` fill; nullopt when its weights have no scales beside their blocks.
// kUnsupported when a scale of the target would be several of the source.
std::optional<DerivedTensor> scale_tensor(const SafetensorsSource& source, const QuantCatalog& catalog,
                                          const TensorInfo& target, std::span<const RowMove> moves);

// derived_values() of a kScale tensor.
std::vector<float> scale_values(const SafetensorsSource& source, const QuantCatalog& catalog,
                                const DerivedTensor& derived, uint64_t matrix);

}  // namespace tierpack::repack

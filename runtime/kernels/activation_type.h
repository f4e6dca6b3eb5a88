// In which form activations meet quantised weights. docs/arithmetic.md, sections 3 and 4, defines both products.
#pragma once

#include <cstdint>
#include <string_view>

namespace tierpack {

enum class ActivationType : uint8_t {
  kInt8,  // quantised in blocks of 32
  kF32,   // as they are: weights are decoded and multiplied like plain numbers; slow, for checks
};

// As --activations spells them.
constexpr const char* activation_type_name(ActivationType type) {
  return type == ActivationType::kF32 ? "f32" : "int8";
}

// The inverse for a name that is one of those.
constexpr ActivationType activation_type_named(std::string_view name) {
  return name == "f32" ? ActivationType::kF32 : ActivationType::kInt8;
}

}  // namespace tierpack

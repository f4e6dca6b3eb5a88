// Number types of a key-value cache. docs/arithmetic.md, section 10, defines what each keeps.
#pragma once

#include <cstdint>
#include <string_view>

namespace tierpack {

enum class KvType : uint8_t { kF32, kF16, kQ8 };

// As --kv spells them.
constexpr const char* kv_type_name(KvType type) {
  return type == KvType::kF32 ? "f32" : type == KvType::kF16 ? "f16" : "q8";
}

// The inverse for a name that is one of those.
constexpr KvType kv_type_named(std::string_view name) {
  return name == "f32" ? KvType::kF32 : name == "q8" ? KvType::kQ8 : KvType::kF16;
}

}  // namespace tierpack

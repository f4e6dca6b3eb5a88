// The printable stand-in for every byte in the token texts of byte-level BPE vocabularies (GPT-2's convention): bytes
// 21-7E, A1-AC and AE-FF stand for themselves, the other 68 in increasing order for U+0100, U+0101, ...
#pragma once

#include <cstdint>
#include <optional>

namespace tierpack::text {

char32_t stand_in_of(uint8_t byte);
std::optional<uint8_t> byte_of(char32_t stand_in);

}  // namespace tierpack::text

#include "runtime/text/byte_alphabet.h"

#include <array>

namespace tierpack::text {

namespace {

constexpr bool stands_for_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr char32_t kFirstOther = 0x100;
constexpr uint32_t kOthers = 68;

struct Alphabet {
  std::array<char32_t, 256> stand_in{};
  std::array<uint8_t, kOthers> other{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  uint32_t others = 0;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (stands_for_itself(byte)) {
      alphabet.stand_in[byte] = byte;
    } else {
      alphabet.stand_in[byte] = kFirstOther + others;
      alphabet.other[others++] = static_cast<uint8_t>(byte);
    }
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t stand_in_of(uint8_t byte) { return kAlphabet.stand_in[byte]; }

std::optional<uint8_t> byte_of(char32_t stand_in) {
  if (stand_in < 256 && stands_for_itself(stand_in)) return static_cast<uint8_t>(stand_in);
  if (stand_in >= kFirstOther && stand_in < kFirstOther + kOthers) return kAlphabet.other[stand_in - kFirstOther];
  return std::nullopt;
}

}  // namespace tierpack::text

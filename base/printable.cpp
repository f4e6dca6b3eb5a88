#include "base/printable.h"

#include <fmt/core.h>

namespace tierpack {

namespace {

// Appends byte `i` of `text`, escaped if it begins a control character.
void append_printable(std::string& out, std::string_view text, size_t i) {
  const auto byte = static_cast<unsigned char>(text[i]);
  // C1 controls in UTF-8: C2 80 to C2 9F.
  const bool c1 = byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
  if (byte < 0x20 || byte == 0x7f || c1) {
    out += fmt::format("\\x{:02x}", byte);
  } else {
    out += text[i];
  }
}

}  // namespace

std::string printable(std::string_view text, size_t limit) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (out.size() >= limit) return out + "...";
    append_printable(out, text, i);
  }
  return out;
}

std::string printable_lines(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n' || text[i] == '\t') {
      out += text[i];
    } else {
      append_printable(out, text, i);
    }
  }
  return out;
}

}  // namespace tierpack

#include "fetch/printable.h"

#include <fmt/core.h>

namespace tierpack::fetch {

std::string printable(std::string_view text, size_t limit) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (out.size() >= limit) return out + "...";
    const auto byte = static_cast<unsigned char>(text[i]);
    // C1 controls arrive as UTF-8: C2 80 to C2 9F.
    const bool c1 = byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (byte < 0x20 || byte == 0x7f || c1) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace tierpack::fetch

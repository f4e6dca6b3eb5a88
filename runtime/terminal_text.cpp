#include "runtime/terminal_text.h"

#include <unistd.h>

namespace tierpack {

std::string without_control_characters(std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 =
        c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;  // U+0080 .. U+009F
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F || c1) {
      out += kReplacement;
      if (c1) ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

TerminalText::TerminalText(std::FILE* file, Look look)
    : file_(file), dim_(look == Look::kDim), terminal_(::isatty(::fileno(file)) == 1) {}

void TerminalText::write(std::string_view text) {
  if (text.empty()) return;
  if (!open_ && terminal_ && dim_) std::fputs("\x1b[2m", file_);
  open_ = true;
  line_open_ = text.back() != '\n';
  const std::string shown = terminal_ ? without_control_characters(text) : std::string(text);
  std::fwrite(shown.data(), 1, shown.size(), file_);
  std::fflush(file_);
}

void TerminalText::end() {
  if (!open_) return;
  if (terminal_ && dim_) std::fputs("\x1b[0m", file_);
  if (line_open_) std::fputc('\n', file_);
  std::fflush(file_);
  open_ = line_open_ = false;
}

}  // namespace tierpack

// Model output on its way to the user's terminal or pipe.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace tierpack {

// `text` with every control character that a terminal could obey, escape sequences first of all, replaced by U+FFFD;
// line breaks and tabs stay. Works on whole UTF-8 characters.
std::string without_control_characters(std::string_view text);

// A stream of model text. On a terminal it is made harmless, elsewhere its bytes are left alone. Flushed piece by
// piece.
class TerminalText {
 public:
  enum class Look { kPlain, kDim };
  TerminalText(std::FILE* file, Look look);
  void write(std::string_view text);
  void end();  // ends an open line and the look; nothing if nothing was written
  bool is_terminal() const { return terminal_; }

 private:
  std::FILE* file_;
  bool dim_;
  bool terminal_;
  bool open_ = false;
  bool line_open_ = false;
};

}  // namespace tierpack

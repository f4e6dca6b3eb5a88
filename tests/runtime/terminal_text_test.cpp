#include "runtime/terminal_text.h"

#include <gtest/gtest.h>

#include <memory>

namespace tierpack {
namespace {

TEST(TerminalText, EscapeSequencesLoseTheirPower) {
  EXPECT_EQ(without_control_characters("a\x1b[31mb\x07\r\x7f"),
            "a\xEF\xBF\xBD[31mb\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(without_control_characters("\xC2\x9B"
                                       "31m"),
            "\xEF\xBF\xBD"
            "31m");  // the one-character form of ESC [
  EXPECT_EQ(without_control_characters("line\n\ttab \xC3\xA9 \xC2\xA0 \xF0\x9F\x98\x80"),
            "line\n\ttab \xC3\xA9 \xC2\xA0 \xF0\x9F\x98\x80");
}

TEST(TerminalText, APipeGetsTheBytesAndALastLineBreak) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  ASSERT_NE(file, nullptr);
  TerminalText out(file.get(), TerminalText::Look::kDim);
  out.end();
  out.write("a\x1b[1m");
  out.write("");
  out.end();
  out.end();
  out.write("b\n");
  out.end();
  std::rewind(file.get());
  char text[64];
  EXPECT_EQ(std::string(text, std::fread(text, 1, sizeof text, file.get())), "a\x1b[1m\nb\n");
}

}  // namespace
}  // namespace tierpack

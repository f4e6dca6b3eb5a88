// Text from servers and files, made safe for terminals: control characters (escape sequences begin with one, C1 controls
// arrive as UTF-8) become "\x1b".
#pragma once

#include <string>
#include <string_view>

namespace tierpack {

// Short enough for a sentence: at most `limit` bytes, then "...".
std::string printable(std::string_view text, size_t limit = 200);

// A whole message: its lines and tabs stay, and it is not cut.
std::string printable_lines(std::string_view text);

}  // namespace tierpack

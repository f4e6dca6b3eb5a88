// Text from servers, made safe for terminals and short enough for a sentence.
#pragma once

#include <string>
#include <string_view>

namespace tierpack::fetch {

// At most `limit` bytes; control characters (escape sequences begin with one) become "\x1b".
std::string printable(std::string_view text, size_t limit = 200);

}  // namespace tierpack::fetch

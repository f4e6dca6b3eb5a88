// Selection of files by pattern, with the semantics of the hub's own client so that patterns carry over: `*` matches any
// run of characters including '/', `?` one character, [seq] and [!seq] one of a set; case-sensitive; a pattern ending
// in '/' means everything below.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tierpack::fetch {

bool glob_match(std::string_view pattern, std::string_view text);

// A pattern that matches exactly `text`.
std::string glob_escape(std::string_view text);

struct Selection {
  std::vector<std::string> include = {};  // none: everything
  std::vector<std::string> exclude = {};

  bool selects(std::string_view path) const;
};

// Names most like `pattern`, for a message when nothing matched.
std::vector<std::string> nearest_names(std::string_view pattern, const std::vector<std::string>& names, size_t count);

}  // namespace tierpack::fetch

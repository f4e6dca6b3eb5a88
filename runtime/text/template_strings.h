// Python's string operations that filters and methods share. Results are views of the text or live in the heap.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/text/template_value.h"

namespace tierpack::text::jinja {

// str.strip, lstrip, rstrip: of white space, or of the characters of a string (null: white space).
std::string_view strip(std::string_view text, const Value* characters, bool left, bool right);
// str.splitlines, at all of Python's line boundaries.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
// str.replace; count < 0 is all.
std::string_view replace_in(Heap& heap, std::string_view text, std::string_view from, std::string_view to,
                            int64_t count);
// str.center '^', str.ljust '<', str.rjust '>'.
std::string_view pad(Heap& heap, std::string_view text, int64_t width, std::string_view fill, char align);
// str.split and rsplit with a separator, or at white space (empty separator); limit < 0 is none.
std::vector<std::string_view> split(Heap& heap, std::string_view text, std::string_view separator, int64_t limit,
                                    bool from_right);
// int(text, base) and float(text); false if it is none.
bool parse_integer(std::string_view text, int64_t base, int64_t& out);
bool parse_float(std::string_view text, double& out);

}  // namespace tierpack::text::jinja

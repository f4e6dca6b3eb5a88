// From tokens to a Template, by Jinja2's grammar.
#pragma once

#include <string_view>

#include "runtime/text/template_ast.h"

namespace tierpack::text::jinja {

// Throws kCorrupt for syntax errors and kUnsupported for statements, filters and tests that this program does not have,
// naming the line. Unknown filters inside a conditional fail only when they are reached, as in Jinja2.
Template parse_template(std::string_view source);

}  // namespace tierpack::text::jinja

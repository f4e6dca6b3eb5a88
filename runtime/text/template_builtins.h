// What templates find ready: filters, tests, functions, and the methods of values. Tables by name; null if there is
// none.
#pragma once

#include <string_view>

#include "runtime/text/template_ast.h"

namespace tierpack::text::jinja {

Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
Function find_function(std::string_view name);
Method find_method(const Value& self, std::string_view name);
// Methods of Python that would change a value, which no template may.
bool is_forbidden_method(const Value& self, std::string_view name);

// One table for each file of filters.
Filter find_text_filter(std::string_view name);
Filter find_sequence_filter(std::string_view name);
Method find_string_method(std::string_view name);

}  // namespace tierpack::text::jinja

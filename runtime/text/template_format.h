// Python's two ways of formatting: "%s of %d" % (a, b) and "{} of {:>5}".format(a, b), and Python's number formats.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "runtime/text/template_value.h"

namespace tierpack::text::jinja {

// `arguments` is a tuple of values, a mapping for %(name)s, or the one value.
Value format_percent(Heap& heap, const Value& format, const Value& arguments);

// A replacement field's value formatted by its specification, "{:08.3f}".
std::string format_value(Heap& heap, const Value& value, std::string_view specification);

// str.format. `field` gives the value of a field name ("", "0", "name.attribute[key]").
std::string format_fields(Heap& heap, std::string_view format, const std::function<Value(std::string_view)>& field);

}  // namespace tierpack::text::jinja

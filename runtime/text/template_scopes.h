// Which variables a block hides from the start. Jinja2 decides where a name lives by looking at a block as a whole: a
// name that is assigned before it is read there, and that no enclosing block mentions, belongs to the block and is
// undefined until the assignment runs, even if a variable of that name was given to the template.
#pragma once

#include "runtime/text/template_ast.h"

namespace tierpack::text::jinja {

// Fills in `hidden` and `otherwise_hidden` of the template and its statements.
void find_hidden_names(Template& target);

}  // namespace tierpack::text::jinja

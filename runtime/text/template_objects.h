// The objects behind values that templates call or loop with; made and used by the evaluator.
#pragma once

#include "runtime/text/template_value.h"

namespace tierpack::text::jinja {

struct Statement;
struct Scope;
class Evaluator;

// The `loop` object of one running for statement.
struct Loop {
  const Statement* statement = nullptr;
  Scope* scope = nullptr;  // where the for statement stands
  const std::vector<Value>* items = nullptr;
  size_t index = 0;
  int64_t depth = 0;
  Value last_changed;  // of loop.changed
  bool has_changed = false;
};

enum class CallableKind : uint8_t { kMacro, kMethod, kFunction, kCycler, kJoiner };

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

using Method = Value (*)(Evaluator& evaluator, const Value& self, Arguments& arguments);
using Function = Value (*)(Evaluator& evaluator, Arguments& arguments);

struct Callable {
  CallableKind kind = CallableKind::kFunction;
  std::string_view name;
  const Statement* macro = nullptr;  // kMacro: its definition, and where it stands
  Scope* scope = nullptr;
  Value self;  // kMethod: what it is bound to
  Method method = nullptr;
  Function function = nullptr;
  mutable List* items = nullptr;  // kCycler
  mutable size_t next = 0;        // kCycler: position; kJoiner: calls so far
};

}  // namespace tierpack::text::jinja

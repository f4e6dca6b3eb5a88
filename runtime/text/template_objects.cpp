// The part of the evaluator that looks into objects and calls them.
#include "runtime/text/template_objects.h"

#include <algorithm>
#include <utility>

#include "runtime/text/template_builtins.h"
#include "runtime/text/template_evaluator.h"

namespace tierpack::text::jinja {

namespace {

const char* owner_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone: return "None";
    case Kind::kBool: return "bool object";
    case Kind::kInteger:
    case Kind::kBigInteger: return "int object";
    case Kind::kFloat: return "float object";
    case Kind::kString: return "str object";
    case Kind::kDict: return "dict object";
    case Kind::kNamespace: return "namespace object";
    case Kind::kLoop: return "loop object";
    case Kind::kList:
      switch (value.as_list().kind) {
        case ListKind::kList: return "list object";
        case ListKind::kTuple: return "tuple object";
        case ListKind::kRange: return "range object";
        case ListKind::kIterator: return "generator object";
        default: return "dict view object";
      }
    default: return "function object";
  }
}

Value missing_attribute(const Value& object, std::string_view name) {
  return Value::undefined(UndefinedKind::kAttribute, name, owner_name(object));
}

Value unsafe_attribute(Heap& heap, const Value& object, std::string_view name) {
  return Value::undefined(UndefinedKind::kHint, heap.store("access to attribute '" + std::string(name) + "' of '" +
                                                           type_name(object) + "' object is unsafe."));
}

Value cycle(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  if (arguments.positional.empty()) throw TemplateError("no items for cycling given");
  static_cast<void>(evaluator);
  return arguments.positional[self.as_loop().index % arguments.positional.size()];
}

Value changed(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  Loop& loop = self.as_loop();
  List* now = evaluator.heap().new_list(ListKind::kTuple);
  for (const Value& one : arguments.positional) evaluator.heap().push(*now, one);
  const bool same = loop.has_changed && equal(evaluator.heap(), loop.last_changed, Value::list(now));
  loop.last_changed = Value::list(now);
  loop.has_changed = true;
  return Value::boolean(!same);
}

Value next_of_cycler(Evaluator&, const Value& self, Arguments&) {
  const Callable& cycler = self.as_callable();
  const Value out = cycler.items->items[cycler.next];
  cycler.next = (cycler.next + 1) % cycler.items->items.size();
  return out;
}

Value reset_cycler(Evaluator&, const Value& self, Arguments&) {
  self.as_callable().next = 0;
  return Value::none();
}

}  // namespace

Value Evaluator::loop_attribute(Loop& loop, std::string_view name) {
  const auto size = static_cast<int64_t>(loop.items->size());
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(size - index);
  if (name == "revindex0") return Value::integer(size - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == size);
  if (name == "length") return Value::integer(size);
  if (name == "depth") return Value::integer(loop.depth + 1);
  if (name == "depth0") return Value::integer(loop.depth);
  if (name == "previtem") {
    if (index == 0) return Value::undefined(UndefinedKind::kHint, "there is no previous item");
    return (*loop.items)[loop.index - 1];
  }
  if (name == "nextitem") {
    if (index + 1 >= size) return Value::undefined(UndefinedKind::kHint, "there is no next item");
    return (*loop.items)[loop.index + 1];
  }
  if (name == "cycle" || name == "changed") {
    Callable* method = new_callable();
    heap_.charge(sizeof(Callable));
    method->kind = CallableKind::kMethod;
    method->name = name;
    method->self = Value::loop(&loop);
    method->method = name == "cycle" ? cycle : changed;
    return Value::callable(method);
  }
  return missing_attribute(Value::loop(&loop), name);
}

Value Evaluator::callable_attribute(const Callable& callable, std::string_view name) {
  if (callable.kind == CallableKind::kMacro && name == "name") return text(callable.name);
  if (callable.kind == CallableKind::kCycler) {
    if (name == "current") return callable.items->items[callable.next];
    if (name == "next" || name == "reset") {
      Callable* method = new_callable();
      heap_.charge(sizeof(Callable));
      method->kind = CallableKind::kMethod;
      method->name = name;
      method->self = Value::callable(&callable);
      method->method = name == "next" ? next_of_cycler : reset_cycler;
      return Value::callable(method);
    }
  }
  return missing_attribute(Value::callable(&callable), name);
}

Value Evaluator::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(object);
  if (const Method method = find_method(object, name)) {
    Callable* bound = new_callable();
    heap_.charge(sizeof(Callable));
    bound->kind = CallableKind::kMethod;
    bound->name = name;
    bound->self = object;
    bound->method = method;
    return Value::callable(bound);
  }
  if (is_forbidden_method(object, name)) return unsafe_attribute(heap_, object, name);
  switch (object.kind()) {
    case Kind::kDict:
      if (const Value* value = object.as_dict().find(name)) return *value;
      break;
    case Kind::kNamespace:
      if (const Value* value = object.as_dict().find(name)) {
        return name.starts_with('_') ? unsafe_attribute(heap_, object, name) : *value;
      }
      break;
    case Kind::kLoop: return loop_attribute(object.as_loop(), name);
    case Kind::kCallable: return callable_attribute(object.as_callable(), name);
    case Kind::kList: {
      const List& list = object.as_list();
      if (list.kind == ListKind::kRange && (name == "start" || name == "stop" || name == "step")) {
        return Value::integer(name == "start" ? list.start : name == "stop" ? list.stop : list.step);
      }
      if (list.is_group && name == "grouper") return list.items[0];
      if (list.is_group && name == "list") return list.items[1];
      break;
    }
    default: break;
  }
  return missing_attribute(object, name);
}

Value Evaluator::item(const Value& object, const Value& key) {
  if (object.is_undefined()) fail_undefined(object);
  const bool is_sequence = object.is_string() || (object.is(Kind::kList) && object.as_list().kind <= ListKind::kRange);
  if (is_sequence && key.is_integral()) {
    Value out;
    if (element(object, key.as_integer(), out)) return out;
  }
  if (object.is(Kind::kDict)) {
    const bool hashable = !key.is(Kind::kDict) && !(key.is(Kind::kList) && key.as_list().kind != ListKind::kTuple);
    const Value* value = hashable ? object.as_dict().find(key) : nullptr;
    if (value != nullptr) return *value;
  }
  if (key.is_string()) {
    // What is no element may be an attribute; a dictionary's elements have been looked at.
    if (!object.is(Kind::kDict)) return attribute(object, key.as_string());
    if (find_method(object, key.as_string()) != nullptr || is_forbidden_method(object, key.as_string())) {
      return attribute(object, key.as_string());
    }
    return missing_attribute(object, key.as_string());
  }
  return Value::undefined(UndefinedKind::kHint,
                          heap_.store(std::string(owner_name(object)) + " has no element " + repr(heap_, key)));
}

Value Evaluator::call(const Value& callee, Arguments& arguments) {
  if (callee.is_undefined()) fail_undefined(callee);
  if (callee.is(Kind::kLoop)) return call_loop(callee.as_loop(), arguments);
  if (callee.is(Kind::kCallable)) {
    const Callable& callable = callee.as_callable();
    switch (callable.kind) {
      case CallableKind::kMacro: return call_macro(callable, arguments);
      case CallableKind::kMethod: return callable.method(*this, callable.self, arguments);
      case CallableKind::kFunction: return callable.function(*this, arguments);
      case CallableKind::kJoiner:
        if (callable.next++ == 0) return Value::string("");
        return callable.self;
      case CallableKind::kCycler: break;
    }
  }
  throw TemplateError(std::string("'") + type_name(callee) + "' object is not callable");
}

Value Evaluator::call_loop(const Loop& loop, Arguments& arguments) {
  if (!loop.statement->recursive) {
    throw TemplateError("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    throw TemplateError("a recursive loop takes one argument");
  }
  std::string out;
  std::string* const outer = std::exchange(out_, &out);
  run_loop(*loop.statement, *loop.scope, arguments.positional[0], loop.depth + 1);
  out_ = outer;
  return text(out);
}

Value Evaluator::call_macro(const Callable& macro, Arguments& arguments) {
  const Statement& definition = *macro.macro;
  const std::string name(macro.name);
  Scope& scope = new_scope(*macro.scope, definition.hidden);
  auto& named = arguments.named;
  const auto take_named = [&](std::string_view key, Value& out) {
    const auto at = std::find_if(named.begin(), named.end(), [&](const auto& one) { return one.first == key; });
    if (at == named.end()) return false;
    out = at->second;
    named.erase(at);
    return true;
  };

  // Arguments first, then the defaults of the others, which may refer to parameters before them.
  const size_t count = definition.parameters.size();
  std::vector<bool> given(count);
  for (size_t i = 0; i < count; ++i) {
    const Parameter& parameter = definition.parameters[i];
    Value value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
      given[i] = true;
    } else {
      given[i] = take_named(template_.names[parameter.name], value);
    }
    if (given[i]) set_variable(scope, parameter.name, value);
  }
  if (definition.uses_caller) {
    Value caller = Value::undefined(UndefinedKind::kHint, "No caller defined");
    take_named("caller", caller);
    set_variable(scope, template_.name_ids.at("caller"), caller);
  }
  if (definition.uses_named) {
    Dict* rest = heap_.new_dict();
    for (const auto& [key, value] : named) heap_.set(*rest, Value::string(key), value);
    set_variable(scope, template_.name_ids.at("kwargs"), Value::dict(rest));
  } else if (!named.empty()) {
    throw TemplateError("macro '" + name + "' takes no keyword argument '" + std::string(named.front().first) + "'");
  }
  if (definition.uses_positional) {
    List* rest = heap_.new_list(ListKind::kTuple);
    for (size_t i = count; i < arguments.positional.size(); ++i) heap_.push(*rest, arguments.positional[i]);
    set_variable(scope, template_.name_ids.at("varargs"), Value::list(rest));
  } else if (arguments.positional.size() > count) {
    throw TemplateError("macro '" + name + "' takes not more than " + std::to_string(count) + " argument(s)");
  }
  for (size_t i = 0; i < count; ++i) {
    if (given[i]) continue;
    const Parameter& parameter = definition.parameters[i];
    set_variable(
        scope, parameter.name,
        parameter.fallback
            ? evaluate(*parameter.fallback, scope)
            : Value::undefined(UndefinedKind::kHint,
                               heap_.store("parameter '" + template_.names[parameter.name] + "' was not provided")));
  }
  return capture(definition.body, scope);
}

}  // namespace tierpack::text::jinja

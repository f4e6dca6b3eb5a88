// Functions that templates find ready, and the methods of lists and dictionaries.
#include <algorithm>
#include <ctime>
#include <string>
#include <utility>

#include "base/error.h"
#include "runtime/text/template_arguments.h"
#include "runtime/text/template_builtins.h"
#include "runtime/text/template_evaluator.h"

namespace tierpack::text::jinja {

namespace {

constexpr int64_t kMaxRange = 100'000;  // Jinja2's sandbox has the same

Value range(Evaluator& evaluator, Arguments& arguments) {
  const Parameters parameters("range", arguments, {"start", "stop", "step"}, 1);
  const int64_t start = parameters.has(1) ? parameters.integer(0) : 0;
  const int64_t stop = parameters.has(1) ? parameters.integer(1) : parameters.integer(0);
  const int64_t step = parameters.integer(2, 1);
  if (step == 0) throw TemplateError("range() arg 3 must not be zero");
  List* out = evaluator.heap().new_list(ListKind::kRange);
  out->start = start;
  out->stop = stop;
  out->step = step;
  int64_t at = start;
  while (step > 0 ? at < stop : at > stop) {
    if (out->items.size() >= kMaxRange) {
      throw TemplateError("range of more than " + std::to_string(kMaxRange) + " items", false);
    }
    evaluator.heap().push(*out, Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return Value::list(out);
}

// dict() and namespace(): an optional mapping or sequence of pairs, then names.
Dict* collect(Evaluator& evaluator, const char* callee, const Arguments& arguments) {
  if (arguments.positional.size() > 1) throw TemplateError(std::string(callee) + " expected at most 1 argument");
  Heap& heap = evaluator.heap();
  Dict* out = heap.new_dict();
  for (const Value& from : arguments.positional) {
    if (from.is_undefined()) fail_undefined(from);
    if (from.is(Kind::kDict)) {
      for (const auto& [key, value] : from.as_dict().entries()) heap.set(*out, key, value);
      continue;
    }
    for (const Value& entry : items_of(heap, from)->items) {
      const List* pair = items_of(heap, entry);
      if (pair->items.size() != 2) throw TemplateError(std::string(callee) + " needs pairs of key and value");
      hash_key(pair->items[0]);
      heap.set(*out, pair->items[0], pair->items[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) heap.set(*out, Value::string(name), value);
  return out;
}

Value dict(Evaluator& evaluator, Arguments& arguments) { return Value::dict(collect(evaluator, "dict", arguments)); }

Value make_namespace(Evaluator& evaluator, Arguments& arguments) {
  return Value::namespace_of(collect(evaluator, "namespace", arguments));
}

Value cycler(Evaluator& evaluator, Arguments& arguments) {
  if (arguments.positional.empty()) throw TemplateError("at least one item has to be provided", false);
  Callable* out = evaluator.new_callable();
  evaluator.heap().charge(sizeof(Callable));
  out->kind = CallableKind::kCycler;
  out->name = "cycler";
  out->items = evaluator.heap().new_list(ListKind::kTuple);
  for (const Value& one : arguments.positional) evaluator.heap().push(*out->items, one);
  return Value::callable(out);
}

Value joiner(Evaluator& evaluator, Arguments& arguments) {
  const Parameters parameters("joiner", arguments, {"sep"});
  Callable* out = evaluator.new_callable();
  evaluator.heap().charge(sizeof(Callable));
  out->kind = CallableKind::kJoiner;
  out->name = "joiner";
  out->self = parameters.has(0) ? parameters.value(0) : Value::string(", ");
  return Value::callable(out);
}

Value raise_exception(Evaluator& evaluator, Arguments& arguments) {
  const Parameters parameters("raise_exception", arguments, {"message"}, 1);
  throw Error(ErrorKind::kUsage, std::string(evaluator.to_text(parameters.value(0))));
}

Value format_now(Evaluator& evaluator, Arguments& arguments) {
  const Parameters parameters("strftime_now", arguments, {"format"}, 1);
  const std::string format(parameters.text(0));
  if (format.size() > 1000) throw TemplateError("strftime_now: the format is too long", false);
  if (format.empty()) return Value::string("");
  char buffer[16384];
  const size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &evaluator.now());
  return evaluator.text({buffer, size});
}

constexpr std::pair<std::string_view, Function> kFunctions[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", make_namespace},
    {"cycler", cycler},
    {"joiner", joiner},
    {"raise_exception", raise_exception},
    {"strftime_now", format_now},
};

// Methods of dictionaries.

Value view(Evaluator& evaluator, const Value& self, ListKind kind) {
  Heap& heap = evaluator.heap();
  List* out = heap.new_list(kind);
  heap.work(self.as_dict().size());
  for (const auto& [key, value] : self.as_dict().entries()) {
    if (kind == ListKind::kDictItems) {
      List* pair = heap.new_list(ListKind::kTuple);
      heap.push(*pair, key);
      heap.push(*pair, value);
      heap.push(*out, Value::list(pair));
    } else {
      heap.push(*out, kind == ListKind::kDictKeys ? key : value);
    }
  }
  return Value::list(out);
}

Value dict_items(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters none("items", arguments, {});
  return view(evaluator, self, ListKind::kDictItems);
}
Value dict_keys(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters none("keys", arguments, {});
  return view(evaluator, self, ListKind::kDictKeys);
}
Value dict_values(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters none("values", arguments, {});
  return view(evaluator, self, ListKind::kDictValues);
}

Value dict_get(Evaluator&, const Value& self, Arguments& arguments) {
  if (!arguments.named.empty()) throw TemplateError("dict.get() takes no keyword arguments");
  const Parameters parameters("get", arguments, {"key", "default"}, 1);
  hash_key(parameters.value(0));
  if (const Value* value = self.as_dict().find(parameters.value(0))) return *value;
  return parameters.has(1) ? parameters.value(1) : Value::none();
}

Value dict_copy(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters none("copy", arguments, {});
  Arguments from;
  from.positional.push_back(self);
  return dict(evaluator, from);
}

// Methods of lists and tuples.

Value list_count(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters parameters("count", arguments, {"value"}, 1);
  const auto& items = self.as_list().items;
  return Value::integer(std::count_if(
      items.begin(), items.end(), [&](const Value& one) { return equal(evaluator.heap(), one, parameters.value(0)); }));
}

Value list_index(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters parameters("index", arguments, {"value", "start", "stop"}, 1);
  const auto& items = self.as_list().items;
  const auto size = static_cast<int64_t>(items.size());
  const auto clamped = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  for (int64_t i = clamped(parameters.integer(1, 0)); i < clamped(parameters.integer(2, size)); ++i) {
    if (equal(evaluator.heap(), items[static_cast<size_t>(i)], parameters.value(0))) return Value::integer(i);
  }
  throw TemplateError(repr(evaluator.heap(), parameters.value(0)) + " is not in list");
}

Value list_copy(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Parameters none("copy", arguments, {});
  return Value::list(items_of(evaluator.heap(), self));
}

constexpr std::pair<std::string_view, Method> kDictMethods[] = {
    {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}, {"get", dict_get}, {"copy", dict_copy},
};
constexpr std::pair<std::string_view, Method> kListMethods[] = {
    {"count", list_count},
    {"index", list_index},
    {"copy", list_copy},
};

template <typename Table>
auto find_in(const Table& table, std::string_view name) {
  const auto found =
      std::find_if(std::begin(table), std::end(table), [&](const auto& one) { return one.first == name; });
  return found == std::end(table) ? nullptr : found->second;
}

}  // namespace

Function find_function(std::string_view name) { return find_in(kFunctions, name); }

Method find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::kString: return find_string_method(name);
    case Kind::kDict: return find_in(kDictMethods, name);
    case Kind::kList:
      if (self.as_list().kind > ListKind::kTuple || (self.as_list().kind == ListKind::kTuple && name == "copy"))
        return nullptr;
      return find_in(kListMethods, name);
    default: return nullptr;
  }
}

bool is_forbidden_method(const Value& self, std::string_view name) {
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update", "fromkeys"};
  static constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
  if (self.is(Kind::kDict)) return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  return self.is(Kind::kList) && self.as_list().kind == ListKind::kList &&
         std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
}

}  // namespace tierpack::text::jinja

// Jinja2's filters that pick from, order and rearrange sequences.
#include <algorithm>
#include <string>
#include <utility>

#include "runtime/text/template_arguments.h"
#include "runtime/text/template_builtins.h"
#include "runtime/text/template_evaluator.h"
#include "runtime/text/template_strings.h"
#include "runtime/text/unicode.h"
#include "runtime/text/utf8.h"

namespace tierpack::text::jinja {

namespace {

// Looks up "a.b.0" in an item, step by step; several paths separated by commas give a list of values.
class AttributePath {
 public:
  AttributePath(Evaluator& evaluator, const Value& path, bool ignore_case, const Value* fallback = nullptr)
      : evaluator_(evaluator), ignore_case_(ignore_case), fallback_(fallback) {
    if (path.is(Kind::kNone)) return;
    if (!path.is_string()) {
      parts_.push_back(path);
      return;
    }
    for (const std::string_view part : split(evaluator.heap(), path.as_string(), ".", -1, false)) {
      const bool number =
          !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
      int64_t index = 0;
      parts_.push_back(number && parse_integer(part, 10, index) ? Value::integer(index)
                                                                : Value::string(evaluator.heap().store(part)));
    }
  }

  Value of(Value item) const {
    for (const Value& part : parts_) {
      item = evaluator_.item(item, part);
      if (item.is_undefined() && fallback_ != nullptr && !fallback_->is(Kind::kNone)) item = *fallback_;
    }
    if (ignore_case_ && item.is_string()) return evaluator_.text(to_lower(item.as_string()), item.is_markup());
    return item;
  }

 private:
  Evaluator& evaluator_;
  std::vector<Value> parts_;
  bool ignore_case_;
  const Value* fallback_;
};

// An iterator over what `produce(list)` puts into a list. A failure on the way is kept for whoever iterates that far.
template <typename Produce>
Value iterator_of(Evaluator& evaluator, Produce produce) {
  List* out = evaluator.heap().new_list(ListKind::kIterator);
  try {
    produce(*out);
  } catch (const TemplateError& error) {
    out->failure = error.what();
  }
  return Value::list(out);
}

void sort_by_keys(Evaluator& evaluator, std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
  // Comparing may fail, which std::sort allows. Reversed sorting keeps equal items in order as well.
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? compare(evaluator.heap(), b.first, a.first) < 0 : compare(evaluator.heap(), a.first, b.first) < 0;
  });
}

Value length_of(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("length", arguments, {});
  if (value.is_string()) evaluator.heap().work_on(value.as_string());
  return Value::integer(length(value));
}

Value first(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("first", arguments, {});
  if (value.is(Kind::kList) && value.as_list().kind == ListKind::kIterator) {
    List& list = value.as_list();
    if (list.next < list.items.size()) return list.items[list.next++];
    if (!list.failure.empty()) throw TemplateError(list.failure);
  } else {
    const List* items = items_of(evaluator.heap(), value);
    if (!items->items.empty()) return items->items.front();
  }
  return Value::undefined(UndefinedKind::kHint, "No first item, sequence was empty.");
}

Value last(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("last", arguments, {});
  if (value.is(Kind::kList) && value.as_list().kind == ListKind::kIterator) {
    throw TemplateError("'generator' object is not reversible");
  }
  const List* items = items_of(evaluator.heap(), value);
  if (!items->items.empty()) return items->items.back();
  return Value::undefined(UndefinedKind::kHint, "No last item, sequence was empty.");
}

Value list(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("list", arguments, {});
  return Value::list(items_of(evaluator.heap(), value));
}

Value items(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("items", arguments, {});
  return iterator_of(evaluator, [&](List& out) {
    if (value.is_undefined()) return;
    if (!value.is(Kind::kDict)) throw TemplateError("Can only get item pairs from a mapping.");
    for (const auto& [key, one] : value.as_dict().entries()) {
      List* pair = evaluator.heap().new_list(ListKind::kTuple);
      evaluator.heap().push(*pair, key);
      evaluator.heap().push(*pair, one);
      evaluator.heap().push(out, Value::list(pair));
    }
  });
}

Value join(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters parameters("join", arguments, {"d", "attribute"});
  const std::string_view separator = parameters.has(0) ? evaluator.to_text(parameters.value(0)) : std::string_view();
  const AttributePath path(evaluator, parameters.has(1) ? parameters.value(1) : Value::none(), false);
  std::string_view out;
  bool first_item = true;
  for (const Value& one : items_of(evaluator.heap(), value)->items) {
    if (!first_item) out = evaluator.heap().join(out, separator);
    first_item = false;
    out = evaluator.heap().join(out, evaluator.to_text(path.of(one)));
  }
  return Value::string(out);
}

Value default_value(Evaluator&, const Value& value, Arguments& arguments) {
  const Parameters parameters("default", arguments, {"default_value", "boolean"});
  const bool replaced = value.is_undefined() || (parameters.flag(1) && !is_true(value));
  if (!replaced) return value;
  return parameters.has(0) ? parameters.value(0) : Value::string("");
}

Value reverse(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters none("reverse", arguments, {});
  List* items = items_of(evaluator.heap(), value);
  std::reverse(items->items.begin(), items->items.end());
  if (!value.is_string()) {
    const bool one_by_one = !(value.is(Kind::kList) && value.as_list().kind == ListKind::kIterator);
    items->kind = one_by_one ? ListKind::kIterator : ListKind::kList;
    return Value::list(items);
  }
  std::string text;
  for (const Value& one : items->items) text += one.as_string();
  return evaluator.text(text, value.is_markup());
}

Value sort(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters parameters("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool ignore_case = !parameters.flag(1);
  std::vector<AttributePath> paths;
  const Value path = parameters.has(2) ? parameters.value(2) : Value::none();
  if (path.is_string()) {
    for (const std::string_view one : split(evaluator.heap(), path.as_string(), ",", -1, false)) {
      paths.emplace_back(evaluator, Value::string(one), ignore_case);
    }
  } else {
    paths.emplace_back(evaluator, path, ignore_case);
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& one : items_of(evaluator.heap(), value)->items) {
    List* key = evaluator.heap().new_list();
    for (const AttributePath& each : paths) evaluator.heap().push(*key, each.of(one));
    keyed.emplace_back(Value::list(key), one);
  }
  sort_by_keys(evaluator, keyed, parameters.flag(0));
  List* out = evaluator.heap().new_list();
  for (const auto& [key, one] : keyed) evaluator.heap().push(*out, one);
  return Value::list(out);
}

Value dict_sort(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters parameters("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string_view by = parameters.text(1, "key");
  if (by != "key" && by != "value") throw TemplateError("You can only sort by either \"key\" or \"value\"", false);
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is(Kind::kDict))
    throw TemplateError(std::string("'") + type_name(value) + "' object has no attribute 'items'");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, one] : value.as_dict().entries()) {
    List* pair = evaluator.heap().new_list(ListKind::kTuple);
    evaluator.heap().push(*pair, key);
    evaluator.heap().push(*pair, one);
    Value order = by == "key" ? key : one;
    if (!parameters.flag(0) && order.is_string()) order = evaluator.text(to_lower(order.as_string()));
    keyed.emplace_back(order, Value::list(pair));
  }
  sort_by_keys(evaluator, keyed, parameters.flag(2));
  List* out = evaluator.heap().new_list();
  for (const auto& [key, pair] : keyed) evaluator.heap().push(*out, pair);
  return Value::list(out);
}

Value unique(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters parameters("unique", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(evaluator, parameters.has(1) ? parameters.value(1) : Value::none(), !parameters.flag(0));
  return iterator_of(evaluator, [&](List& out) {
    Dict* seen = evaluator.heap().new_dict();
    for (const Value& one : items_of(evaluator.heap(), value)->items) {
      const Value key = path.of(one);
      hash_key(key);
      evaluator.heap().work(1);
      if (seen->find(key) != nullptr) continue;
      evaluator.heap().set(*seen, key, Value::none());
      evaluator.heap().push(out, one);
    }
  });
}

Value extreme(Evaluator& evaluator, const Value& value, Arguments& arguments, bool largest) {
  const Parameters parameters(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(evaluator, parameters.has(1) ? parameters.value(1) : Value::none(), !parameters.flag(0));
  const List* items = items_of(evaluator.heap(), value);
  if (items->items.empty()) return Value::undefined(UndefinedKind::kHint, "No aggregated item, sequence was empty.");
  Value best = items->items[0], best_key = path.of(best);
  for (size_t i = 1; i < items->items.size(); ++i) {
    const Value key = path.of(items->items[i]);
    const auto order = compare(evaluator.heap(), key, best_key);
    if (largest ? order > 0 : order < 0) best = items->items[i], best_key = key;
  }
  return best;
}

Value min(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  return extreme(evaluator, value, arguments, false);
}
Value max(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  return extreme(evaluator, value, arguments, true);
}

Value sum(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters parameters("sum", arguments, {"attribute", "start"});
  const AttributePath path(evaluator, parameters.has(0) ? parameters.value(0) : Value::none(), false);
  Value total = parameters.has(1) ? parameters.value(1) : Value::integer(0);
  if (total.is_string()) throw TemplateError("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& one : items_of(evaluator.heap(), value)->items) {
    total = add(evaluator.heap(), total, path.of(one));
  }
  return total;
}

void map_into(Evaluator& evaluator, const Value& value, const Arguments& arguments, List& out) {
  if (!is_true(value)) return;
  if (arguments.positional.empty()) {
    const Parameters parameters("map", arguments, {"attribute", "default"});
    if (!parameters.has(0)) throw TemplateError("map requires a filter argument", false);
    const AttributePath path(evaluator, parameters.value(0), false, parameters.has(1) ? &parameters.value(1) : nullptr);
    for (const Value& one : items_of(evaluator.heap(), value)->items) evaluator.heap().push(out, path.of(one));
    return;
  }
  const Value& name = arguments.positional[0];
  const Filter filter = name.is_string() ? find_filter(name.as_string()) : nullptr;
  if (filter == nullptr) throw TemplateError("no filter named " + repr(evaluator.heap(), name) + " found", false);
  for (const Value& one : items_of(evaluator.heap(), value)->items) {
    Arguments rest;
    rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
    rest.named = arguments.named;
    evaluator.heap().push(out, filter(evaluator, one, rest));
  }
}

Value map(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  return iterator_of(evaluator, [&](List& out) { map_into(evaluator, value, arguments, out); });
}

// select, reject, selectattr, rejectattr: items for which a test, of them or of an attribute, gives `wanted`.
void pick_into(Evaluator& evaluator, const Value& value, const Arguments& arguments, bool wanted, bool by_attribute,
               List& out) {
  if (!is_true(value)) return;
  const auto& given = arguments.positional;
  if (by_attribute && given.empty()) throw TemplateError("Missing parameter for attribute name", false);
  const AttributePath path(evaluator, by_attribute ? given[0] : Value::none(), false);
  const size_t at = by_attribute ? 1 : 0;
  Test test = nullptr;
  if (given.size() > at) {
    test = given[at].is_string() ? find_test(given[at].as_string()) : nullptr;
    if (test == nullptr) throw TemplateError("no test named " + repr(evaluator.heap(), given[at]) + " found", false);
  }
  for (const Value& one : items_of(evaluator.heap(), value)->items) {
    const Value subject = path.of(one);
    bool holds = false;
    if (test == nullptr) {
      holds = is_true(subject);
    } else {
      Arguments rest;
      rest.positional.assign(given.begin() + static_cast<ptrdiff_t>(at) + 1, given.end());
      rest.named = arguments.named;
      holds = test(evaluator, subject, rest);
    }
    if (holds == wanted) evaluator.heap().push(out, one);
  }
}

Value pick(Evaluator& evaluator, const Value& value, const Arguments& arguments, bool wanted, bool by_attribute) {
  return iterator_of(evaluator, [&](List& out) { pick_into(evaluator, value, arguments, wanted, by_attribute, out); });
}

Value select(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  return pick(evaluator, value, arguments, true, false);
}
Value reject(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  return pick(evaluator, value, arguments, false, false);
}
Value select_attribute(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  return pick(evaluator, value, arguments, true, true);
}
Value reject_attribute(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  return pick(evaluator, value, arguments, false, true);
}

Value group_by(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters parameters("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const Value* fallback = parameters.has(1) ? &parameters.value(1) : nullptr;
  const AttributePath order(evaluator, parameters.value(0), !parameters.flag(2), fallback);
  const AttributePath shown(evaluator, parameters.value(0), false, fallback);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& one : items_of(evaluator.heap(), value)->items) keyed.emplace_back(order.of(one), one);
  sort_by_keys(evaluator, keyed, false);
  List* out = evaluator.heap().new_list();
  for (size_t i = 0; i < keyed.size();) {
    List* members = evaluator.heap().new_list();
    size_t end = i;
    while (end < keyed.size() && equal(evaluator.heap(), keyed[end].first, keyed[i].first)) {
      evaluator.heap().push(*members, keyed[end++].second);
    }
    List* group = evaluator.heap().new_list(ListKind::kTuple);
    group->is_group = true;
    evaluator.heap().push(*group, shown.of(keyed[i].second));
    evaluator.heap().push(*group, Value::list(members));
    evaluator.heap().push(*out, Value::list(group));
    i = end;
  }
  return Value::list(out);
}

Value batch(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters parameters("batch", arguments, {"linecount", "fill_with"}, 1);
  return iterator_of(evaluator, [&](List& out) {
    const int64_t count = parameters.integer(0);
    List* row = evaluator.heap().new_list();
    for (const Value& one : items_of(evaluator.heap(), value)->items) {
      if (static_cast<int64_t>(row->items.size()) == count) {
        evaluator.heap().push(out, Value::list(row));
        row = evaluator.heap().new_list();
      }
      evaluator.heap().push(*row, one);
    }
    if (row->items.empty()) return;
    while (parameters.is_set(1) && static_cast<int64_t>(row->items.size()) < count) {
      evaluator.heap().push(*row, parameters.value(1));
    }
    evaluator.heap().push(out, Value::list(row));
  });
}

Value slices(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters parameters("slice", arguments, {"slices", "fill_with"}, 1);
  return iterator_of(evaluator, [&](List& out) {
    const int64_t count = parameters.integer(0);
    const List* items = items_of(evaluator.heap(), value);
    if (count == 0) throw TemplateError("integer division or modulo by zero", false);
    const auto size = static_cast<int64_t>(items->items.size());
    int64_t at = 0;
    for (int64_t i = 0; i < count; ++i) {
      evaluator.heap().work(1);
      const bool extra = i < size % count;
      List* row = evaluator.heap().new_list();
      for (int64_t n = size / count + extra; n > 0; --n) {
        evaluator.heap().push(*row, items->items[static_cast<size_t>(at++)]);
      }
      if (parameters.is_set(1) && !extra) evaluator.heap().push(*row, parameters.value(1));
      evaluator.heap().push(out, Value::list(row));
    }
  });
}

Value attribute(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  const Parameters parameters("attr", arguments, {"name"}, 1);
  const std::string_view name = parameters.text(0);
  if (value.is(Kind::kDict) && find_method(value, name) == nullptr && !is_forbidden_method(value, name)) {
    return Value::undefined(UndefinedKind::kAttribute, name, "dict object");  // elements are no attributes
  }
  return evaluator.attribute(value, name);
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"attr", attribute},
    {"batch", batch},
    {"count", length_of},
    {"d", default_value},
    {"default", default_value},
    {"dictsort", dict_sort},
    {"first", first},
    {"groupby", group_by},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length_of},
    {"list", list},
    {"map", map},
    {"max", max},
    {"min", min},
    {"reject", reject},
    {"rejectattr", reject_attribute},
    {"reverse", reverse},
    {"select", select},
    {"selectattr", select_attribute},
    {"slice", slices},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kFilters), std::end(kFilters), [&](const auto& one) { return one.first == name; });
  return found == std::end(kFilters) ? nullptr : found->second;
}

}  // namespace tierpack::text::jinja

// Jinja2's tests: `value is name`.
#include <algorithm>
#include <string>
#include <utility>

#include "runtime/text/template_arguments.h"
#include "runtime/text/template_builtins.h"
#include "runtime/text/template_evaluator.h"
#include "runtime/text/unicode.h"
#include "runtime/text/utf8.h"

namespace tierpack::text::jinja {

namespace {

void expect_none(const char* name, const Arguments& arguments) { const Parameters none(name, arguments, {}); }

const Value& only_argument(const char* name, const Arguments& arguments) {
  return Parameters(name, arguments, {"other"}, 1).value(0);
}

int64_t rest(Evaluator& evaluator, const Value& value, const Value& by) {
  const Value out = modulo(evaluator.heap(), value, by);
  return out.is(Kind::kFloat) ? (out.as_double() == 0 ? 0 : out.as_double() == 1 ? 1 : 2) : out.as_integer();
}

// At least one cased character, and none of the other case.
bool has_only_case(std::string_view text, CharacterClass wanted, CharacterClass other) {
  bool found = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint code = decode_utf8(text, at);
    if (is_in(other, code.value)) return false;
    found |= is_in(wanted, code.value);
    at += code.length;
  }
  return found;
}

template <bool (*kPredicate)(const Value&)>
bool check(Evaluator&, const Value& value, Arguments& arguments) {
  expect_none("test", arguments);
  return kPredicate(value);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is(Kind::kNone); }
bool is_boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_false(const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool is_exactly_true(const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
bool is_integer(const Value& v) { return v.is(Kind::kInteger) || v.is(Kind::kBigInteger); }
bool is_float(const Value& v) { return v.is(Kind::kFloat); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is(Kind::kDict); }
bool is_number(const Value& v) { return v.is_number() || v.is(Kind::kBigInteger); }
// An undefined value is callable too; calling it fails.
bool is_callable(const Value& v) { return v.is(Kind::kCallable) || v.is(Kind::kLoop) || v.is_undefined(); }
bool is_escaped(const Value& v) { return v.is_string() && v.is_markup(); }
// Sized and subscriptable, which undefined values are as well.
bool is_sequence(const Value& v) {
  return v.is_string() || v.is(Kind::kDict) || v.is_undefined() ||
         (v.is(Kind::kList) && v.as_list().kind <= ListKind::kRange);
}

bool odd(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  expect_none("odd", arguments);
  return rest(evaluator, value, Value::integer(2)) == 1;
}
bool even(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  expect_none("even", arguments);
  return rest(evaluator, value, Value::integer(2)) == 0;
}
bool divisible_by(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  return rest(evaluator, value, Parameters("divisibleby", arguments, {"num"}, 1).value(0)) == 0;
}
bool lower(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  expect_none("lower", arguments);
  return has_only_case(evaluator.to_text(value), CharacterClass::kLower, CharacterClass::kUpper);
}
bool upper(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  expect_none("upper", arguments);
  return has_only_case(evaluator.to_text(value), CharacterClass::kUpper, CharacterClass::kLower);
}
bool same_as(Evaluator&, const Value& value, Arguments& arguments) {
  return value.same_as(only_argument("sameas", arguments));
}
bool iterable(Evaluator&, const Value& value, Arguments& arguments) {
  expect_none("iterable", arguments);
  return is_iterable(value);
}
bool in(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  return contains(evaluator.heap(), Parameters("in", arguments, {"seq"}, 1).value(0), value);
}
bool is_filter(Evaluator&, const Value& value, Arguments& arguments) {
  expect_none("filter", arguments);
  return value.is_string() && find_filter(value.as_string()) != nullptr;
}
bool is_test(Evaluator&, const Value& value, Arguments& arguments) {
  expect_none("test", arguments);
  return value.is_string() && find_test(value.as_string()) != nullptr;
}
bool equals(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  return equal(evaluator.heap(), value, only_argument("eq", arguments));
}
bool differs(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  return !equal(evaluator.heap(), value, only_argument("ne", arguments));
}
bool greater(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  return compare(evaluator.heap(), value, only_argument("gt", arguments)) > 0;
}
bool greater_equal(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  return compare(evaluator.heap(), value, only_argument("ge", arguments)) >= 0;
}
bool less(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  return compare(evaluator.heap(), value, only_argument("lt", arguments)) < 0;
}
bool less_equal(Evaluator& evaluator, const Value& value, Arguments& arguments) {
  return compare(evaluator.heap(), value, only_argument("le", arguments)) <= 0;
}

constexpr std::pair<std::string_view, Test> kTests[] = {
    {"odd", odd},
    {"even", even},
    {"divisibleby", divisible_by},
    {"defined", check<is_defined>},
    {"undefined", check<is_undefined>},
    {"none", check<is_none>},
    {"boolean", check<is_boolean>},
    {"false", check<is_false>},
    {"true", check<is_exactly_true>},
    {"integer", check<is_integer>},
    {"float", check<is_float>},
    {"string", check<is_string>},
    {"mapping", check<is_mapping>},
    {"number", check<is_number>},
    {"sequence", check<is_sequence>},
    {"callable", check<is_callable>},
    {"escaped", check<is_escaped>},
    {"iterable", iterable},
    {"lower", lower},
    {"upper", upper},
    {"sameas", same_as},
    {"in", in},
    {"filter", is_filter},
    {"test", is_test},
    {"eq", equals},
    {"equalto", equals},
    {"==", equals},
    {"ne", differs},
    {"!=", differs},
    {"gt", greater},
    {"greaterthan", greater},
    {">", greater},
    {"ge", greater_equal},
    {">=", greater_equal},
    {"lt", less},
    {"lessthan", less},
    {"<", less},
    {"le", less_equal},
    {"<=", less_equal},
};

}  // namespace

Test find_test(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const auto& one) { return one.first == name; });
  return found == std::end(kTests) ? nullptr : found->second;
}

}  // namespace tierpack::text::jinja

#include "runtime/text/template_operations.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "runtime/text/template_format.h"
#include "runtime/text/utf8.h"

namespace tierpack::text::jinja {

namespace {

// Values nest as deep as templates and inputs make them; walking them does not go deeper than this.
constexpr int kMaxNesting = 200;
constexpr int kMaxKeyParts = 1000;

void check_nesting(int depth) {
  if (depth > kMaxNesting) throw TemplateError("values are nested too deep", false);
}

bool sizes_known(const List& list) { return list.kind != ListKind::kIterator; }

bool is_sequence(const Value& value) {
  if (!value.is(Kind::kList)) return false;
  const ListKind kind = value.as_list().kind;
  return kind == ListKind::kList || kind == ListKind::kTuple || kind == ListKind::kRange;
}

void check_overflow(bool overflow) {
  if (overflow) throw TemplateError("integers beyond 64 bits are not supported", false);
}

void check_numbers(const char* operation, const Value& left, const Value& right) {
  if (left.is_undefined()) fail_undefined(left);
  if (right.is_undefined()) fail_undefined(right);
  if (!left.is_number() || !right.is_number()) fail_operands(operation, left, right);
}

bool both_integral(const Value& left, const Value& right) { return left.is_integral() && right.is_integral(); }

// text or list, `times` times over.
Value repeat(Heap& heap, const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (value.is_string()) {
    const std::string_view unit = value.as_string();
    if (unit.empty() || times == 0) return Value::string({}, value.is_markup());
    heap.charge(static_cast<size_t>(times) > SIZE_MAX / 2 / unit.size() ? SIZE_MAX / 2 : unit.size() * times);
    std::string out;
    out.reserve(unit.size() * times);
    for (int64_t i = 0; i < times; ++i) out.append(unit);
    return Value::string(heap.store(out), value.is_markup());
  }
  const List& unit = value.as_list();
  List* out = heap.new_list(unit.kind == ListKind::kTuple ? ListKind::kTuple : ListKind::kList);
  if (unit.items.empty()) return Value::list(out);
  for (int64_t i = 0; i < times; ++i) {
    for (const Value& item : unit.items) heap.push(*out, item);
  }
  return Value::list(out);
}

bool equal_at(Heap& heap, const Value& left, const Value& right, int depth) {
  check_nesting(depth);
  heap.work(1);
  if (left.is_number() && right.is_number()) {
    if (both_integral(left, right)) return left.as_integer() == right.as_integer();
    return left.as_double() == right.as_double();
  }
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString: heap.work_on(left.as_string()); [[fallthrough]];
    case Kind::kBigInteger: return left.as_string() == right.as_string();
    case Kind::kList: {
      const List& a = left.as_list();
      const List& b = right.as_list();
      if (&a == &b) return true;
      // Views and iterators are equal to themselves alone, as are keys and items in practice.
      if (a.kind != b.kind || !is_sequence(left) || a.items.size() != b.items.size()) return false;
      for (size_t i = 0; i < a.items.size(); ++i) {
        if (!equal_at(heap, a.items[i], b.items[i], depth + 1)) return false;
      }
      return true;
    }
    case Kind::kDict: {
      const Dict& a = left.as_dict();
      const Dict& b = right.as_dict();
      if (&a == &b) return true;
      if (a.size() != b.size()) return false;
      for (const auto& [key, value] : a.entries()) {
        heap.work(1);
        const Value* other = b.find(key);
        if (other == nullptr || !equal_at(heap, value, *other, depth + 1)) return false;
      }
      return true;
    }
    default: return left.same_as(right);
  }
}

std::partial_ordering compare_at(Heap& heap, const Value& left, const Value& right, int depth) {
  check_nesting(depth);
  heap.work(1);
  if (left.is_undefined()) fail_undefined(left);
  if (right.is_undefined()) fail_undefined(right);
  if (both_integral(left, right)) return left.as_integer() <=> right.as_integer();
  if (left.is_number() && right.is_number()) return left.as_double() <=> right.as_double();
  if (left.is_string() && right.is_string()) {
    heap.work_on(left.as_string());
    return left.as_string() <=> right.as_string();  // UTF-8 sorts as code points do
  }
  if (is_sequence(left) && is_sequence(right) && left.as_list().kind == right.as_list().kind &&
      left.as_list().kind != ListKind::kRange) {
    const auto& a = left.as_list().items;
    const auto& b = right.as_list().items;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (!equal_at(heap, a[i], b[i], depth + 1)) return compare_at(heap, a[i], b[i], depth + 1);
    }
    return a.size() <=> b.size();
  }
  throw TemplateError(std::string("'<' not supported between instances of '") + type_name(left) + "' and '" +
                      type_name(right) + "'");
}

size_t hash_parts(const Value& key, int& parts) {
  if (--parts < 0) throw TemplateError("a dictionary key has too many parts", false);
  switch (key.kind()) {
    case Kind::kString:
    case Kind::kBigInteger: return std::hash<std::string_view>()(key.as_string());
    case Kind::kBool:
    case Kind::kInteger:
    case Kind::kFloat: return std::hash<double>()(key.as_double());
    case Kind::kList:
      if (key.as_list().kind == ListKind::kTuple) {
        size_t out = 7;
        for (const Value& item : key.as_list().items) out = out * 31 + hash_parts(item, parts);
        return out;
      }
      break;
    case Kind::kDict: break;
    default: return static_cast<size_t>(key.kind());
  }
  throw TemplateError(std::string("unhashable type: '") + type_name(key) + "'");
}

bool keys_equal_parts(const Value& left, const Value& right, int& parts) {
  if (--parts < 0) throw TemplateError("a dictionary key has too many parts", false);
  if (left.is_number() && right.is_number()) {
    if (both_integral(left, right)) return left.as_integer() == right.as_integer();
    return left.as_double() == right.as_double();
  }
  if (!left.is(Kind::kList) || !right.is(Kind::kList)) return left.same_as(right);
  const auto& a = left.as_list().items;
  const auto& b = right.as_list().items;
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!keys_equal_parts(a[i], b[i], parts)) return false;
  }
  return true;
}

}  // namespace

void fail_undefined(const Value& value) { throw TemplateError(value.undefined_message(), false); }

void fail_operands(const char* operation, const Value& left, const Value& right) {
  throw TemplateError(std::string("unsupported operand types for ") + operation + ": '" + type_name(left) + "' and '" +
                      type_name(right) + "'");
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool: return value.as_bool();
    case Kind::kInteger: return value.as_integer() != 0;
    case Kind::kFloat: return value.as_double() != 0;
    case Kind::kString: return !value.as_string().empty();
    case Kind::kList: return !sizes_known(value.as_list()) || !value.as_list().items.empty();
    case Kind::kDict: return value.as_dict().size() != 0;
    default: return true;
  }
}

bool equal(Heap& heap, const Value& left, const Value& right) { return equal_at(heap, left, right, 0); }
std::partial_ordering compare(Heap& heap, const Value& left, const Value& right) {
  return compare_at(heap, left, right, 0);
}

bool contains(Heap& heap, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined: return false;
    case Kind::kString:
      if (!item.is_string()) {
        throw TemplateError(std::string("'in <string>' requires string as left operand, not ") + type_name(item));
      }
      heap.work_on(container.as_string());
      return container.as_string().find(item.as_string()) != std::string_view::npos;
    case Kind::kDict: hash_key(item); return container.as_dict().find(item) != nullptr;
    case Kind::kList: {
      const List* items = items_of(heap, container);
      return std::any_of(items->items.begin(), items->items.end(),
                         [&](const Value& one) { return equal(heap, one, item); });
    }
    default: break;
  }
  throw TemplateError(std::string("argument of type '") + type_name(container) + "' is not iterable");
}

bool keys_equal(const Value& left, const Value& right) {
  int parts = kMaxKeyParts;
  return keys_equal_parts(left, right, parts);
}

size_t hash_key(const Value& key) {
  int parts = kMaxKeyParts;
  return hash_parts(key, parts);
}

Value add(Heap& heap, const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) {
    std::string_view a = left.as_string(), b = right.as_string();
    const bool markup = left.is_markup() || right.is_markup();
    if (markup && !left.is_markup()) a = escape(heap, a);
    if (markup && !right.is_markup()) b = escape(heap, b);
    return Value::string(heap.join(a, b), markup);
  }
  if (left.is(Kind::kList) && right.is(Kind::kList) && left.as_list().kind == right.as_list().kind &&
      (left.as_list().kind == ListKind::kList || left.as_list().kind == ListKind::kTuple)) {
    List* out = heap.new_list(left.as_list().kind);
    heap.work(left.as_list().items.size() + right.as_list().items.size());
    for (const Value& item : left.as_list().items) heap.push(*out, item);
    for (const Value& item : right.as_list().items) heap.push(*out, item);
    return Value::list(out);
  }
  if (left.is_string() && !right.is_undefined()) {
    throw TemplateError(std::string("can only concatenate str (not \"") + type_name(right) + "\") to str");
  }
  check_numbers("+", left, right);
  if (!both_integral(left, right)) return Value::real(left.as_double() + right.as_double());
  int64_t out = 0;
  check_overflow(__builtin_add_overflow(left.as_integer(), right.as_integer(), &out));
  return Value::integer(out);
}

Value subtract(const Value& left, const Value& right) {
  check_numbers("-", left, right);
  if (!both_integral(left, right)) return Value::real(left.as_double() - right.as_double());
  int64_t out = 0;
  check_overflow(__builtin_sub_overflow(left.as_integer(), right.as_integer(), &out));
  return Value::integer(out);
}

Value multiply(Heap& heap, const Value& left, const Value& right) {
  const auto repeatable = [](const Value& value) {
    return value.is_string() || (is_sequence(value) && value.as_list().kind != ListKind::kRange);
  };
  if (repeatable(left) && right.is_integral()) return repeat(heap, left, right.as_integer());
  if (repeatable(right) && left.is_integral()) return repeat(heap, right, left.as_integer());
  check_numbers("*", left, right);
  if (!both_integral(left, right)) return Value::real(left.as_double() * right.as_double());
  int64_t out = 0;
  check_overflow(__builtin_mul_overflow(left.as_integer(), right.as_integer(), &out));
  return Value::integer(out);
}

Value divide(const Value& left, const Value& right) {
  check_numbers("/", left, right);
  if (right.as_double() == 0) throw TemplateError("division by zero", false);
  return Value::real(left.as_double() / right.as_double());
}

Value floor_divide(const Value& left, const Value& right) {
  check_numbers("//", left, right);
  if (right.as_double() == 0) throw TemplateError("integer division or modulo by zero", false);
  if (!both_integral(left, right)) {
    const double a = left.as_double(), b = right.as_double();
    double rest = std::fmod(a, b);
    double quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    double floored = std::floor(quotient);
    if (quotient - floored > 0.5) floored += 1;
    return Value::real(quotient == 0 ? std::copysign(0.0, a / b) : floored);
  }
  const int64_t a = left.as_integer(), b = right.as_integer();
  if (b == -1) return negate(Value::integer(a));
  return Value::integer(a / b - (a % b != 0 && (a < 0) != (b < 0)));
}

Value modulo(Heap& heap, const Value& left, const Value& right) {
  if (left.is_string()) return format_percent(heap, left, right);
  check_numbers("%", left, right);
  if (right.as_double() == 0) throw TemplateError("integer division or modulo by zero", false);
  if (!both_integral(left, right)) {
    const double b = right.as_double();
    double rest = std::fmod(left.as_double(), b);
    if (rest != 0 ? (b < 0) != (rest < 0) : false) rest += b;
    return Value::real(rest == 0 ? std::copysign(0.0, b) : rest);
  }
  const int64_t a = left.as_integer(), b = right.as_integer();
  if (b == -1) return Value::integer(0);
  const int64_t rest = a % b;
  return Value::integer(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

Value power(const Value& left, const Value& right) {
  check_numbers("**", left, right);
  if (!both_integral(left, right) || right.as_integer() < 0) {
    const double base = left.as_double(), exponent = right.as_double();
    if (base == 0 && exponent < 0) throw TemplateError("0.0 cannot be raised to a negative power", false);
    const double out = std::pow(base, exponent);
    if (std::isnan(out) && !std::isnan(base) && !std::isnan(exponent)) {
      throw TemplateError("complex numbers are not supported", false);
    }
    if (std::isinf(out) && std::isfinite(base) && std::isfinite(exponent)) {
      throw TemplateError("the result of ** is too large", false);
    }
    return Value::real(out);
  }
  int64_t base = left.as_integer(), exponent = right.as_integer(), out = 1;
  while (exponent > 0) {
    if (exponent & 1) check_overflow(__builtin_mul_overflow(out, base, &out));
    exponent >>= 1;
    if (exponent > 0) check_overflow(__builtin_mul_overflow(base, base, &base));
  }
  return Value::integer(out);
}

Value negate(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_integral()) {
    int64_t out = 0;
    check_overflow(__builtin_sub_overflow(int64_t{0}, value.as_integer(), &out));
    return Value::integer(out);
  }
  if (value.is(Kind::kFloat)) return Value::real(-value.as_double());
  throw TemplateError(std::string("bad operand type for unary -: '") + type_name(value) + "'");
}

Value plus(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_integral()) return Value::integer(value.as_integer());
  if (value.is(Kind::kFloat)) return value;
  throw TemplateError(std::string("bad operand type for unary +: '") + type_name(value) + "'");
}

}  // namespace tierpack::text::jinja

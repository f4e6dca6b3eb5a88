// What Python's operators do with values: truth, equality, order, arithmetic, containment, slices, text. Nothing here
// knows of templates; failures are TemplateError, to which the evaluator adds the line.
#pragma once

#include <compare>
#include <exception>
#include <string>
#include <string_view>

#include "runtime/text/template_value.h"

namespace tierpack::text::jinja {

// A failure while rendering: Python's TypeError, ValueError, UndefinedError and so on, whose kinds no template can tell
// apart except where TemplateError::is_conversion says so.
class TemplateError : public std::exception {
 public:
  // `conversion`: a TypeError or ValueError, which filters like |int turn into their default.
  explicit TemplateError(std::string message, bool conversion = true)
      : message_(std::move(message)), conversion_(conversion) {}
  const char* what() const noexcept override { return message_.c_str(); }
  bool is_conversion() const { return conversion_; }

 private:
  std::string message_;
  bool conversion_;
};

[[noreturn]] void fail_undefined(const Value& value);
[[noreturn]] void fail_operands(const char* operation, const Value& left, const Value& right);

bool is_true(const Value& value);
bool equal(Heap& heap, const Value& left, const Value& right);
// Fails for values without an order between them; NaN is unordered.
std::partial_ordering compare(Heap& heap, const Value& left, const Value& right);
bool contains(Heap& heap, const Value& container, const Value& item);

// As dictionary keys. hash_key fails for unhashable values, and for tuples of more than a thousand parts.
bool keys_equal(const Value& left, const Value& right);
size_t hash_key(const Value& key);

Value add(Heap& heap, const Value& left, const Value& right);
Value subtract(const Value& left, const Value& right);
Value multiply(Heap& heap, const Value& left, const Value& right);
Value divide(const Value& left, const Value& right);
Value floor_divide(const Value& left, const Value& right);
Value modulo(Heap& heap, const Value& left, const Value& right);  // strings: printf-like formatting
Value power(const Value& left, const Value& right);
Value negate(const Value& value);
Value plus(const Value& value);

// len(); fails without one.
int64_t length(const Value& value);
bool is_iterable(const Value& value);
// The items that iterating gives, in a fresh list: characters, keys, elements. Iterators are used up.
List* items_of(Heap& heap, const Value& value);
// value[index], nothing if there is no such element; `value` is a string, list, tuple or range.
bool element(const Value& value, int64_t index, Value& out);
// value[start:stop:step]; none for what is absent.
Value slice(Heap& heap, const Value& value, const Value& start, const Value& stop, const Value& step);

// str() and repr().
std::string_view to_text(Heap& heap, const Value& value);
std::string repr(Heap& heap, const Value& value);
std::string float_repr(double value);
std::string string_repr(std::string_view text);

// Characters, not bytes.
int64_t count_characters(std::string_view text);
// The byte offset of a character; text.size() from the last on.
size_t offset_of(std::string_view text, int64_t character);

// HTML escaping as markupsafe does it.
std::string_view escape(Heap& heap, std::string_view text);

}  // namespace tierpack::text::jinja

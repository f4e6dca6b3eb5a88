// Values of the template language: Python's None, bool, int, float, str, list, tuple, dict and what templates can see
// of other objects. A Value is a small handle; what it refers to lives in a Heap until the rendering ends, so that
// cycles (a namespace that holds itself, a macro in the scope it closes over) need no care.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tierpack::text::jinja {

enum class Kind : uint8_t {
  kUndefined,  // carries why, for the error when it is used
  kNone,
  kBool,
  kInteger,
  kBigInteger,  // beyond 64 bits, from JSON: decimal digits, can be shown and compared but not computed with
  kFloat,
  kString,
  kList,  // and everything else that is a sequence of values: see ListKind
  kDict,
  kNamespace,
  kLoop,      // the `loop` object
  kCallable,  // macros, bound methods, functions
};

enum class ListKind : uint8_t {
  kList,
  kTuple,
  kRange,
  kDictItems,
  kDictKeys,
  kDictValues,  // views: sized, not subscriptable
  kIterator,    // what Python's generators give: iterable once, without a size
};

// What an undefined value's text names.
enum class UndefinedKind : uint8_t {
  kName,       // a variable
  kAttribute,  // of a `type object`
  kHint,       // the text is the whole message
};

struct List;
class Dict;
struct Loop;
struct Callable;

class Value {
 public:
  Value() : Value(undefined(UndefinedKind::kHint, "undefined value")) {}
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  static Value big_integer(std::string_view digits);
  // The bytes must outlive the value: a literal, the template, or a Heap.
  static Value string(std::string_view text, bool markup = false);
  static Value list(List* list);
  static Value dict(Dict* dict);
  static Value namespace_of(Dict* attributes);
  static Value loop(Loop* loop);
  static Value callable(const Callable* callable);
  static Value undefined(UndefinedKind kind, std::string_view text, const char* owner = "");

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_string() const { return kind_ == Kind::kString; }
  // Of which type an int is expected: True and False count.
  bool is_integral() const { return kind_ == Kind::kInteger || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  bool as_bool() const { return data_.boolean; }
  int64_t as_integer() const { return kind_ == Kind::kBool ? int64_t{data_.boolean} : data_.integer; }
  double as_double() const { return kind_ == Kind::kFloat ? data_.real : static_cast<double>(as_integer()); }
  std::string_view as_string() const { return {data_.text, size_}; }  // also a big integer's digits
  bool is_markup() const { return detail_ != 0; }                     // of strings: result of |safe or |escape
  List& as_list() const { return *data_.list; }
  Dict& as_dict() const { return *data_.dict; }  // also a namespace's attributes
  Loop& as_loop() const { return *data_.loop; }
  const Callable& as_callable() const { return *data_.callable; }
  // Whether two values are one object (Python's `is`, as far as templates can tell).
  bool same_as(const Value& other) const;

  // The message that using an undefined value gives.
  std::string undefined_message() const;

 private:
  explicit Value(Kind kind) : kind_(kind) { data_.integer = 0; }

  Kind kind_;
  uint8_t detail_ = 0;           // strings: markup; undefined values: UndefinedKind
  size_t size_ = 0;              // of text
  const char* owner_ = nullptr;  // undefined attributes: the type that lacks it
  union {
    bool boolean;
    int64_t integer;
    double real;
    const char* text;
    List* list;
    Dict* dict;
    Loop* loop;
    const Callable* callable;
  } data_;
};

struct List {
  ListKind kind = ListKind::kList;
  std::vector<Value> items;
  bool is_group = false;  // a tuple that |groupby made: its parts have names
  // Iterators: what comes next, and the failure that comes after the items, if any. Python's generators fail when they
  // get there, not before.
  size_t next = 0;
  std::string failure;
  // Ranges, as range() was called.
  int64_t start = 0, stop = 0, step = 1;
};

// Insertion-ordered, as Python's.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Value* find(std::string_view key) const;
  // Any hashable key; numbers and bools that are equal are one key.
  const Value* find(const Value& key) const;
  void set(const Value& key, const Value& value);

 private:
  size_t locate(const Value& key) const;  // size() if absent

  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, size_t> index_;  // from a key's hash, once there are many
};

// A Python type's name, for messages and for looking up methods.
const char* type_name(const Value& value);

// Owner of everything a rendering allocates, and the account of what it may use. Throws kCapacity beyond the limits.
class Heap {
 public:
  Heap(size_t limit_bytes, uint64_t limit_steps) : limit_(limit_bytes), steps_left_(limit_steps) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  void charge(size_t bytes);
  // Accounts for work: one step is about one node of the template evaluated, one value visited, 64 bytes looked at.
  void work(uint64_t steps) {
    if (steps > steps_left_) out_of_steps();
    steps_left_ -= steps;
  }
  void work_on(std::string_view text) { work(1 + text.size() / 64); }

  std::string_view store(std::string_view text);
  // A copy of a followed by b. Appending to the latest result again and again takes linear time in total.
  std::string_view join(std::string_view a, std::string_view b);
  List* new_list(ListKind kind = ListKind::kList);
  Dict* new_dict();
  // Charged versions of growing.
  void push(List& list, const Value& value);
  void set(Dict& dict, const Value& key, const Value& value);

 private:
  char* allocate(size_t bytes);
  [[noreturn]] void out_of_steps() const;

  size_t limit_;
  size_t used_ = 0;
  uint64_t steps_left_;
  std::vector<std::unique_ptr<char[]>> chunks_;
  char* chunk_at_ = nullptr;
  size_t chunk_left_ = 0;
  // Long joined strings have room behind them. By their end:
  struct Room {
    char* at;
    size_t left;
  };
  std::unordered_map<const char*, Room> growable_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
};

}  // namespace tierpack::text::jinja

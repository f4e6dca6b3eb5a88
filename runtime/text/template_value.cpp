#include "runtime/text/template_value.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "runtime/text/template_operations.h"

namespace tierpack::text::jinja {

Value Value::boolean(bool value) {
  Value out(Kind::kBool);
  out.data_.boolean = value;
  return out;
}

Value Value::integer(int64_t value) {
  Value out(Kind::kInteger);
  out.data_.integer = value;
  return out;
}

Value Value::real(double value) {
  Value out(Kind::kFloat);
  out.data_.real = value;
  return out;
}

Value Value::big_integer(std::string_view digits) {
  Value out = string(digits);
  out.kind_ = Kind::kBigInteger;
  return out;
}

Value Value::string(std::string_view text, bool markup) {
  Value out(Kind::kString);
  out.detail_ = markup;
  out.size_ = text.size();
  out.data_.text = text.data();
  return out;
}

Value Value::list(List* list) {
  Value out(Kind::kList);
  out.data_.list = list;
  return out;
}

Value Value::dict(Dict* dict) {
  Value out(Kind::kDict);
  out.data_.dict = dict;
  return out;
}

Value Value::namespace_of(Dict* attributes) {
  Value out(Kind::kNamespace);
  out.data_.dict = attributes;
  return out;
}

Value Value::loop(Loop* loop) {
  Value out(Kind::kLoop);
  out.data_.loop = loop;
  return out;
}

Value Value::callable(const Callable* callable) {
  Value out(Kind::kCallable);
  out.data_.callable = callable;
  return out;
}

Value Value::undefined(UndefinedKind kind, std::string_view text, const char* owner) {
  Value out(Kind::kUndefined);
  out.detail_ = static_cast<uint8_t>(kind);
  out.size_ = text.size();
  out.data_.text = text.data();
  out.owner_ = owner;
  return out;
}

bool Value::same_as(const Value& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kBool: return data_.boolean == other.data_.boolean;
    case Kind::kInteger: return data_.integer == other.data_.integer;
    case Kind::kFloat: return data_.real == other.data_.real;
    case Kind::kBigInteger:
    case Kind::kString: return as_string() == other.as_string();
    default: return data_.list == other.data_.list;
  }
}

std::string Value::undefined_message() const {
  const std::string text(data_.text, size_);
  switch (static_cast<UndefinedKind>(detail_)) {
    case UndefinedKind::kName: return "'" + text + "' is undefined";
    case UndefinedKind::kAttribute: return "'" + std::string(owner_) + "' has no attribute '" + text + "'";
    case UndefinedKind::kHint: break;
  }
  return text;
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInteger:
    case Kind::kBigInteger: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return value.is_markup() ? "Markup" : "str";
    case Kind::kList:
      switch (value.as_list().kind) {
        case ListKind::kList: return "list";
        case ListKind::kTuple: return "tuple";
        case ListKind::kRange: return "range";
        case ListKind::kDictItems: return "dict_items";
        case ListKind::kDictKeys: return "dict_keys";
        case ListKind::kDictValues: return "dict_values";
        case ListKind::kIterator: return "generator";
      }
      break;
    case Kind::kDict: return "dict";
    case Kind::kNamespace: return "Namespace";
    case Kind::kLoop: return "LoopContext";
    case Kind::kCallable: return "function";
  }
  return "object";
}

namespace {
// Small dictionaries are searched entry by entry.
constexpr size_t kIndexedFrom = 12;
}  // namespace

size_t Dict::locate(const Value& key) const {
  if (!index_.empty()) {
    const auto [begin, end] = index_.equal_range(hash_key(key));
    for (auto at = begin; at != end; ++at) {
      if (keys_equal(entries_[at->second].first, key)) return at->second;
    }
    return size();
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (keys_equal(entries_[i].first, key)) return i;
  }
  return size();
}

const Value* Dict::find(const Value& key) const {
  const size_t at = locate(key);
  return at == size() ? nullptr : &entries_[at].second;
}

const Value* Dict::find(std::string_view key) const { return find(Value::string(key)); }

void Dict::set(const Value& key, const Value& value) {
  const size_t at = locate(key);
  if (at < size()) {
    entries_[at].second = value;
    return;
  }
  entries_.emplace_back(key, value);
  if (!index_.empty()) {
    index_.emplace(hash_key(key), at);
  } else if (size() >= kIndexedFrom) {
    for (size_t i = 0; i < size(); ++i) index_.emplace(hash_key(entries_[i].first), i);
  }
}

namespace {
constexpr size_t kChunkBytes = 64 << 10;
constexpr size_t kGrowableFrom = 1024;
}  // namespace

void Heap::charge(size_t bytes) {
  if (bytes > limit_ - used_) {
    fail(ErrorKind::kCapacity, "chat template: rendering needs more than {} of memory", format_size(limit_));
  }
  used_ += bytes;
}

void Heap::out_of_steps() const {
  fail(ErrorKind::kCapacity, "chat template: rendering takes too many steps; the template or its input loops too long");
}

char* Heap::allocate(size_t bytes) {
  charge(bytes);
  if (bytes > chunk_left_) {
    const size_t size = std::max(bytes, kChunkBytes);
    chunks_.push_back(std::make_unique_for_overwrite<char[]>(size));
    if (size > kChunkBytes / 2 && bytes > kChunkBytes / 2) return chunks_.back().get();  // has a chunk of its own
    chunk_at_ = chunks_.back().get();
    chunk_left_ = size;
  }
  char* out = chunk_at_;
  chunk_at_ += bytes;
  chunk_left_ -= bytes;
  return out;
}

std::string_view Heap::store(std::string_view text) {
  if (text.empty()) return {};
  work_on(text);
  char* out = allocate(text.size());
  std::memcpy(out, text.data(), text.size());
  return {out, text.size()};
}

std::string_view Heap::join(std::string_view a, std::string_view b) {
  if (b.empty()) return a;
  if (a.empty()) return b;
  work_on(b);
  const auto room = growable_.find(a.data() + a.size());
  if (room != growable_.end() && room->second.left >= b.size()) {
    const Room old = room->second;
    std::memcpy(old.at, b.data(), b.size());
    growable_.erase(room);
    growable_.emplace(old.at + b.size(), Room{old.at + b.size(), old.left - b.size()});
    return {a.data(), a.size() + b.size()};
  }
  work_on(a);
  const size_t size = a.size() + b.size();
  const size_t capacity = size < kGrowableFrom ? size : size * 2;
  char* out = allocate(capacity);
  std::memcpy(out, a.data(), a.size());
  std::memcpy(out + a.size(), b.data(), b.size());
  if (capacity > size) growable_.emplace(out + size, Room{out + size, capacity - size});
  return {out, size};
}

List* Heap::new_list(ListKind kind) {
  charge(sizeof(List));
  lists_.emplace_back().kind = kind;
  return &lists_.back();
}

Dict* Heap::new_dict() {
  charge(sizeof(Dict));
  return &dicts_.emplace_back();
}

void Heap::push(List& list, const Value& value) {
  charge(sizeof(Value));
  list.items.push_back(value);
}

void Heap::set(Dict& dict, const Value& key, const Value& value) {
  charge(sizeof(Dict::Entry) + 48);  // with its share of an index
  dict.set(key, value);
}

}  // namespace tierpack::text::jinja

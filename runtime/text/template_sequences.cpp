// The part of template_operations.h that is about sizes, items and slices.
#include <algorithm>

#include "runtime/text/template_operations.h"
#include "runtime/text/utf8.h"

namespace tierpack::text::jinja {

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

size_t offset_of(std::string_view text, int64_t character) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) continue;
    if (character-- == 0) break;
  }
  return at;
}

int64_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString: return count_characters(value.as_string());
    case Kind::kDict: return static_cast<int64_t>(value.as_dict().size());
    case Kind::kList:
      if (value.as_list().kind != ListKind::kIterator) return static_cast<int64_t>(value.as_list().items.size());
      break;
    default: break;
  }
  throw TemplateError(std::string("object of type '") + type_name(value) + "' has no len()");
}

bool is_iterable(const Value& value) {
  return value.is_string() || value.is(Kind::kList) || value.is(Kind::kDict) || value.is_undefined() ||
         value.is(Kind::kLoop);
}

List* items_of(Heap& heap, const Value& value) {
  List* out = heap.new_list();
  switch (value.kind()) {
    case Kind::kUndefined: return out;
    case Kind::kString: {
      const std::string_view text = value.as_string();
      heap.work(text.size());
      for (size_t at = 0; at < text.size();) {
        const uint32_t bytes = decode_utf8(text, at).length;
        heap.push(*out, Value::string(text.substr(at, bytes)));
        at += bytes;
      }
      return out;
    }
    case Kind::kDict:
      heap.work(value.as_dict().size());
      for (const auto& [key, unused] : value.as_dict().entries()) heap.push(*out, key);
      return out;
    case Kind::kList: {
      List& list = value.as_list();
      heap.work(list.items.size() - list.next);
      heap.charge((list.items.size() - list.next) * sizeof(Value));
      out->items.assign(list.items.begin() + static_cast<ptrdiff_t>(list.next), list.items.end());
      if (list.kind == ListKind::kIterator) {
        list.next = list.items.size();
        if (!list.failure.empty()) throw TemplateError(list.failure);
      }
      return out;
    }
    default: break;
  }
  throw TemplateError(std::string("'") + type_name(value) + "' object is not iterable");
}

bool element(const Value& value, int64_t index, Value& out) {
  if (value.is_string()) {
    const std::string_view text = value.as_string();
    if (index < 0) index += count_characters(text);
    if (index < 0) return false;
    const size_t at = offset_of(text, index);
    if (at >= text.size()) return false;
    out = Value::string(text.substr(at, decode_utf8(text, at).length), value.is_markup());
    return true;
  }
  const List& list = value.as_list();
  const auto size = static_cast<int64_t>(list.items.size());
  if (index < 0) index += size;
  if (index < 0 || index >= size) return false;
  out = list.items[static_cast<size_t>(index)];
  return true;
}

namespace {

// A slice's bound: none gives `absent`, otherwise clamped as Python does.
int64_t bound(const Value& value, int64_t absent, int64_t size, bool forward) {
  if (value.is(Kind::kNone)) return absent;
  if (!value.is_integral()) {
    if (value.is_undefined()) throw TemplateError("slice indices must be integers, found an undefined value");
    throw TemplateError("slice indices must be integers or None");
  }
  int64_t at = value.as_integer();
  if (at < 0) at = std::max<int64_t>(at, -size - 1) + size;
  return forward ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
}

}  // namespace

Value slice(Heap& heap, const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is_undefined()) fail_undefined(value);
  const bool is_list =
      value.is(Kind::kList) && (value.as_list().kind == ListKind::kList || value.as_list().kind == ListKind::kTuple ||
                                value.as_list().kind == ListKind::kRange);
  if (value.is(Kind::kDict)) throw TemplateError("unhashable type: 'slice'");
  if (!value.is_string() && !is_list) {
    throw TemplateError(std::string("'") + type_name(value) + "' object is not subscriptable");
  }
  int64_t stride = 1;
  if (!step.is(Kind::kNone)) {
    if (!step.is_integral()) throw TemplateError("slice indices must be integers or None");
    stride = step.as_integer();
    if (stride == 0) throw TemplateError("slice step cannot be zero");
  }
  const int64_t size = length(value);
  const bool forward = stride > 0;
  const int64_t from = bound(start, forward ? 0 : size - 1, size, forward);
  const int64_t to = bound(stop, forward ? size : -1, size, forward);
  if (value.is_string()) heap.work_on(value.as_string());

  if (value.is_string() && stride == 1) {
    if (from >= to) return Value::string({}, value.is_markup());
    const std::string_view text = value.as_string();
    const size_t begin = offset_of(text, from);
    const std::string_view rest = text.substr(begin);
    return Value::string(rest.substr(0, offset_of(rest, to - from)), value.is_markup());
  }
  const List* items = value.is_string() ? items_of(heap, value) : &value.as_list();
  List* out = heap.new_list(value.is(Kind::kList) ? value.as_list().kind : ListKind::kList);
  if (out->kind == ListKind::kRange) {
    const List& range = value.as_list();
    out->start = range.start + from * range.step;
    out->stop = range.start + to * range.step;
    out->step = range.step * std::clamp<int64_t>(stride, -INT32_MAX, INT32_MAX);
  }
  for (int64_t at = from; forward ? at < to : at > to;) {
    heap.work(1);
    heap.push(*out, items->items[static_cast<size_t>(at)]);
    if (__builtin_add_overflow(at, stride, &at)) break;
  }
  if (!value.is_string()) return Value::list(out);
  std::string text;
  for (const Value& one : out->items) text.append(one.as_string());
  return Value::string(heap.store(text), value.is_markup());
}

}  // namespace tierpack::text::jinja

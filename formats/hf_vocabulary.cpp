#include "formats/hf_vocabulary.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"

namespace tierpack {

namespace {

constexpr uint8_t kNormal = 1;
constexpr uint8_t kControl = 3;
constexpr uint8_t kUserDefined = 4;
constexpr uint8_t kUnused = 5;
constexpr size_t kMergesMax = size_t{1} << 21;

std::string shown(std::string_view text) { return printable(text, 60); }

// Texts of this form steer a chat whatever their file says of them.
bool looks_special(std::string_view text) {
  return (text.starts_with("<|") && text.ends_with("|>")) || (text.starts_with("<｜") && text.ends_with("｜>"));
}

}  // namespace

void HfVocabulary::put(std::string_view text, uint64_t id, uint8_t kind) {
  if (id >= size_) {
    fail(ErrorKind::kCorrupt, "{}: token '{}' has id {}, but the model has {} tokens", source_, shown(text), id, size_);
  }
  if (has(id) && texts_[id] != text) {
    fail(ErrorKind::kCorrupt, "{}: id {} belongs to two tokens, '{}' and '{}'", source_, id, shown(texts_[id]),
         shown(text));
  }
  if (id >= texts_.size()) {
    texts_.resize(id + 1);
    kinds_.resize(id + 1, kHole);
  }
  texts_[id] = text;
  kinds_[id] = kind;
}

void HfVocabulary::add(std::string_view text, uint64_t id) {
  if (has(id)) {
    fail(ErrorKind::kCorrupt, "{}: id {} belongs to two tokens, '{}' and '{}'", source_, id, shown(texts_[id]),
         shown(text));
  }
  put(text, id, kNormal);
}

void HfVocabulary::add_added(std::string_view text, uint64_t id, bool special) {
  put(text, id, special || looks_special(text) ? kControl : kUserDefined);
}

void HfVocabulary::close() {
  for (uint32_t id = 0; id < texts_.size(); ++id) {
    if (has(id)) by_text_.push_back(id);
  }
  if (by_text_.empty()) fail(ErrorKind::kCorrupt, "{}: there are no tokens in it", source_);
  std::sort(by_text_.begin(), by_text_.end(), [&](uint32_t a, uint32_t b) { return texts_[a] < texts_[b]; });
  const auto twice = std::adjacent_find(by_text_.begin(), by_text_.end(),
                                        [&](uint32_t a, uint32_t b) { return texts_[a] == texts_[b]; });
  if (twice != by_text_.end()) {
    fail(ErrorKind::kCorrupt, "{}: token '{}' has two ids, {} and {}", source_, shown(texts_[*twice]), *twice,
         *(twice + 1));
  }
}

std::optional<uint64_t> HfVocabulary::find(std::string_view text) const {
  const auto at = std::lower_bound(by_text_.begin(), by_text_.end(), text,
                                   [&](uint32_t id, std::string_view wanted) { return texts_[id] < wanted; });
  if (at == by_text_.end() || texts_[*at] != text) return std::nullopt;
  return *at;
}

void HfVocabulary::add_merge(std::string_view left, std::string_view right) {
  std::string both(left);
  both += right;
  const auto in_one_word = [](std::string_view part) {
    return !part.empty() && part.find(' ') == std::string_view::npos;
  };
  if (!in_one_word(left) || !in_one_word(right) || !find(left) || !find(right) || !find(both)) {
    fail(ErrorKind::kCorrupt, "{}: merge {} joins '{}' and '{}': these and '{}' must be tokens without spaces", source_,
         merges_.size(), shown(left), shown(right), shown(both));
  }
  if (merges_.size() >= kMergesMax) fail(ErrorKind::kCorrupt, "{}: more than {} merges", source_, kMergesMax);
  both.insert(left.size(), 1, ' ');
  merges_.push_back(std::move(both));
}

void HfVocabulary::write(Metadata& out) {
  std::vector<int64_t> kinds(size_, kUnused);
  texts_.resize(size_);
  for (uint64_t id = 0; id < size_; ++id) {
    if (has(id)) {
      kinds[id] = kinds_[id];
    } else {
      texts_[id] = fmt::format("[PAD{}]", id);
    }
  }
  by_text_.clear();
  out.add("tokenizer.ggml.tokens", MetaValue::array(ValueType::kString, std::move(texts_)));
  out.add("tokenizer.ggml.token_type", MetaValue::array(ValueType::kI32, std::move(kinds)));
  out.add("tokenizer.ggml.merges", MetaValue::array(ValueType::kString, std::move(merges_)));
}

}  // namespace tierpack

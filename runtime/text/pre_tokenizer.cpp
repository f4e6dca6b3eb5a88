#include "runtime/text/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "runtime/text/pre_tokenizer_table.h"
#include "runtime/text/utf8.h"

namespace tierpack::text {

namespace {

// The expressions are defined over Unicode 15.1, PCRE2 10.42 knows 14.0, and PCRE2's \s takes U+180E for a space. Text
// is therefore matched in a shadow copy where each of these code points is replaced by one that PCRE2 puts in the class
// wanted and that has as many bytes. A PCRE2 with newer tables gives the same pieces.
struct Stand {
  char32_t first, last, proxy;
};
constexpr Stand kStands[] = {
    {0x0CF3, 0x0CF3, 0x0CBE},    {0x0ECE, 0x0ECE, 0x0EC8},    {0x180E, 0x180E, 0x200B},    {0x2FFC, 0x2FFF, 0x2FF0},
    {0x31EF, 0x31EF, 0x31C0},    {0x10EFD, 0x10EFF, 0x1123E}, {0x1123F, 0x11240, 0x11200}, {0x11241, 0x11241, 0x1123E},
    {0x11B00, 0x11B09, 0x11047}, {0x11F00, 0x11F01, 0x1123E}, {0x11F02, 0x11F02, 0x11200}, {0x11F03, 0x11F03, 0x1123E},
    {0x11F04, 0x11F10, 0x11200}, {0x11F12, 0x11F33, 0x11200}, {0x11F34, 0x11F3A, 0x1123E}, {0x11F3E, 0x11F42, 0x1123E},
    {0x11F43, 0x11F4F, 0x11047}, {0x11F50, 0x11F59, 0x11066}, {0x1342F, 0x1342F, 0x11200}, {0x13439, 0x1343F, 0x13430},
    {0x13440, 0x13440, 0x1123E}, {0x13441, 0x13446, 0x11200}, {0x13447, 0x13455, 0x1123E}, {0x1B132, 0x1B132, 0x11200},
    {0x1B155, 0x1B155, 0x11200}, {0x1D2C0, 0x1D2D3, 0x1D2E0}, {0x1DF25, 0x1DF2A, 0x1DF00}, {0x1E030, 0x1E06D, 0x1AFF0},
    {0x1E08F, 0x1E08F, 0x1123E}, {0x1E4D0, 0x1E4EA, 0x11200}, {0x1E4EB, 0x1E4EB, 0x1AFF0}, {0x1E4EC, 0x1E4EF, 0x1123E},
    {0x1E4F0, 0x1E4F9, 0x11066}, {0x1F6DC, 0x1F6DC, 0x1F600}, {0x1F774, 0x1F776, 0x1F600}, {0x1F77B, 0x1F77F, 0x1F600},
    {0x1F7D9, 0x1F7D9, 0x1F600}, {0x1FA75, 0x1FA77, 0x1F600}, {0x1FA87, 0x1FA88, 0x1F600}, {0x1FAAD, 0x1FAAF, 0x1F600},
    {0x1FABB, 0x1FABD, 0x1F600}, {0x1FABF, 0x1FABF, 0x1F600}, {0x1FACE, 0x1FACF, 0x1F600}, {0x1FADA, 0x1FADB, 0x1F600},
    {0x1FAE8, 0x1FAE8, 0x1F600}, {0x1FAF7, 0x1FAF8, 0x1F600}, {0x2B739, 0x2B739, 0x20000}, {0x2EBF0, 0x2EE5D, 0x20000},
    {0x31350, 0x323AF, 0x20000},
};

const Stand* find_stand(char32_t code) {
  const Stand* at = std::lower_bound(std::begin(kStands), std::end(kStands), code,
                                     [](const Stand& stand, char32_t value) { return stand.last < value; });
  return at != std::end(kStands) && at->first <= code ? at : nullptr;
}

// Whether a sequence with this lead byte can be in kStands.
bool may_need_stand(uint8_t lead) { return (lead >= 0xE0 && lead <= 0xE3) || lead >= 0xF0; }

// `text`, or a shadow of it in `storage` if it holds a code point of kStands.
std::string_view shadow_of(std::string_view text, std::string& storage) {
  bool copied = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!may_need_stand(static_cast<uint8_t>(text[at]))) continue;
    const CodePoint code = decode_utf8(text, at);
    if (const Stand* stand = find_stand(code.value)) {
      if (!copied) storage.assign(text);
      copied = true;
      std::string proxy;
      append_utf8(proxy, stand->proxy);
      TIERPACK_CHECK(proxy.size() == code.length);
      storage.replace(at, proxy.size(), proxy);
    }
    at += code.length - 1;
  }
  return copied ? std::string_view(storage) : text;
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDeleter {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct ContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct StackDeleter {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
using Code = std::unique_ptr<pcre2_code, CodeDeleter>;

constexpr size_t kJitStackStart = 32 << 10;
constexpr size_t kJitStackMax = 16 << 20;

Code compile(std::string_view expression) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr));
  if (!code) {
    fail(ErrorKind::kInternal, "the pre-tokenizer expression {} does not compile: PCRE2 error {} at {}", expression,
         error, offset);
  }
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without JIT support matching is slower and otherwise the same
  return code;
}

// What one call of piece_ends needs to run matches: nothing of it is shared between threads.
class Matcher {
 public:
  explicit Matcher(size_t text_bytes)
      : match_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr)) {
    if (!match_ || !context_) throw std::bad_alloc();
    if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    // Every expression of the table backtracks at most a few times per byte.
    const size_t limit = std::max<size_t>(10'000'000, text_bytes * 16);
    pcre2_set_match_limit(context_.get(), static_cast<uint32_t>(std::min<size_t>(limit, UINT32_MAX)));
  }

  // The first match at or after `from`; false if there is none.
  bool search(const pcre2_code* code, std::string_view text, size_t from, size_t& start, size_t& end) {
    const int rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NO_UTF_CHECK,
                               match_.get(), context_.get());
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0) {
      char reason[128] = "";
      pcre2_get_error_message(rc, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof reason);
      fail(
          ErrorKind::kCapacity,
          "splitting a text of {} bytes into words failed at byte {}: {}; shorten the text or break up its longest run "
          "of characters",
          text.size(), from, reason);
    }
    const PCRE2_SIZE* borders = pcre2_get_ovector_pointer(match_.get());
    start = borders[0];
    end = borders[1];
    return true;
  }

 private:
  std::unique_ptr<pcre2_match_data, MatchDeleter> match_;
  std::unique_ptr<pcre2_match_context, ContextDeleter> context_;
  std::unique_ptr<pcre2_jit_stack, StackDeleter> stack_;
};

}  // namespace

struct PreTokenizer::Impl {
  std::vector<Code> codes;
  bool ignore_merges = false;
  bool add_bos = false;
};

PreTokenizer::PreTokenizer(std::string_view name) : impl_(std::make_unique<Impl>()) {
  for (const PreTokenizerRules& rules : pre_tokenizer_rules()) {
    if (std::find(rules.names.begin(), rules.names.end(), name) == rules.names.end()) continue;
    for (const std::string_view expression : rules.expressions) impl_->codes.push_back(compile(expression));
    impl_->ignore_merges = rules.ignore_merges;
    impl_->add_bos = rules.add_bos;
    return;
  }
  fail(ErrorKind::kUnsupported, "the pre-tokenizer '{}' (tokenizer.ggml.pre) is not known to this version", name);
}

PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

bool PreTokenizer::ignores_merges() const { return impl_->ignore_merges; }
bool PreTokenizer::adds_bos_by_default() const { return impl_->add_bos; }

std::vector<size_t> PreTokenizer::piece_ends(std::string_view text) const {
  std::vector<size_t> ends;
  if (text.empty()) return ends;
  std::string storage;
  const std::string_view shadow = shadow_of(text, storage);
  Matcher matcher(text.size());
  ends.push_back(text.size());
  for (const Code& code : impl_->codes) {
    std::vector<size_t> finer;
    finer.reserve(ends.size() * 2);
    size_t begin = 0;
    for (const size_t piece_end : ends) {
      const std::string_view piece = shadow.substr(begin, piece_end - begin);
      size_t at = 0, start = 0, end = 0;
      while (at < piece.size() && matcher.search(code.get(), piece, at, start, end)) {
        if (start > at) finer.push_back(begin + start);
        TIERPACK_CHECK(end > start);  // no expression of the table matches nothing
        finer.push_back(begin + end);
        at = end;
      }
      if (at < piece.size()) finer.push_back(piece_end);
      begin = piece_end;
    }
    ends = std::move(finer);
  }
  return ends;
}

}  // namespace tierpack::text

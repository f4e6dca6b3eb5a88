// A pull parser for JSON documents that are large, flat and untrusted: safetensors headers and their index. Nothing is
// built; the caller walks the text once and takes what it wants, so memory is what the caller keeps.
//
// Strict: valid UTF-8, RFC 8259 grammar, bounded nesting. Any violation throws kCorrupt: "<source>: <problem> at byte
// N".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tierpack {

class JsonCursor {
 public:
  // `text` must outlive the cursor. `base` is the offset of text[0] in `source`, for messages. Throws kCorrupt unless
  // the text is valid UTF-8.
  JsonCursor(std::string_view text, std::string source, uint64_t base = 0);

  // The next significant character, without consuming it; 0 at the end.
  char peek();
  // Consumes `c` if it is the next significant character.
  bool accept(char c);
  void expect(char c, const char* what);

  // Valid until the next call of string(): a view into the text, or into a buffer when the string has escapes.
  std::string_view string(const char* what);
  // A non-negative integer without fraction or exponent, at most 2^64 - 1.
  uint64_t u64(const char* what);
  // Any value, nested at most `depth` levels.
  void skip_value(int depth = 16);
  // The text of any value, skipped likewise.
  std::string_view raw_value(int depth = 16);
  // Nothing but white space may follow.
  void end();

  // Calls on_member(key) at the value of each member; it must consume the value. `key` obeys the rule of string().
  template <typename OnMember>
  void object(const char* what, OnMember&& on_member) {
    expect('{', what);
    if (accept('}')) return;
    do {
      const std::string_view key = string("a key");
      // The colon is consumed before the caller can call string() again.
      expect(':', "':' after a key");
      on_member(key);
    } while (accept(','));
    expect('}', "',' or '}'");
  }

  // Calls on_element() at each element; it must consume it.
  template <typename OnElement>
  void array(const char* what, OnElement&& on_element) {
    expect('[', what);
    if (accept(']')) return;
    do {
      on_element();
    } while (accept(','));
    expect(']', "',' or ']'");
  }

  [[noreturn]] void fail_here(const std::string& problem) const;

 private:
  void skip_space();
  void unescape(std::string_view raw, size_t start);
  void skip_number();
  void skip_word(std::string_view word);

  std::string_view text_;
  std::string source_;
  uint64_t base_;
  size_t at_ = 0;
  std::string buffer_;
};

}  // namespace tierpack

// Cuts text into the pieces that BPE works on, by the regular expressions that belong to a name in
// tokenizer.ggml.pre. The expressions are applied in sequence: the first one splits the text, each following one splits
// every piece further; matches and the gaps between them both become pieces, and a piece's borders are the start and
// end of text for the next expression. Immutable after construction; safe to share between threads.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace tierpack::text {

class PreTokenizer {
 public:
  // Throws kUnsupported naming an unknown pre-tokenizer.
  explicit PreTokenizer(std::string_view name);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Where each piece of `text` (valid UTF-8) ends, ascending; the last end is text.size(). Empty text has no pieces.
  // Throws kCapacity when an expression exceeds its matching limits on this text.
  std::vector<size_t> piece_ends(std::string_view text) const;

  bool ignores_merges() const;       // a piece that is a token as a whole becomes that token whatever the merges say
  bool adds_bos_by_default() const;  // when the metadata does not say

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tierpack::text

// Finds the texts of added tokens ("<|im_end|>", "<think>") in a text: longest first over the whole text, each from
// left to right in what longer ones left over. Immutable after construction; safe to share between threads.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tierpack::text {

class SpecialTokens {
 public:
  // Longer texts are refused by the tokenizer, so that searching stays linear in the text.
  static constexpr size_t kMaxBytes = 1024;

  struct Match {
    size_t begin;
    size_t end;
    uint32_t id;
  };

  // `text` is not empty and at most kMaxBytes long. Of two equal texts the later one counts.
  void add(std::string_view text, uint32_t id);

  // The matches in `text` in order of position, none overlapping another.
  std::vector<Match> find(std::string_view text) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  // A trie over bytes; node 0 is the root. Edges are (node, byte) -> node.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<uint32_t> token_of_node_ = {kNone};
  bool starts_[256] = {};  // bytes that some text starts with
};

}  // namespace tierpack::text

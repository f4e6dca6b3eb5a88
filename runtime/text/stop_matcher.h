// Stop strings in generated text, wherever token borders fall. Text that may still become a stop string is held back
// until it is decided. The outcome does not depend on how the text is cut: the stop string that is complete first
// counts (of several complete at the same byte the longest), and what comes before it is given out. One stream per
// generation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tierpack::text {

class StopMatcher {
 public:
  // Empty strings are ignored.
  explicit StopMatcher(const std::vector<std::string>& stops);

  // Takes more text and returns what may be shown now. After a stop nothing more comes out.
  std::string push(std::string_view text);
  // The end of generation: what was held back.
  std::string finish();

  bool stopped() const { return stopped_ != kNone; }
  // Which of the constructor's strings ended the text; only after stopped().
  size_t stop_index() const { return stopped_; }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  struct Pattern {
    std::string text;
    size_t index;                   // in the constructor's list
    std::vector<uint32_t> borders;  // by length: the longest proper border of that prefix
    size_t matched = 0;             // the longest prefix that ends where the text ends so far
  };

  std::vector<Pattern> patterns_;
  std::string held_;
  size_t stopped_ = kNone;
};

}  // namespace tierpack::text

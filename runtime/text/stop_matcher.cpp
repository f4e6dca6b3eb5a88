#include "runtime/text/stop_matcher.h"

#include <algorithm>

namespace tierpack::text {

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) continue;
    Pattern pattern;
    pattern.text = stops[i];
    pattern.index = i;
    pattern.borders.assign(pattern.text.size() + 1, 0);
    for (size_t length = 2; length <= pattern.text.size(); ++length) {
      uint32_t border = pattern.borders[length - 1];
      while (border > 0 && pattern.text[border] != pattern.text[length - 1]) border = pattern.borders[border];
      pattern.borders[length] = border + (pattern.text[border] == pattern.text[length - 1]);
    }
    patterns_.push_back(std::move(pattern));
  }
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) return {};
  for (const char c : text) {
    held_ += c;
    size_t longest = 0;
    for (Pattern& pattern : patterns_) {
      size_t& matched = pattern.matched;
      while (matched > 0 && pattern.text[matched] != c) matched = pattern.borders[matched];
      matched += pattern.text[matched] == c;
      if (matched == pattern.text.size() && matched > longest) {
        longest = matched;
        stopped_ = pattern.index;
      }
    }
    if (stopped()) {
      held_.resize(held_.size() - longest);
      return std::move(held_);
    }
  }
  size_t kept = 0;
  for (const Pattern& pattern : patterns_) kept = std::max(kept, pattern.matched);
  std::string out = held_.substr(0, held_.size() - kept);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::finish() {
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  std::string out = stopped() ? std::string() : std::move(held_);
  held_.clear();
  return out;
}

}  // namespace tierpack::text

// Regular expressions of the command line, through PCRE2.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tierpack {

class Regex {
 public:
  // Throws kUsage, saying where, for what is no expression.
  explicit Regex(const std::string& pattern);
  // Whether the expression is found anywhere in `text`; kUsage when that would take too long.
  bool found_in(std::string_view text) const;
  const std::string& pattern() const { return pattern_; }

 private:
  struct Code;
  std::string pattern_;
  std::shared_ptr<const Code> code_;
};

}  // namespace tierpack

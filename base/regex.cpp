#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/regex.h"

#include <pcre2.h>

#include <array>

#include "base/error.h"

namespace tierpack {

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(const std::string& pattern) : pattern_(pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  auto code = std::make_shared<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), 0, &error, &at, nullptr);
  if (code->code == nullptr) {
    std::array<PCRE2_UCHAR, 256> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    fail(ErrorKind::kUsage, "'{}' is not a regular expression: {} at character {}", pattern, reinterpret_cast<const char*>(message.data()), at);
  }
  code_ = std::move(code);
}

bool Regex::found_in(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(pcre2_match_data_create_from_pattern(code_->code, nullptr),
                                                                            pcre2_match_data_free);
  const int result = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, match.get(), nullptr);
  if (result < 0 && result != PCRE2_ERROR_NOMATCH) fail(ErrorKind::kUsage, "'{}' takes too long to look for", pattern_);
  return result >= 0;
}

}  // namespace tierpack

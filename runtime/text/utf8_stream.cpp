#include "runtime/text/tokenizer.h"
#include "runtime/text/utf8.h"

namespace tierpack::text {

std::string Utf8Stream::push(std::string_view bytes) {
  pending_.append(bytes);
  std::string out;
  size_t at = 0;
  while (at < pending_.size()) {
    const CodePoint code = decode_utf8(pending_, at);
    if (code.cut_short) break;
    append_utf8(out, code.value);
    at += code.length;
  }
  pending_.erase(0, at);
  return out;
}

std::string Utf8Stream::finish() {
  std::string out = replace_invalid_utf8(pending_);
  pending_.clear();
  return out;
}

}  // namespace tierpack::text

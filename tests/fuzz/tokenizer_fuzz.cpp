// Text through the tokenizer and back, and vocabularies from anywhere. The first byte picks the pre-tokenizer; 0 makes the
// rest a vocabulary, one token, merge or kind a line. What must hold: decoding the ids gives the text again (invalid UTF-8
// replaced), streaming gives the same characters, and a stop string's outcome does not depend on the cuts.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "runtime/text/byte_alphabet.h"
#include "runtime/text/pre_tokenizer_table.h"
#include "runtime/text/stop_matcher.h"
#include "runtime/text/tokenizer.h"
#include "runtime/text/utf8.h"

namespace {

using namespace tierpack;
using namespace tierpack::text;

void require(bool holds) {
  if (!holds) std::abort();
}

Metadata metadata_of(std::string_view pre, std::vector<std::string> tokens, std::vector<int64_t> types,
                     std::vector<std::string> merges) {
  Metadata out("fuzz");
  out.add("tokenizer.ggml.model", {ValueType::kString, {}, MetaValue::Scalar(std::string("gpt2"))});
  out.add("tokenizer.ggml.pre", {ValueType::kString, {}, MetaValue::Scalar(std::string(pre))});
  out.add("tokenizer.ggml.tokens", {ValueType::kArray, ValueType::kString, MetaValue::Array(std::move(tokens))});
  out.add("tokenizer.ggml.token_type", {ValueType::kArray, ValueType::kI32, MetaValue::Array(std::move(types))});
  out.add("tokenizer.ggml.merges", {ValueType::kArray, ValueType::kString, MetaValue::Array(std::move(merges))});
  return out;
}

std::string stand_ins(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_utf8(out, stand_in_of(static_cast<uint8_t>(c)));
  return out;
}

// All bytes, some merges, and added tokens that overlap.
Tokenizer make_tokenizer(std::string_view pre) {
  std::vector<std::string> tokens, merges;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(stand_ins(std::string(1, static_cast<char>(byte))));
  for (const auto& [left, right] : {std::pair{"a", "b"}, {"ab", "a"}, {"a", "a"}, {" ", " "}, {" ", "a"}, {"\xE4", "\xBD"},
                                    {"\xE4\xBD", "\xA0"}, {"1", "2"}, {"\r", "\n"}, {"'", "s"}}) {
    merges.push_back(stand_ins(left) + " " + stand_ins(right));
    tokens.push_back(stand_ins(left) + stand_ins(right));
  }
  std::vector<int64_t> types(tokens.size(), 1);
  for (const char* added : {"<|x|>", "<|", "|><|x"}) {
    tokens.push_back(added);
    types.push_back(3);
  }
  tokens.push_back("<think>");
  types.push_back(4);
  return Tokenizer::from_metadata(metadata_of(pre, tokens, types, merges));
}

void hostile_vocabulary(std::string_view input) {
  std::vector<std::string> tokens, merges;
  std::vector<int64_t> types;
  while (!input.empty()) {
    const size_t end = std::min(input.find('\n'), input.size());
    const std::string line(input.substr(0, end));
    input.remove_prefix(std::min(end + 1, input.size()));
    if (line.find(' ', 1) != std::string::npos) {
      merges.push_back(line);
    } else {
      tokens.push_back(line);
      types.push_back(line.empty() ? 1 : static_cast<uint8_t>(line[0]) % 8);
    }
  }
  try {
    const Tokenizer tokenizer = Tokenizer::from_metadata(metadata_of("qwen2", tokens, types, merges));
    for (const std::string& token : tokens) {
      for (const uint32_t id : tokenizer.encode(token, Tokenizer::Special::kParse)) tokenizer.token_bytes(id);
    }
  } catch (const Error&) {
  }
}

void streams(std::string_view text, const std::string& whole) {
  Utf8Stream stream;
  StopMatcher stop({"aba", "\n\n", "<|x|>"}), stop_at_once({"aba", "\n\n", "<|x|>"});
  std::string characters, shown;
  for (size_t at = 0, step = 1; at < text.size(); at += step, step = step % 5 + 1) {
    characters += stream.push(text.substr(at, step));
    shown += stop.push(text.substr(at, step));
  }
  require(characters + stream.finish() == whole);
  std::string expected = stop_at_once.push(text);
  require(shown + stop.finish() == expected + stop_at_once.finish());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 0) {
    hostile_vocabulary(text);
    return 0;
  }
  static const std::vector<Tokenizer> tokenizers = [] {
    std::vector<Tokenizer> out;
    for (const PreTokenizerRules& rules : pre_tokenizer_rules()) out.push_back(make_tokenizer(rules.names.front()));
    return out;
  }();
  const Tokenizer& tokenizer = tokenizers[data[0] % tokenizers.size()];
  const std::string whole = replace_invalid_utf8(text);
  for (const auto special : {Tokenizer::Special::kParse, Tokenizer::Special::kAsText}) {
    require(tokenizer.decode(tokenizer.encode(text, special), true) == whole);
  }
  streams(text, whole);
  return 0;
}

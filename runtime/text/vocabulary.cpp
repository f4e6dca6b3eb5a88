#include "runtime/text/vocabulary.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/text/byte_alphabet.h"
#include "runtime/text/special_tokens.h"
#include "runtime/text/utf8.h"

namespace tierpack::text {

namespace {

// Tokens that end a generation whatever the metadata says, by text.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
};

// The metadata's own names of tokens that end a generation.
constexpr std::string_view kEndKeys[] = {"eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"};

// gpt-oss writes its channels with these; they must reach whoever parses the output.
constexpr std::string_view kHarmonyVisible[] = {"<|end|>", "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

// A byte token of kind kByte, "<0x0A>".
std::optional<uint8_t> byte_token_value(std::string_view text) {
  uint8_t value = 0;
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  for (const char c : text.substr(3, 2)) {
    if (c >= '0' && c <= '9') {
      value = static_cast<uint8_t>(value << 4 | (c - '0'));
    } else if (c >= 'A' && c <= 'F') {
      value = static_cast<uint8_t>(value << 4 | (c - 'A' + 10));
    } else {
      return std::nullopt;
    }
  }
  return value;
}

}  // namespace

Vocabulary::Vocabulary(const Metadata& metadata) : texts_(metadata.string_array("tokenizer.ggml.tokens")) {
  if (texts_.empty() || texts_.size() > INT32_MAX) {
    fail(ErrorKind::kCorrupt, "{}: tokenizer.ggml.tokens has {} entries, expected 1 to 2^31 - 1", metadata.source(),
         texts_.size());
  }
  read_kinds(metadata);
  ids_.reserve(texts_.size());
  for (uint32_t id = 0; id < size(); ++id) {
    if (!texts_[id].empty()) ids_.insert_or_assign(std::string_view(texts_[id]), id);
  }
  bos_ = special_id(metadata, "bos");
  eos_ = special_id(metadata, "eos");
  unknown_ = special_id(metadata, "unknown");
  find_end_tokens(metadata);
  decode_texts();
}

void Vocabulary::read_kinds(const Metadata& metadata) {
  kinds_.assign(texts_.size(), TokenKind::kNormal);
  if (!metadata.has("tokenizer.ggml.token_type")) return;
  const std::vector<int64_t> types = metadata.i64_array("tokenizer.ggml.token_type");
  if (types.size() != texts_.size()) {
    fail(ErrorKind::kCorrupt, "{}: tokenizer.ggml.token_type has {} entries for {} tokens", metadata.source(),
         types.size(), texts_.size());
  }
  for (uint32_t id = 0; id < size(); ++id) {
    if (types[id] < 0 || types[id] > static_cast<int64_t>(TokenKind::kByte)) {
      fail(ErrorKind::kCorrupt, "{}: tokenizer.ggml.token_type of token {} is {}, expected 0 to 6", metadata.source(),
           id, types[id]);
    }
    kinds_[id] = static_cast<TokenKind>(types[id]);
    const bool searched =
        kinds_[id] == TokenKind::kControl || kinds_[id] == TokenKind::kUserDefined || kinds_[id] == TokenKind::kUnknown;
    if (searched && texts_[id].size() > SpecialTokens::kMaxBytes) {
      fail(ErrorKind::kCorrupt, "{}: the text of added token {} has {} bytes, expected at most {}", metadata.source(),
           id, texts_[id].size(), SpecialTokens::kMaxBytes);
    }
  }
}

std::optional<uint32_t> Vocabulary::special_id(const Metadata& metadata, std::string_view name) const {
  const std::string key = "tokenizer.ggml." + std::string(name) + "_token_id";
  // Converters write -1 and other numbers for "none".
  const MetaValue* value = metadata.find(key);
  if (value == nullptr || value->is_array()) return std::nullopt;
  const auto& scalar = std::get<MetaValue::Scalar>(value->value);
  uint64_t id = UINT64_MAX;
  if (const auto* number = std::get_if<uint64_t>(&scalar)) id = *number;
  if (const auto* number = std::get_if<int64_t>(&scalar)) id = static_cast<uint64_t>(*number);
  if (id >= size()) return std::nullopt;
  return static_cast<uint32_t>(id);
}

void Vocabulary::find_end_tokens(const Metadata& metadata) {
  const auto add = [&](uint32_t id) { end_tokens_.push_back(id); };
  for (const std::string_view key : kEndKeys) {
    if (const auto id = special_id(metadata, key)) add(*id);
  }
  // A normal token may spell "</s>" in a program text and must not end it; added tokens are never meant so.
  const bool kinds_known = metadata.has("tokenizer.ggml.token_type");
  const auto added_token = [&](std::string_view text) -> std::optional<uint32_t> {
    const auto id = find(text);
    if (id && kinds_known && (kinds_[*id] == TokenKind::kNormal || kinds_[*id] == TokenKind::kUnused))
      return std::nullopt;
    return id;
  };
  for (const std::string_view text : kEndTexts) {
    if (const auto id = added_token(text)) add(*id);
  }
  // In GLM's chat format the next speaker's token ends a turn.
  const std::string pre = metadata.string_or("tokenizer.ggml.pre", "");
  if (pre == "glm4" || pre == "chatglm-bpe") {
    for (const std::string_view text : {"<|user|>", "<|observation|>"}) {
      if (const auto id = added_token(text)) add(*id);
    }
  }
  // In gpt-oss's format <|end|> ends a message, after which the next one follows.
  if (added_token("<|return|>") && added_token("<|call|>") && added_token("<|end|>")) {
    std::erase(end_tokens_, *find("<|end|>"));
    for (const std::string_view text : kHarmonyVisible) {
      if (const auto id = added_token(text)) kinds_[*id] = TokenKind::kUserDefined;
    }
  }
  std::sort(end_tokens_.begin(), end_tokens_.end());
  end_tokens_.erase(std::unique(end_tokens_.begin(), end_tokens_.end()), end_tokens_.end());
}

void Vocabulary::decode_texts() {
  bytes_at_.reserve(texts_.size() + 1);
  for (uint32_t id = 0; id < size(); ++id) {
    bytes_at_.push_back(bytes_.size());
    const std::string_view text = texts_[id];
    if (kinds_[id] == TokenKind::kByte) {
      if (const auto byte = byte_token_value(text)) {
        bytes_.push_back(static_cast<char>(*byte));
        continue;
      }
    }
    if (kinds_[id] != TokenKind::kNormal && kinds_[id] != TokenKind::kUndefined) {
      bytes_.append(text);
      continue;
    }
    for (size_t at = 0; at < text.size();) {
      const CodePoint code = decode_utf8(text, at);
      const auto byte = code.valid ? byte_of(code.value) : std::nullopt;
      if (byte) {
        bytes_.push_back(static_cast<char>(*byte));
      } else {
        bytes_.append(text.substr(at, code.length));  // not of the alphabet: as it is
      }
      at += code.length;
    }
  }
  bytes_at_.push_back(bytes_.size());
}

std::optional<uint32_t> Vocabulary::find(std::string_view text) const {
  const auto found = ids_.find(text);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

bool Vocabulary::is_hidden(uint32_t id) const {
  return kinds_[id] == TokenKind::kControl || kinds_[id] == TokenKind::kUnknown || kinds_[id] == TokenKind::kUnused;
}

std::string_view Vocabulary::bytes(uint32_t id) const {
  return std::string_view(bytes_).substr(bytes_at_[id], bytes_at_[id + 1] - bytes_at_[id]);
}

}  // namespace tierpack::text

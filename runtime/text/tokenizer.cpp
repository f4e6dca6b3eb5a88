#include "runtime/text/tokenizer.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/error.h"
#include "runtime/text/bpe.h"
#include "runtime/text/byte_alphabet.h"
#include "runtime/text/pre_tokenizer.h"
#include "runtime/text/special_tokens.h"
#include "runtime/text/utf8.h"
#include "runtime/text/vocabulary.h"

namespace tierpack::text {

namespace {

std::string read_pre_tokenizer(const Metadata& metadata) {
  const std::string model = metadata.string("tokenizer.ggml.model");
  if (model != "gpt2") {
    fail(ErrorKind::kUnsupported, "{}: the tokenizer model '{}' is not supported, only byte-level BPE ('gpt2')",
         metadata.source(), model);
  }
  if (!metadata.has("tokenizer.ggml.pre")) {
    fail(ErrorKind::kUnsupported,
         "{}: tokenizer.ggml.pre is missing, so how to split words is unknown; convert the model again with a current "
         "converter",
         metadata.source());
  }
  return metadata.string("tokenizer.ggml.pre");
}

}  // namespace

// Symbols of the merge loop: tokens have their id; strings that only occur in merges, and bytes without a token, have
// ids from vocabulary.size() on.
struct Tokenizer::Impl {
  explicit Impl(const Metadata& metadata)
      : pre_tokenizer(read_pre_tokenizer(metadata)),
        vocabulary(metadata),
        merges(metadata.has("tokenizer.ggml.merges") ? metadata.string_array("tokenizer.ggml.merges").size() : 0) {
    add_bos = metadata.boolean_or("tokenizer.ggml.add_bos_token", pre_tokenizer.adds_bos_by_default());
    end_of_generation.resize(vocabulary.size());
    for (const uint32_t id : vocabulary.end_tokens()) end_of_generation[id] = true;
    for (uint32_t id = 0; id < vocabulary.size(); ++id) {
      if (vocabulary.text(id).empty()) continue;
      const TokenKind kind = vocabulary.kind(id);
      if (kind == TokenKind::kUserDefined) user_defined.add(vocabulary.text(id), id);
      if (kind == TokenKind::kUserDefined || kind == TokenKind::kControl || kind == TokenKind::kUnknown) {
        all_special.add(vocabulary.text(id), id);
      }
    }
    for (uint32_t byte = 0; byte < 256; ++byte) {
      std::string text;
      append_utf8(text, stand_in_of(static_cast<uint8_t>(byte)));
      byte_symbols[byte] = symbol_of(text);
    }
    if (metadata.has("tokenizer.ggml.merges")) read_merges(metadata);
  }

  uint32_t symbol_of(const std::string& text) {
    if (const auto id = vocabulary.find(text)) return *id;
    const auto [at, added] = extra_ids.emplace(text, vocabulary.size() + static_cast<uint32_t>(extra_texts.size()));
    if (added) extra_texts.push_back(&at->first);
    return at->second;
  }

  void read_merges(const Metadata& metadata) {
    const std::vector<std::string>& lines = metadata.string_array("tokenizer.ggml.merges");
    if (lines.size() >= INT32_MAX) {
      fail(ErrorKind::kCorrupt, "{}: tokenizer.ggml.merges has {} entries", metadata.source(), lines.size());
    }
    for (uint32_t rank = 0; rank < lines.size(); ++rank) {
      const std::string& line = lines[rank];
      const size_t space = line.find(' ', 1);
      if (space == std::string::npos || space + 1 == line.size()) {
        fail(ErrorKind::kCorrupt,
             "{}: merge {} of tokenizer.ggml.merges is '{}', expected two parts with a space between",
             metadata.source(), rank, line);
      }
      const std::string left = line.substr(0, space), right = line.substr(space + 1);
      merges.add(symbol_of(left), symbol_of(right), rank, symbol_of(left + right));
    }
  }

  const std::string& symbol_text(uint32_t symbol) const {
    return symbol < vocabulary.size() ? vocabulary.text(symbol) : *extra_texts[symbol - vocabulary.size()];
  }

  // A symbol that is no token becomes the tokens of its bytes; a byte without a token the unknown token, or nothing.
  void emit_bytes_of(uint32_t symbol, std::vector<uint32_t>& ids) const {
    const std::string& text = symbol_text(symbol);
    for (size_t at = 0; at < text.size();) {
      const CodePoint code = decode_utf8(text, at);
      const auto byte = byte_of(code.value);
      const uint32_t id = byte ? byte_symbols[*byte] : UINT32_MAX;
      if (id < vocabulary.size()) {
        ids.push_back(id);
      } else if (vocabulary.unknown()) {
        ids.push_back(*vocabulary.unknown());
      }
      at += code.length;
    }
  }

  void encode_piece(std::string_view piece, std::vector<uint32_t>& symbols, std::vector<uint32_t>& ids) const {
    if (pre_tokenizer.ignores_merges()) {
      std::string text;
      for (const char c : piece) append_utf8(text, stand_in_of(static_cast<uint8_t>(c)));
      if (const auto id = vocabulary.find(text)) {
        ids.push_back(*id);
        return;
      }
    }
    symbols.clear();
    for (const char c : piece) symbols.push_back(byte_symbols[static_cast<uint8_t>(c)]);
    merges.apply(symbols);
    for (const uint32_t symbol : symbols) {
      if (symbol < vocabulary.size()) {
        ids.push_back(symbol);
      } else {
        emit_bytes_of(symbol, ids);
      }
    }
  }

  void encode_raw(std::string_view text, std::vector<uint32_t>& symbols, std::vector<uint32_t>& ids) const {
    size_t begin = 0;
    for (const size_t end : pre_tokenizer.piece_ends(text)) {
      encode_piece(text.substr(begin, end - begin), symbols, ids);
      begin = end;
    }
  }

  void check_id(uint32_t id) const {
    if (id >= vocabulary.size()) {
      fail(ErrorKind::kUsage, "token id {} is beyond the vocabulary of {} tokens", id, vocabulary.size());
    }
  }

  PreTokenizer pre_tokenizer;
  Vocabulary vocabulary;
  BpeMerges merges;
  SpecialTokens user_defined;  // found in every text
  SpecialTokens all_special;   // found where the caller says so
  uint32_t byte_symbols[256] = {};
  std::unordered_map<std::string, uint32_t> extra_ids;
  std::vector<const std::string*> extra_texts;  // keys of extra_ids, in order of their ids
  std::vector<bool> end_of_generation;
  bool add_bos = false;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::from_metadata(const Metadata& metadata) { return Tokenizer(std::make_unique<Impl>(metadata)); }

std::vector<uint32_t> Tokenizer::encode(std::string_view text, Special special) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  std::vector<uint32_t> ids, symbols;
  const SpecialTokens& specials = special == Special::kParse ? impl_->all_special : impl_->user_defined;
  size_t at = 0;
  for (const SpecialTokens::Match& match : specials.find(text)) {
    impl_->encode_raw(text.substr(at, match.begin - at), symbols, ids);
    ids.push_back(match.id);
    at = match.end;
  }
  impl_->encode_raw(text.substr(at), symbols, ids);
  return ids;
}

std::vector<uint32_t> Tokenizer::encode_prompt(std::string_view text, Special special) const {
  std::vector<uint32_t> ids = encode(text, special);
  const auto bos = impl_->vocabulary.bos();
  if (impl_->add_bos && bos && (ids.empty() || ids.front() != *bos)) ids.insert(ids.begin(), *bos);
  return ids;
}

std::string_view Tokenizer::token_bytes(uint32_t id) const {
  impl_->check_id(id);
  return impl_->vocabulary.is_hidden(id) ? std::string_view() : impl_->vocabulary.bytes(id);
}

bool Tokenizer::is_control(uint32_t id) const {
  impl_->check_id(id);
  return impl_->vocabulary.is_hidden(id);
}

std::string Tokenizer::decode(std::span<const uint32_t> ids, bool with_control) const {
  std::string out;
  for (const uint32_t id : ids) {
    impl_->check_id(id);
    if (with_control || !impl_->vocabulary.is_hidden(id)) out.append(impl_->vocabulary.bytes(id));
  }
  return out;
}

uint32_t Tokenizer::size() const { return impl_->vocabulary.size(); }

bool Tokenizer::is_end_of_generation(uint32_t id) const {
  impl_->check_id(id);
  return impl_->end_of_generation[id];
}

std::vector<uint32_t> Tokenizer::end_tokens() const { return impl_->vocabulary.end_tokens(); }

int64_t Tokenizer::bos() const { return impl_->vocabulary.bos() ? int64_t{*impl_->vocabulary.bos()} : -1; }
int64_t Tokenizer::eos() const { return impl_->vocabulary.eos() ? int64_t{*impl_->vocabulary.eos()} : -1; }
bool Tokenizer::adds_bos() const { return impl_->add_bos; }

int64_t Tokenizer::find(std::string_view token_text) const {
  const auto id = impl_->vocabulary.find(token_text);
  return id ? int64_t{*id} : -1;
}

}  // namespace tierpack::text

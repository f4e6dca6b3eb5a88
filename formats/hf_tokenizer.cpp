// tokenizer.* from tokenizer.json, or vocab.json and merges.txt, and what tokenizer_config.json and
// generation_config.json say of special tokens and the chat template.
#include <algorithm>
#include <map>

#include "base/printable.h"
#include "formats/hf_parts.h"
#include "formats/hf_vocabulary.h"
#include "formats/json_cursor.h"

namespace tierpack {

namespace {

constexpr uint64_t kTokenizerBytesMax = uint64_t{128} << 20;
constexpr size_t kAddedBytesMax = 1024;  // of the text of an added token

// Tokens at which programs stop whatever the metadata says.
constexpr std::string_view kKnownEnds[] = {"<|im_end|>",      "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>",
                                           "<|eom_id|>",      "</s>",          "<|return|>", "<|call|>",
                                           "<|observation|>", "<｜end▁of▁sentence｜>"};

Json parsed_or_empty(std::string_view text, const std::string& source) {
  return text.empty() ? Json::object() : parse_hf_json(text, source);
}

class TokenizerReader {
 public:
  TokenizerReader(const HfCheckpointTexts& texts, const HfConfig& config, Metadata& metadata)
      : texts_(texts),
        config_(config),
        settings_json_(parsed_or_empty(texts.tokenizer_config, texts.source + "/tokenizer_config.json")),
        settings_(settings_json_, texts.source + "/tokenizer_config.json"),
        generation_json_(parsed_or_empty(texts.generation_config, texts.source + "/generation_config.json")),
        generation_(generation_json_, texts.source + "/generation_config.json"),
        name_(texts.source + (texts.tokenizer.empty() ? "/vocab.json" : "/tokenizer.json")),
        vocabulary_(config.vocab, name_),
        metadata_(metadata),
        out_(metadata, "tokenizer.") {}

  void write() {
    if (!texts_.tokenizer.empty()) {
      read_tokenizer_json();
    } else if (!texts_.vocab.empty() && !texts_.merges.empty()) {
      read_vocab_and_merges();
    } else {
      fail(ErrorKind::kUnsupported, "{}: the checkpoint has neither tokenizer.json nor vocab.json and merges.txt",
           texts_.source);
    }
    out_.string("ggml.model", "gpt2");
    out_.string("ggml.pre", pre_tokenizer_name(splitting_, config_.architecture, name_));
    special_tokens();
    vocabulary_.write(metadata_);
    chat_templates();
  }

 private:
  // --- the vocabulary

  // {"id": 1, "content": "<x>", "special": true, ...}
  void read_added_token(JsonCursor& json) {
    std::optional<uint64_t> id;
    std::optional<std::string> content;
    bool special = false;
    json.object("an added token", [&](std::string_view key) {
      if (key == "id") {
        id = json.u64("an id");
      } else if (key == "content") {
        content = std::string(json.string("a token"));
      } else if (key == "special") {
        special = json.peek() == 't';
        json.skip_value();
      } else {
        json.skip_value();
      }
    });
    if (!id || !content) json.fail_here("an added token lacks its id or content");
    if (content->size() > kAddedBytesMax) json.fail_here("the text of an added token is too long");
    added_.push_back({std::move(*content), *id, special});
  }

  void read_vocab(JsonCursor& json) {
    json.object("the vocabulary", [&](std::string_view key) {
      const std::string text(key);
      vocabulary_.add(text, json.u64("an id"));
    });
  }

  // "left right" or ["left", "right"].
  void read_merge(JsonCursor& json) {
    std::vector<std::string> parts;
    if (json.peek() == '[') {
      json.array("a merge", [&] {
        parts.emplace_back(json.string("a part of a merge"));
        if (parts.size() > 2) json.fail_here("a merge has more than two parts");
      });
    } else {
      const std::string line(json.string("a merge"));
      split_merge(line, parts);
    }
    if (parts.size() != 2) json.fail_here("a merge does not have two parts");
    merges_.emplace_back(std::move(parts[0]), std::move(parts[1]));
  }

  static void split_merge(std::string_view line, std::vector<std::string>& parts) {
    const size_t space = line.find(' ', 1);
    if (space == std::string_view::npos) return;
    parts.emplace_back(line.substr(0, space));
    parts.emplace_back(line.substr(space + 1));
  }

  void read_model(JsonCursor& json) {
    std::string type;
    json.object("the model", [&](std::string_view key) {
      if (key == "type") {
        type = json.string("a type");
      } else if (key == "vocab" && json.peek() == '{') {
        read_vocab(json);
      } else if (key == "merges") {
        json.array("merges", [&] { read_merge(json); });
      } else if (key == "ignore_merges") {
        splitting_.ignore_merges = json.peek() == 't';
        json.skip_value();
      } else if (key == "byte_fallback") {
        if (json.peek() == 't') unsupported_model("BPE with tokens for bytes");
        json.skip_value();
      } else {
        json.skip_value();
      }
    });
    if (!type.empty() && type != "BPE") unsupported_model(type);
  }

  [[noreturn]] void unsupported_model(std::string_view type) const {
    fail(ErrorKind::kUnsupported, "{}: the tokenizer is of type '{}'; only byte-level BPE is known", name_,
         printable(type, 40));
  }

  void read_tokenizer_json() {
    if (texts_.tokenizer.size() > kTokenizerBytesMax) {
      fail(ErrorKind::kCorrupt, "{}: {} bytes, limit {}", name_, texts_.tokenizer.size(), kTokenizerBytesMax);
    }
    JsonCursor json(texts_.tokenizer, name_);
    std::string_view pre_tokenizer, post_processor;
    std::vector<std::string> seen;
    json.object("the tokenizer", [&](std::string_view key) {
      for (const char* once : {"model", "added_tokens", "pre_tokenizer", "post_processor"}) {
        if (key != once) continue;
        if (std::find(seen.begin(), seen.end(), key) != seen.end()) {
          json.fail_here(fmt::format("'{}' appears twice", once));
        }
        seen.emplace_back(key);
      }
      if (key == "model") {
        read_model(json);
      } else if (key == "added_tokens" && json.peek() == '[') {
        json.array("the added tokens", [&] { read_added_token(json); });
      } else if (key == "pre_tokenizer") {
        pre_tokenizer = json.raw_value();
      } else if (key == "post_processor") {
        post_processor = json.raw_value();
      } else {
        json.skip_value();
      }
    });
    json.end();
    if (pre_tokenizer.empty()) unsupported_model("BPE without a pre_tokenizer");
    const Json parts = parse_hf_json(pre_tokenizer, name_ + ": pre_tokenizer");
    const bool ignore_merges = splitting_.ignore_merges;
    splitting_ = read_hf_splitting(HfObject(parts, name_ + ": pre_tokenizer"));
    splitting_.ignore_merges = ignore_merges;
    if (!splitting_.byte_level) unsupported_model("BPE that does not work on bytes");
    if (!post_processor.empty()) read_post_processor(parse_hf_json(post_processor, name_ + ": post_processor"), 0);
    finish_vocabulary();
  }

  // Whether a token is put in front of every text.
  void read_post_processor(const Json& json, int depth) {
    if (!json.is_object() || depth > 4) return;
    if (const auto parts = json.find("processors"); parts != json.end() && parts->is_array()) {
      for (const Json& part : *parts) read_post_processor(part, depth + 1);
    }
    const auto single = json.find("single");
    if (single == json.end() || !single->is_array() || single->empty()) return;
    const Json& first = single->front();
    if (first.is_object() && first.contains("SpecialToken")) adds_bos_ = true;
  }

  void read_vocab_and_merges() {
    for (const std::string* text : {&texts_.vocab, &texts_.merges}) {
      if (text->size() > kTokenizerBytesMax) {
        fail(ErrorKind::kCorrupt, "{}: {} bytes, limit {}", name_, text->size(), kTokenizerBytesMax);
      }
    }
    JsonCursor json(texts_.vocab, name_);
    read_vocab(json);
    json.end();
    const std::string merges_name = texts_.source + "/merges.txt";
    JsonCursor(texts_.merges, merges_name);  // valid UTF-8
    std::string_view rest = texts_.merges;
    for (uint64_t number = 1; !rest.empty(); ++number) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
      std::vector<std::string> parts;
      split_merge(line, parts);
      if (parts.size() != 2) fail(ErrorKind::kCorrupt, "{}: line {} does not have two parts", merges_name, number);
      merges_.emplace_back(std::move(parts[0]), std::move(parts[1]));
    }
    finish_vocabulary();
    split_without_tokenizer_json();
  }

  // The files of this form do not say how text is split, unless tokenizer_config.json does: it is the family's way.
  void split_without_tokenizer_json() {
    splitting_.byte_level = true;
    const std::string& family = config_.architecture;
    const bool newer = family == "qwen35moe" || family == "qwen4exp";
    auto expression = settings_.find_string("pretokenize_regex");
    if (!expression && !newer && family != "qwen3moe" && family != "qwen3next") {
      fail(ErrorKind::kUnsupported, "{}: nothing says how text is split before merging; tokenizer.json would", name_);
    }
    if (!expression) {
      expression = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?)";
      *expression += newer ? R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+)" : R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+)";
      *expression += R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    }
    splitting_.expressions.push_back(*expression);
  }

  void finish_vocabulary() {
    for (const Added& token : added_) vocabulary_.add_added(token.text, token.id, token.special);
    added_from_settings();
    vocabulary_.close();
    for (const auto& [left, right] : merges_) vocabulary_.add_merge(left, right);
    merges_.clear();
  }

  // tokenizer_config.json repeats the added tokens, and is the only one to have them beside vocab.json.
  void added_from_settings() {
    const Json* decoder = settings_.find("added_tokens_decoder");
    if (decoder == nullptr) return;
    if (!decoder->is_object()) settings_.corrupt("'added_tokens_decoder' is not an object");
    std::map<uint64_t, std::string_view> texts;
    for (const Added& token : added_) texts.emplace(token.id, token.text);
    for (const auto& [key, value] : decoder->items()) {
      uint64_t id = 0;
      for (const char c : key) {
        if (c < '0' || c > '9' || id > kHfTokensMax) {
          settings_.corrupt("'{}' is not the id of a token", printable(key, 40));
        }
        id = id * 10 + static_cast<uint64_t>(c - '0');
      }
      const HfObject token(value, settings_.source() + ": added token " + printable(key, 40));
      const std::string text = token.string("content");
      if (text.size() > kAddedBytesMax) token.corrupt("its text has {} bytes, limit {}", text.size(), kAddedBytesMax);
      const auto listed = texts.find(id);
      if (listed == texts.end()) {
        vocabulary_.add_added(text, id, token.find_flag("special").value_or(false));
      } else if (listed->second != text) {
        token.corrupt("is '{}' here and '{}' in tokenizer.json", printable(text, 60), printable(listed->second, 60));
      }
    }
  }

  // --- special tokens

  // "bos_token" of tokenizer_config.json: a text, or an object with one.
  std::optional<uint64_t> named_token(const char* key) const {
    const Json* value = settings_.find(key);
    if (value == nullptr) return std::nullopt;
    const std::string text = value->is_object() ? HfObject(*value, settings_.source() + ": " + key).string("content")
                                                : settings_.string(key);
    return vocabulary_.find(text);
  }

  // A number or a list of numbers; -1 stands for none.
  std::vector<uint64_t> ids_of(const HfObject& object, const char* key) const {
    const Json* value = object.find(key);
    if (value == nullptr || (value->is_number_integer() && *value == -1)) return {};
    if (value->is_array()) return object.counts(key, config_.vocab - 1, 64);
    return {object.count(key, 0, config_.vocab - 1)};
  }

  // All ids that generation_config.json or else config.json gives.
  std::vector<uint64_t> configured(const char* key) const {
    std::vector<uint64_t> ids = ids_of(generation_, key);
    if (ids.empty()) ids = ids_of(config_.text, key);
    if (ids.empty()) ids = ids_of(config_.root, key);
    return ids;
  }

  std::optional<uint64_t> token_id(const char* token_key, const char* id_key) const {
    if (const auto id = named_token(token_key)) return id;
    const std::vector<uint64_t> ids = configured(id_key);
    return ids.empty() ? std::nullopt : std::optional(ids.front());
  }

  void special_tokens() {
    out_.u32("ggml.bos_token_id", token_id("bos_token", "bos_token_id"));
    const auto eos = token_id("eos_token", "eos_token_id");
    out_.u32("ggml.eos_token_id", eos);
    out_.u32("ggml.padding_token_id", token_id("pad_token", "pad_token_id"));
    out_.u32("ggml.unknown_token_id", named_token("unk_token"));
    // The first further token that ends an answer and that nobody would know of otherwise.
    for (const uint64_t id : configured("eos_token_id")) {
      const auto known = [&](std::string_view text) { return vocabulary_.find(text) == id; };
      if (id == eos || std::any_of(std::begin(kKnownEnds), std::end(kKnownEnds), known)) continue;
      out_.u32("ggml.eot_token_id", id);
      break;
    }
    out_.flag("ggml.add_bos_token", settings_.find_flag("add_bos_token").value_or(adds_bos_));
    if (settings_.find_flag("add_eos_token").value_or(false)) out_.flag("ggml.add_eos_token", true);
  }

  // --- chat templates

  static bool is_template_name(std::string_view name) {
    const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
    return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), allowed);
  }

  void chat_templates() {
    if (!texts_.chat_template_jinja.empty()) {
      JsonCursor(texts_.chat_template_jinja, texts_.source + "/chat_template.jinja");  // valid UTF-8
      out_.string("chat_template", texts_.chat_template_jinja);
      return;
    }
    const Json* given = settings_.find("chat_template");
    if (given == nullptr) return;
    if (!given->is_array()) {
      out_.string("chat_template", settings_.string("chat_template"));
      return;
    }
    std::vector<std::string> names;
    for (const Json& item : *given) {
      const HfObject one(item, settings_.source() + ": chat_template");
      const std::string name = one.string("name");
      if (!is_template_name(name)) one.corrupt("'{}' is no name for a chat template", printable(name, 60));
      if (std::find(names.begin(), names.end(), name) != names.end()) one.corrupt("'{}' appears twice", name);
      if (names.size() >= 64) one.corrupt("there are more than 64 of them");
      names.push_back(name);
      out_.string(name == "default" ? "chat_template" : ("chat_template." + name).c_str(), one.string("template"));
    }
    std::erase(names, "default");
    if (!names.empty()) out_.array("chat_templates", ValueType::kString, std::move(names));
  }

  struct Added {
    std::string text;
    uint64_t id;
    bool special;
  };

  const HfCheckpointTexts& texts_;
  const HfConfig& config_;
  const Json settings_json_;
  const HfObject settings_;
  const Json generation_json_;
  const HfObject generation_;
  const std::string name_;
  HfVocabulary vocabulary_;
  Metadata& metadata_;
  MetadataWriter out_;
  HfSplitting splitting_;
  std::vector<Added> added_;  // of tokenizer.json
  std::vector<std::pair<std::string, std::string>> merges_;
  bool adds_bos_ = false;
};

}  // namespace

void write_hf_tokenizer(const HfCheckpointTexts& texts, const HfConfig& config, Metadata& out) {
  TokenizerReader(texts, config, out).write();
}

}  // namespace tierpack

// Which pre-tokenizer a tokenizer.json has: recognised by the text of its expressions, in the form that Hugging Face's
// files give them.
#include <algorithm>

#include "base/printable.h"
#include "formats/hf_parts.h"

// Parts that several expressions share. Macros, because only literals join at compile time.
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define PREFIX R"([^\r\n\p{L}\p{N}]?)"
#define PUNCTUATION R"( ?[^\s\p{L}\p{N}]+)"
#define SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define OPENING R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define GOING_ON R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"

namespace tierpack {

namespace {

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
// The same with an alternative for spaces at the end of text, which make one piece either way.
constexpr std::string_view kGpt2Spaces =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 = CONTRACTION "|" PREFIX R"(\p{L}+|\p{N}{1,3}|)" PUNCTUATION R"([\r\n]*|)" SPACES;
constexpr std::string_view kQwen2 = CONTRACTION "|" PREFIX R"(\p{L}+|\p{N}|)" PUNCTUATION R"([\r\n]*|)" SPACES;
constexpr std::string_view kQwen35 =
    CONTRACTION "|" PREFIX R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" SPACES;
constexpr std::string_view kGpt4o = PREFIX OPENING "*" GOING_ON "+" CONTRACTION "?|" PREFIX OPENING "+" GOING_ON
                                           "*" CONTRACTION R"(?|\p{N}{1,3}|)" PUNCTUATION R"([\r\n/]*|)" SPACES;
constexpr std::string_view kTekken =
    PREFIX OPENING "*" GOING_ON "+|" PREFIX OPENING "+" GOING_ON R"(*|\p{N}|)" PUNCTUATION R"([\r\n/]*|)" SPACES;
constexpr std::string_view kDeepSeekText =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|)" SPACES;
constexpr std::string_view kCjkAndKana = R"([一-龥぀-ゟ゠-ヿ]+)";
constexpr std::string_view kCjkAndHangul = R"([一-龥ࠀ-一가-퟿]+)";
constexpr std::string_view kDeepSeekPunctuation = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr std::string_view kDeepSeekLatin =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕ)"
    R"(ἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛ)"
    R"(Ꜣ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";

struct Known {
  std::string_view name;
  std::vector<std::string_view> expressions;
};

const std::vector<Known>& known_splittings() {
  static const std::vector<Known> known = {
      {"qwen2", {kQwen2}},
      {"qwen35", {kQwen35}},
      {"llama-bpe", {kLlama3}},
      {"gpt-4o", {kGpt4o}},
      {"tekken", {kTekken}},
      {"deepseek-v3", {R"(\p{N}{1,3})", kCjkAndKana, kDeepSeekText}},
      {"deepseek-coder", {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kCjkAndHangul, R"(\p{N})"}},
      {"deepseek-llm", {R"([\r\n])", kDeepSeekLatin, kDeepSeekPunctuation, R"(\s+$)", kCjkAndHangul, R"(\p{N}+)"}},
      {"deepseek-llm", {R"([\r\n])", kDeepSeekLatin, kDeepSeekPunctuation, R"(\s+$)", kCjkAndHangul, R"(\p{N})"}},
      {"gpt-2", {kGpt2}},
      {"gpt-2", {kGpt2Spaces}},
      {"starcoder", {R"(\p{N})", kGpt2}},
  };
  return known;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// Longer expressions are none that a model has.
constexpr size_t kExpressionBytesMax = 16384;

// One spelling of what can be written in two ways.
std::string normalised(std::string expression) {
  replace_all(expression, "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])", CONTRACTION);
  replace_all(expression, "\r", "\\r");
  replace_all(expression, "\n", "\\n");
  return expression;
}

constexpr int kPartsDepth = 4;
constexpr size_t kPartsMax = 32;

void read_part(const HfObject& part, int depth, HfSplitting& out) {
  const std::string type = part.string("type");
  if (type == "Sequence") {
    const Json* parts = part.find("pretokenizers");
    if (parts == nullptr || !parts->is_array() || parts->size() > kPartsMax || depth >= kPartsDepth) {
      part.corrupt("expected a list of at most {} parts, nested at most {} times", kPartsMax, kPartsDepth);
    }
    for (const Json& inner : *parts) read_part(HfObject(inner, part.source()), depth + 1, out);
  } else if (type == "Split") {
    const auto pattern = part.find_object("pattern");
    if (!pattern) part.corrupt("'pattern' is missing");
    const auto expression = pattern->find_string("Regex");
    if (!expression) part.unsupported("splits at a fixed text, not by an expression");
    if (expression->size() > kExpressionBytesMax) part.corrupt("an expression of {} bytes", expression->size());
    const std::string behaviour = part.find_string("behavior").value_or("Isolated");
    // Pieces that the gaps between matches make are kept by both; of an inverted one only the gaps are.
    if (behaviour != "Isolated" && behaviour != "Removed") {
      part.unsupported("'behavior' is '{}', not Isolated", printable(behaviour, 40));
    }
    const bool invert = part.find_flag("invert").value_or(false);
    if (invert != (behaviour == "Removed")) part.unsupported("'invert' and 'behavior' are of a kind that is not known");
    out.expressions.push_back(normalised(*expression));
  } else if (type == "Digits") {
    out.expressions.push_back(part.find_flag("individual_digits").value_or(false) ? R"(\p{N})" : R"(\p{N}+)");
  } else if (type == "ByteLevel") {
    if (part.find_flag("add_prefix_space").value_or(true)) part.unsupported("'add_prefix_space' is true");
    if (part.find_flag("use_regex").value_or(true)) out.expressions.emplace_back(kGpt2);
    out.byte_level = true;
  } else {
    part.unsupported("pre-tokenizers of type '{}' are not known", printable(type, 40));
  }
}

}  // namespace

HfSplitting read_hf_splitting(const HfObject& pre_tokenizer) {
  HfSplitting out;
  read_part(pre_tokenizer, 0, out);
  return out;
}

std::string pre_tokenizer_name(const HfSplitting& splitting, const std::string& architecture,
                               const std::string& source) {
  for (const Known& known : known_splittings()) {
    const bool same = std::equal(known.expressions.begin(), known.expressions.end(), splitting.expressions.begin(),
                                 splitting.expressions.end());
    if (!same) continue;
    if (known.name != "llama-bpe") return std::string(known.name);
    // Several names for one expression: they differ in what else they do.
    return architecture == "glm4moe" ? "glm4" : splitting.ignore_merges ? "llama-bpe" : "smaug-bpe";
  }
  std::string shown;
  for (const std::string& expression : splitting.expressions) {
    shown += fmt::format("{}'{}'", shown.empty() ? "" : ", then ", printable(expression, 400));
  }
  fail(ErrorKind::kUnsupported, "{}: no pre-tokenizer is known that splits text by {}", source,
       shown.empty() ? "nothing" : printable(shown, 2000));
}

}  // namespace tierpack

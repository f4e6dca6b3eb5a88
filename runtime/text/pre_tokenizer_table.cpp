#include "runtime/text/pre_tokenizer_table.h"

// Parts that several expressions share. In all of them \s is Unicode White_Space and the classes are those of
// Unicode 15.1; pre_tokenizer.cpp sees to both. Macros, because only literals join at compile time.
#define CONTRACTION R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))"
#define PREFIX R"([^\r\n\p{L}\p{N}]?)"
#define PUNCTUATION R"( ?[^\s\p{L}\p{N}]+)"
#define SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
// Letters that may open a word (no lower case) and letters that may go on with it (no upper case), as GPT-4o has them.
#define OPENING R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define GOING_ON R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
// The same without Han: whatever is not in any of the other categories.
#define OPENING_NOT_HAN R"([^\p{Han}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}])"
#define GOING_ON_NOT_HAN R"([^\p{Han}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}])"

namespace tierpack::text {

namespace {

using Expressions = std::vector<std::string_view>;

constexpr std::string_view kLlama3 = CONTRACTION "|" PREFIX R"(\p{L}+|\p{N}{1,3}|)" PUNCTUATION R"([\r\n]*|)" SPACES;
constexpr std::string_view kQwen2 = CONTRACTION "|" PREFIX R"(\p{L}+|\p{N}|)" PUNCTUATION R"([\r\n]*|)" SPACES;
constexpr std::string_view kQwen35 =
    CONTRACTION "|" PREFIX R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" SPACES;
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
constexpr std::string_view kGpt4o = PREFIX OPENING "*" GOING_ON "+" CONTRACTION "?|" PREFIX OPENING "+" GOING_ON
                                                   "*" CONTRACTION R"(?|\p{N}{1,3}|)" PUNCTUATION R"([\r\n/]*|)" SPACES;
constexpr std::string_view kTekken =
    PREFIX OPENING "*" GOING_ON "+|" PREFIX OPENING "+" GOING_ON R"(*|\p{N}|)" PUNCTUATION R"([\r\n/]*|)" SPACES;
constexpr std::string_view kYoutu = PREFIX OPENING "*" GOING_ON "+" CONTRACTION "?|" PREFIX OPENING "+" GOING_ON
                                                   "*" CONTRACTION R"(?|\p{N}|)" PUNCTUATION R"([\r\n/]*|)" SPACES;
constexpr std::string_view kKimiK2 =
    R"(\p{Han}+|)" PREFIX OPENING_NOT_HAN "*" GOING_ON_NOT_HAN "+" CONTRACTION "?|" PREFIX OPENING_NOT_HAN
    "+" GOING_ON_NOT_HAN "*" CONTRACTION R"(?|\p{N}{1,3}|)" PUNCTUATION R"([\r\n]*|)" SPACES;
constexpr std::string_view kDeepSeekText =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|)" SPACES;
constexpr std::string_view kCjkAndKana = R"([一-龥぀-ゟ゠-ヿ]+)";
constexpr std::string_view kCjkAndHangul = R"([一-龥ࠀ-一가-퟿]+)";
// A run of spaces at the end of text; the look-behind keeps the search from starting again inside a long run.
constexpr std::string_view kSpacesAtEnd = R"((?<!\s)\s+$)";
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr std::string_view kDeepSeekLatin =
    R"(\s?[)"
    R"(A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕ)"
    R"(ἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳ)"
    R"(Ꙁ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃)"
    R"(]+)";

std::vector<PreTokenizerRules> make_rules() {
  std::vector<PreTokenizerRules> rules;
  const auto add = [&](std::vector<std::string_view> names, Expressions expressions) -> PreTokenizerRules& {
    rules.push_back({std::move(names), std::move(expressions)});
    return rules.back();
  };

  PreTokenizerRules& llama3 = add({"llama3", "llama-v3", "llama-bpe", "laguna", "falcon3", "falcon-h1", "pixtral",
                                   "midm-2.0", "lfm2", "jina-v5-nano"},
                                  {kLlama3});
  llama3.ignore_merges = true;
  llama3.add_bos = true;
  add({"glm4", "chatglm-bpe", "dbrx", "smaug-bpe"}, {kLlama3});
  add({"qwen2", "deepseek-r1-qwen", "kormo", "openpangu", "f2llmv2", "megrez", "hunyuan", "stablelm2", "solar-open",
       "grok-2"},
      {kQwen2});
  add({"qwen35"}, {kQwen35});
  add({"deepseek-v3", "hunyuan-dense", "joyai-llm"}, {R"(\p{N}{1,3})", kCjkAndKana, kDeepSeekText});
  add({"deepseek-coder"}, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kCjkAndHangul, R"(\p{N})"});
  add({"deepseek-llm"},
      {R"([\r\n])", kDeepSeekLatin, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", kSpacesAtEnd, kCjkAndHangul, R"(\p{N}+)"});
  add({"gpt-4o", "llama4", "kanana2", "minimax-m2"}, {kGpt4o});
  PreTokenizerRules& tekken = add({"tekken"}, {kTekken});
  tekken.ignore_merges = true;
  tekken.add_bos = true;
  add({"youtu"},
      {R"([가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+)",
       kYoutu})
      .ignore_merges = true;
  add({"kimi-k2"}, {kKimiK2});

  add({"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
       "modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe", "exaone4", "mpt", "olmo", "jais", "trillion",
       "granite-docling"},
      {kGpt2});
  add({"starcoder", "refact", "command-r", "cohere2_moe", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
      {R"(\p{N})", kGpt2});
  add({"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, R"([0-9][0-9][0-9])"});
  add({"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", R"([0-9][0-9][0-9])"});
  add({"poro-chat", "bloom", "gpt3-finnish"}, {kBloom});
  add({"viking"}, {kBloom, R"(\p{N})"});
  add({"jais-2"},
      {CONTRACTION "|" PREFIX R"(\p{L}+|\p{N}{1,3}|)" PUNCTUATION
                   R"([\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S))"
                   R"(|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"});
  add({"bailingmoe", "bailingmoe2", "llada-moe"},
      {CONTRACTION "|" PREFIX R"(\p{L}+|\p{N}|)" PUNCTUATION R"([\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"});
  add({"seed-coder"}, {CONTRACTION "|" PREFIX R"(\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|)" SPACES});
  // Words of letters with their marks, joined by single spaces; written without nested repetition of the joints.
  add({"exaone-moe"}, {CONTRACTION "|" PREFIX R"(\p{L}\p{M}*+(?: ?\p{L}\p{M}*+)*+|\p{N}|)" PUNCTUATION
                                   R"([\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"});
  add({"chameleon"}, {R"(<sentinel:[0-9]+>)", R"((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)", R"(([\t\n]|    |  ))",
                      R"(\p{N})", R"([\p{P}!-/:-@\[-`{-~])", kGpt2});
  return rules;
}

}  // namespace

std::span<const PreTokenizerRules> pre_tokenizer_rules() {
  static const std::vector<PreTokenizerRules> rules = make_rules();
  return rules;
}

}  // namespace tierpack::text

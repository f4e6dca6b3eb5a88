// Vocabularies, special tokens and chat templates of Hugging Face checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/hf_metadata.h"
#include "tests/support/errors.h"
#include "tests/support/hf_texts.h"

namespace tierpack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::config_with;
using testing_support::hf_tokenizer;
using testing_support::no_integers;
using testing_support::patched;
using testing_support::small_texts;
using testing_support::Thrown;
using testing_support::thrown_by;

// Ten tokens in the model, seven in the tokenizer.
HfCheckpointTexts ten() {
  HfCheckpointTexts texts = small_texts("qwen3_moe");
  texts.config = config_with(texts, R"({"vocab_size": 10})");
  return texts;
}

Metadata read(const HfCheckpointTexts& texts) { return metadata_from_hf(texts, no_integers, false); }

Metadata with_tokenizer(const std::string& patch) {
  HfCheckpointTexts texts = ten();
  texts.tokenizer = patched(texts.tokenizer, patch);
  return read(texts);
}

Thrown refused(const std::string& tokenizer_patch) {
  return thrown_by([&] { with_tokenizer(tokenizer_patch); });
}

Metadata with_settings(const std::string& patch) {
  HfCheckpointTexts texts = ten();
  texts.tokenizer_config = patched(texts.tokenizer_config, patch);
  return read(texts);
}

TEST(HfTokenizer, TokensKindsAndMerges) {
  const Metadata m = read(ten());
  EXPECT_EQ(m.string("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(m.string("tokenizer.ggml.pre"), "qwen2");
  EXPECT_THAT(m.string_array("tokenizer.ggml.tokens"),
              ElementsAre("a", "b", "c", "ab", "abc", "Ġ", "<|endoftext|>", "[PAD7]", "[PAD8]", "[PAD9]"));
  EXPECT_THAT(m.i64_array("tokenizer.ggml.token_type"), ElementsAre(1, 1, 1, 1, 1, 1, 3, 5, 5, 5));
  EXPECT_THAT(m.string_array("tokenizer.ggml.merges"), ElementsAre("a b", "ab c"));
  EXPECT_EQ(m.u64("tokenizer.ggml.eos_token_id"), 6u);
  EXPECT_FALSE(m.has("tokenizer.ggml.bos_token_id"));
  EXPECT_FALSE(m.has("tokenizer.chat_template"));
  EXPECT_FALSE(m.boolean_or("tokenizer.ggml.add_bos_token", true));
}

TEST(HfTokenizer, AddedTokensMayLieAnywhere) {
  const Metadata m = with_tokenizer(
      R"({"added_tokens": [{"id": 9, "content": "<think>", "special": false}, {"id": 0, "content": "a", "special": true},
          {"id": 6, "content": "<|endoftext|>", "special": true}, {"id": 7, "content": "<|x|>", "special": false}]})");
  EXPECT_THAT(m.i64_array("tokenizer.ggml.token_type"), ElementsAre(3, 1, 1, 1, 1, 1, 3, 3, 5, 4));
  EXPECT_EQ(m.string_array("tokenizer.ggml.tokens")[8], "[PAD8]");
}

TEST(HfTokenizer, AddedTokensOfTheSettingsCountToo) {
  const Metadata m = with_settings(
      R"({"added_tokens_decoder": {"6": {"content": "<|endoftext|>", "special": true}, "8": {"content": "<tool>"}}})");
  EXPECT_THAT(m.i64_array("tokenizer.ggml.token_type"), ElementsAre(1, 1, 1, 1, 1, 1, 3, 5, 4, 5));
  for (const char* bad : {R"({"6": {"content": "<|other|>"}})", R"({"10": {"content": "x"}})", R"({"-1": {"content": "x"}})",
                          R"({"7": {}})", R"({"7": {"content": 7}})", R"({"7": {"content": "a"}})", "[]",
                          R"({"99999999999999999999999": {"content": "x"}})"}) {
    const std::string patch = std::string(R"({"added_tokens_decoder": )") + bad + "}";
    EXPECT_EQ(thrown_by([&] { with_settings(patch); }).kind, ErrorKind::kCorrupt) << bad;
  }
}

TEST(HfTokenizer, ContradictionsAreRefused) {
  for (const char* bad :
       {R"({"model": {"vocab": {"z": 0}}})", R"({"model": {"vocab": {"z": 10}}})", R"({"model": {"vocab": {"z": -1}}})",
        R"({"model": {"vocab": {"z": 1.5}}})", R"({"model": {"vocab": {"z": "1"}}})",
        R"({"model": {"vocab": {"z": 18446744073709551615}}})",
        R"({"added_tokens": [{"id": 0, "content": "z", "special": true}]})",
        R"({"added_tokens": [{"id": 7, "content": "a", "special": true}]})",
        R"({"added_tokens": [{"id": 10, "content": "z", "special": true}]})", R"({"added_tokens": [{"id": 7}]})",
        R"({"added_tokens": [{"content": "z"}]})", R"({"added_tokens": [7]})", R"({"model": {"merges": ["a z"]}})",
        R"({"model": {"merges": ["b a"]}})", R"({"model": {"merges": ["ab"]}})", R"({"model": {"merges": [["a"]]}})",
        R"({"model": {"merges": [["a", "b", "c"]]}})", R"({"model": {"merges": ["a b c"]}})",
        R"({"model": {"merges": [3]}})", R"({"model": {"merges": {"a": "b"}}})", R"({"model": 3})"}) {
    const Thrown thrown = refused(bad);
    EXPECT_EQ(thrown.kind, ErrorKind::kCorrupt) << bad << ": " << thrown.message;
    EXPECT_THAT(thrown.message, HasSubstr("small/tokenizer.json")) << bad;
  }
  HfCheckpointTexts texts = ten();
  for (const std::string& bad :
       {std::string("{"), std::string("[]"), std::string("{}"), hf_tokenizer() + "x", "\xff" + hf_tokenizer(),
        std::string(R"({"model": {}, "model": {}})")}) {
    texts.tokenizer = bad;
    const Thrown thrown = thrown_by([&] { read(texts); });
    EXPECT_TRUE(thrown.kind == ErrorKind::kCorrupt || bad == "{}") << bad << ": " << thrown.message;
  }
  // A key of the vocabulary twice.
  texts.tokenizer = hf_tokenizer();
  texts.tokenizer.replace(texts.tokenizer.find("\"b\": 1"), 6, "\"a\": 1");
  EXPECT_EQ(thrown_by([&] { read(texts); }).kind, ErrorKind::kCorrupt);
}

TEST(HfTokenizer, OtherKindsAreNotKnown) {
  for (const char* other :
       {R"({"model": {"type": "Unigram"}})", R"({"model": {"byte_fallback": true}})", R"({"pre_tokenizer": null})",
        R"({"pre_tokenizer": {"type": "Metaspace"}})", R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": []}})",
        R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true}})"}) {
    const Thrown thrown = refused(other);
    EXPECT_TRUE(thrown.kind == ErrorKind::kUnsupported || thrown.kind == ErrorKind::kCorrupt) << other;
    EXPECT_NE(thrown.kind, std::nullopt) << other;
  }
  EXPECT_EQ(refused(R"({"model": {"type": "WordPiece"}})").kind, ErrorKind::kUnsupported);
  HfCheckpointTexts texts = ten();
  Json tokenizer = Json::parse(texts.tokenizer);
  tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\w+strange";
  texts.tokenizer = tokenizer.dump();
  const Thrown thrown = thrown_by([&] { read(texts); });
  EXPECT_EQ(thrown.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(thrown.message, HasSubstr("\\w+strange"));
}

std::string pre_of(const std::vector<std::string>& expressions, bool ignore_merges = false, const char* model = "qwen3_moe") {
  HfCheckpointTexts texts = small_texts(model);
  Json tokenizer = Json::parse(texts.tokenizer);
  Json parts = Json::array();
  for (const std::string& expression : expressions) {
    if (expression == "digits") {
      parts.push_back({{"type", "Digits"}, {"individual_digits", true}});
    } else {
      parts.push_back({{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}});
    }
  }
  parts.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  tokenizer["pre_tokenizer"]["pretokenizers"] = parts;
  tokenizer["model"]["ignore_merges"] = ignore_merges;
  texts.tokenizer = tokenizer.dump();
  return read(texts).string("tokenizer.ggml.pre");
}

TEST(HfTokenizer, PreTokenizersHaveNames) {
  const std::string ending = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string contraction = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";
  const std::string llama3 =
      contraction + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" + ending;
  EXPECT_EQ(pre_of({llama3}, true), "llama-bpe");
  EXPECT_EQ(pre_of({llama3}), "smaug-bpe");
  EXPECT_EQ(pre_of({llama3}, false, "glm4_moe"), "glm4");
  const std::string qwen35 =
      R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" + ending;
  EXPECT_EQ(pre_of({contraction + qwen35}), "qwen35");
  EXPECT_EQ(pre_of({R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))" + qwen35}), "qwen35");
  const std::string upper = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
  const std::string lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  EXPECT_EQ(pre_of({upper + "*" + lower + "+" + contraction + "?|" + upper + "+" + lower + "*" + contraction +
                    R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" + ending}),
            "gpt-4o");
  // Line breaks stand in DeepSeek's file as they are.
  EXPECT_EQ(pre_of({R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
                    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
                    "\r\n"
                    R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
                    "\r\n"
                    R"(]*|\s*[)"
                    "\r\n"
                    R"(]+|\s+(?!\S)|\s+)"}),
            "deepseek-v3");
  EXPECT_EQ(pre_of({"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+", "digits"}), "deepseek-coder");
  HfCheckpointTexts texts = ten();
  texts.tokenizer = patched(texts.tokenizer, R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false,
                                                 "pretokenizers": null}})");
  EXPECT_EQ(read(texts).string("tokenizer.ggml.pre"), "gpt-2");
}

TEST(HfTokenizer, SpecialTokensByTextThenByNumber) {
  const Metadata m = with_settings(R"({"bos_token": {"content": "a"}, "pad_token": "b", "unk_token": "c",
                                       "add_bos_token": true, "add_eos_token": true})");
  EXPECT_EQ(m.u64("tokenizer.ggml.bos_token_id"), 0u);
  EXPECT_EQ(m.u64("tokenizer.ggml.padding_token_id"), 1u);
  EXPECT_EQ(m.u64("tokenizer.ggml.unknown_token_id"), 2u);
  EXPECT_TRUE(m.boolean_or("tokenizer.ggml.add_bos_token", false));
  EXPECT_TRUE(m.boolean_or("tokenizer.ggml.add_eos_token", false));

  HfCheckpointTexts texts = ten();
  texts.tokenizer_config.clear();
  texts.config = config_with(texts, R"({"bos_token_id": 5, "eos_token_id": 4, "pad_token_id": -1})");
  EXPECT_EQ(read(texts).u64("tokenizer.ggml.bos_token_id"), 5u);
  EXPECT_EQ(read(texts).u64("tokenizer.ggml.eos_token_id"), 4u);
  EXPECT_FALSE(read(texts).has("tokenizer.ggml.padding_token_id"));
  // generation_config.json goes first; what else ends an answer is kept when no one would know.
  texts.generation_config = R"({"eos_token_id": [3, 6, 2]})";
  EXPECT_EQ(read(texts).u64("tokenizer.ggml.eos_token_id"), 3u);
  EXPECT_EQ(read(texts).u64("tokenizer.ggml.eot_token_id"), 2u);
  for (const char* bad : {R"({"eos_token_id": 10})", R"({"eos_token_id": [3, 10]})", R"({"eos_token_id": "x"})",
                          R"({"eos_token_id": -2})", R"({"eos_token_id": [[3]]})"}) {
    texts.generation_config = bad;
    EXPECT_EQ(thrown_by([&] { read(texts); }).kind, ErrorKind::kCorrupt) << bad;
  }
  EXPECT_EQ(thrown_by([&] { with_settings(R"({"eos_token": 3})"); }).kind, ErrorKind::kCorrupt);
  EXPECT_EQ(thrown_by([&] { with_settings(R"({"add_bos_token": "yes"})"); }).kind, ErrorKind::kCorrupt);
}

TEST(HfTokenizer, ThePostProcessorSaysWhetherTextsBeginWithAToken) {
  const char* const adds = R"({"type": "Sequence", "processors": [{"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "a", "type_id": 0}}, {"Sequence": {"id": "A"}}]}]})";
  HfCheckpointTexts texts = ten();
  texts.tokenizer = patched(texts.tokenizer, std::string(R"({"post_processor": )") + adds + "}");
  EXPECT_FALSE(read(texts).boolean_or("tokenizer.ggml.add_bos_token", true));  // the settings say no
  texts.tokenizer_config.clear();
  EXPECT_TRUE(read(texts).boolean_or("tokenizer.ggml.add_bos_token", false));
}

TEST(HfTokenizer, ChatTemplates) {
  EXPECT_EQ(with_settings(R"({"chat_template": "{{ x }}"})").string("tokenizer.chat_template"), "{{ x }}");
  const Metadata several = with_settings(
      R"({"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]})");
  EXPECT_EQ(several.string("tokenizer.chat_template"), "D");
  EXPECT_EQ(several.string("tokenizer.chat_template.tool_use"), "T");
  EXPECT_THAT(several.string_array("tokenizer.chat_templates"), ElementsAre("tool_use"));
  HfCheckpointTexts texts = ten();
  texts.tokenizer_config = R"({"chat_template": "old"})";
  texts.chat_template_jinja = "new";
  EXPECT_EQ(read(texts).string("tokenizer.chat_template"), "new");
  texts.chat_template_jinja = "\xff";
  EXPECT_EQ(thrown_by([&] { read(texts); }).kind, ErrorKind::kCorrupt);
  for (const char* bad :
       {"3", R"([{"name": "default"}])", R"([{"name": "a b", "template": "x"}])", R"(["x"])",
        R"([{"name": "x", "template": "1"}, {"name": "x", "template": "2"}])"}) {
    EXPECT_EQ(thrown_by([&] { with_settings(std::string(R"({"chat_template": )") + bad + "}"); }).kind, ErrorKind::kCorrupt)
        << bad;
  }
}

TEST(HfTokenizer, OlderFiles) {
  HfCheckpointTexts texts = ten();
  texts.tokenizer.clear();
  texts.vocab = R"({"a": 0, "b": 1, "ab": 2})";
  texts.merges = "#version: 0.2\r\na b\r\n\r\n";
  texts.tokenizer_config = R"({"added_tokens_decoder": {"3": {"content": "<|endoftext|>", "special": true}}})";
  const Metadata m = read(texts);
  EXPECT_THAT(m.string_array("tokenizer.ggml.merges"), ElementsAre("a b"));
  EXPECT_EQ(m.i64_array("tokenizer.ggml.token_type")[3], 3);
  EXPECT_EQ(m.string("tokenizer.ggml.pre"), "qwen2");
  texts.tokenizer_config = R"({"pretokenize_regex": "x"})";
  EXPECT_EQ(thrown_by([&] { read(texts); }).kind, ErrorKind::kUnsupported);
  texts.tokenizer_config.clear();
  for (const char* bad : {"a", "a z", "a b c", "\xff \xff"}) {
    texts.merges = bad;
    EXPECT_EQ(thrown_by([&] { read(texts); }).kind, ErrorKind::kCorrupt) << bad;
  }
  texts.merges = "a b";
  for (const char* bad : {"[]", R"({"a": 0, "a": 1})", R"({"a": 10})", "{}", R"({"a": 0} x)"}) {
    texts.vocab = bad;
    EXPECT_EQ(thrown_by([&] { read(texts); }).kind, ErrorKind::kCorrupt) << bad;
  }
}

}  // namespace
}  // namespace tierpack

#include "runtime/text/tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/gguf.h"
#include "runtime/text/byte_alphabet.h"
#include "runtime/text/utf8.h"

namespace tierpack::text {
namespace {

using Ids = std::vector<uint32_t>;
using Special = Tokenizer::Special;

MetaValue scalar(ValueType type, MetaValue::Scalar value) { return {type, ValueType::kU32, std::move(value)}; }
MetaValue strings(std::vector<std::string> values) {
  return {ValueType::kArray, ValueType::kString, MetaValue::Array(std::move(values))};
}

// A vocabulary of the 256 bytes (ids 0..255 in byte order) and what a test adds.
struct Builder {
  std::vector<std::string> tokens, merges;
  std::vector<int64_t> types;
  std::string pre = "qwen2", model = "gpt2";
  std::vector<std::pair<std::string, MetaValue>> more;

  Builder() {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      std::string text;
      append_utf8(text, stand_in_of(static_cast<uint8_t>(byte)));
      add(text);
    }
  }
  uint32_t add(std::string text, int64_t type = 1) {
    tokens.push_back(std::move(text));
    types.push_back(type);
    return static_cast<uint32_t>(tokens.size() - 1);
  }
  uint32_t merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return add(left + right);
  }
  Metadata metadata() const {
    Metadata out("test");
    out.add("tokenizer.ggml.model", scalar(ValueType::kString, model));
    out.add("tokenizer.ggml.pre", scalar(ValueType::kString, pre));
    out.add("tokenizer.ggml.tokens", strings(tokens));
    out.add("tokenizer.ggml.merges", strings(merges));
    out.add("tokenizer.ggml.token_type", {ValueType::kArray, ValueType::kI32, MetaValue::Array(types)});
    for (const auto& [key, value] : more) out.add("tokenizer.ggml." + key, value);
    return out;
  }
  Tokenizer build() const { return Tokenizer::from_metadata(metadata()); }
};

ErrorKind kind_of_failure(const Builder& builder) {
  try {
    builder.build();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::kInternal;
}

TEST(Tokenizer, PebbleGivesTheIdsOfItsReference) {
  const Tokenizer tokenizer = Tokenizer::from_metadata(open_gguf(TIERPACK_SOURCE_DIR "/models/pebble").metadata());
  const std::string path = TIERPACK_SOURCE_DIR "/tests/data/text/pebble_ids.json";
  const Json cases = parse_json(read_text_file(path, 1 << 20), path);
  ASSERT_GT(cases.size(), 200u);
  for (const Json& one : cases) {
    const std::string text = one["text"];
    const Ids ids = one["ids"];
    EXPECT_EQ(tokenizer.encode(text, Special::kParse), ids) << text;
    EXPECT_EQ(tokenizer.decode(ids, true), text);
  }
  EXPECT_EQ(tokenizer.size(), 4096u);
  EXPECT_EQ(tokenizer.eos(), tokenizer.find("<|im_end|>"));
  EXPECT_EQ(tokenizer.bos(), -1);
  EXPECT_FALSE(tokenizer.adds_bos());
  EXPECT_TRUE(tokenizer.is_end_of_generation(static_cast<uint32_t>(tokenizer.find("<|im_end|>"))));
  EXPECT_TRUE(tokenizer.is_end_of_generation(static_cast<uint32_t>(tokenizer.find("<|endoftext|>"))));
}

TEST(Tokenizer, MergesByRank) {
  Builder builder;
  const uint32_t bc = builder.merge("b", "c");
  const uint32_t ab = builder.merge("a", "b");
  const uint32_t abc = builder.merge("ab", "c");
  const Tokenizer tokenizer = builder.build();
  EXPECT_EQ(tokenizer.encode("abc", Special::kAsText), Ids({'a', bc}));
  EXPECT_EQ(tokenizer.encode("abab", Special::kAsText), Ids({ab, ab}));
  EXPECT_EQ(tokenizer.token_bytes(abc), "abc");
  EXPECT_EQ(tokenizer.encode("", Special::kParse), Ids());
}

TEST(Tokenizer, IgnoreMergesTakesAWholePiece) {
  Builder builder;
  const uint32_t bc = builder.merge("b", "c");
  const uint32_t abc = builder.merge("ab", "c");
  EXPECT_EQ(builder.build().encode("abc", Special::kAsText), Ids({'a', bc}));
  builder.pre = "llama-bpe";
  EXPECT_EQ(builder.build().encode("abc", Special::kAsText), Ids({abc}));
}

TEST(Tokenizer, ControlTokensOnlyWhenParsedUserDefinedAlways) {
  Builder builder;
  const uint32_t end = builder.add("<|end|>", 3);
  const uint32_t think = builder.add("<think>", 4);
  const Tokenizer tokenizer = builder.build();
  EXPECT_EQ(tokenizer.encode("<|end|><think>", Special::kParse), Ids({end, think}));
  const Ids as_text = tokenizer.encode("<|end|><think>", Special::kAsText);
  EXPECT_EQ(as_text.size(), 8u);
  EXPECT_EQ(as_text.back(), think);
  EXPECT_EQ(tokenizer.decode(as_text), "<|end|><think>");
  EXPECT_EQ(tokenizer.decode(Ids({'a', end, think})), "a<think>");
  EXPECT_EQ(tokenizer.decode(Ids({'a', end, think}), true), "a<|end|><think>");
  EXPECT_EQ(tokenizer.token_bytes(end), "");
  EXPECT_TRUE(tokenizer.is_control(end));
  EXPECT_FALSE(tokenizer.is_control(think));
  EXPECT_EQ(tokenizer.end_tokens(), Ids({end}));
}

TEST(Tokenizer, TextAroundSpecialTokensIsSplitOnItsOwn) {
  Builder builder;
  const uint32_t x = builder.add("<x>", 3);
  const uint32_t spaces = builder.merge("Ġ", "Ġ");
  const Tokenizer tokenizer = builder.build();
  EXPECT_EQ(tokenizer.encode("  <x>  a", Special::kParse), Ids({spaces, x, ' ', ' ', 'a'}));
}

TEST(Tokenizer, InvalidUtf8BecomesReplacementCharacters) {
  const Tokenizer tokenizer = Builder().build();
  EXPECT_EQ(tokenizer.encode("a\xFFz", Special::kAsText), Ids({'a', 0xEF, 0xBF, 0xBD, 'z'}));
  EXPECT_EQ(tokenizer.decode(Ids({0xFF})), "\xFF");  // bytes of tokens are given as they are
}

TEST(Tokenizer, SymbolsWithoutATokenFallBackToBytes) {
  Builder builder;
  builder.merges.push_back("a b");  // "ab" is no token
  const Tokenizer tokenizer = builder.build();
  EXPECT_EQ(tokenizer.encode("abc", Special::kAsText), Ids({'a', 'b', 'c'}));
}

TEST(Tokenizer, BytesWithoutATokenBecomeUnknownOrNothing) {
  Builder builder;
  builder.tokens['q'] = "unused";
  EXPECT_EQ(builder.build().encode("aq", Special::kAsText), Ids({'a'}));
  const uint32_t unknown = builder.add("<unk>", 2);
  builder.more.emplace_back("unknown_token_id", scalar(ValueType::kU32, uint64_t{unknown}));
  EXPECT_EQ(builder.build().encode("aq", Special::kAsText), Ids({'a', unknown}));
}

TEST(Tokenizer, EmptyAndDuplicateTexts) {
  Builder builder;
  builder.add("");
  builder.add("", 3);
  builder.add("<x>", 3);
  const uint32_t second = builder.add("<x>", 3);
  const Tokenizer tokenizer = builder.build();
  EXPECT_EQ(tokenizer.encode("<x>", Special::kParse), Ids({second}));
  EXPECT_EQ(tokenizer.find("<x>"), second);
  EXPECT_EQ(tokenizer.find(""), -1);
  EXPECT_EQ(tokenizer.token_bytes(256), "");
}

TEST(Tokenizer, BosIsAddedOnceAndOnlyToPrompts) {
  Builder builder;
  const uint32_t bos = builder.add("<s>", 3);
  builder.more.emplace_back("bos_token_id", scalar(ValueType::kU32, uint64_t{bos}));
  EXPECT_FALSE(builder.build().adds_bos());
  EXPECT_EQ(builder.build().encode_prompt("a", Special::kParse), Ids({'a'}));
  builder.more.emplace_back("add_bos_token", scalar(ValueType::kBool, true));
  const Tokenizer tokenizer = builder.build();
  EXPECT_EQ(tokenizer.bos(), bos);
  EXPECT_EQ(tokenizer.encode("a", Special::kParse), Ids({'a'}));
  EXPECT_EQ(tokenizer.encode_prompt("a", Special::kParse), Ids({bos, 'a'}));
  EXPECT_EQ(tokenizer.encode_prompt("<s>a", Special::kParse), Ids({bos, 'a'}));
  EXPECT_EQ(tokenizer.encode_prompt("", Special::kParse), Ids({bos}));
  builder.more.pop_back();
  builder.pre = "llama-bpe";  // adds it unless told otherwise
  EXPECT_TRUE(builder.build().adds_bos());
}

TEST(Tokenizer, EndTokensComeFromKeysAndKnownTexts) {
  Builder builder;
  const uint32_t fim = builder.add("<fim>", 3);
  const uint32_t eot = builder.add("<|im_end|>", 3);
  builder.add("</s>", 1);  // spelled by a program text, no added token
  builder.more.emplace_back("fim_pad_token_id", scalar(ValueType::kU32, uint64_t{fim}));
  builder.more.emplace_back("eot_token_id", scalar(ValueType::kU32, uint64_t{999999}));  // beyond the vocabulary
  EXPECT_EQ(builder.build().end_tokens(), Ids({fim, eot}));
}

TEST(Tokenizer, GptOssKeepsItsChannelsVisibleAndGoesOnAfterEnd) {
  Builder builder;
  const uint32_t end = builder.add("<|end|>", 3);
  const uint32_t call = builder.add("<|call|>", 3);
  const uint32_t ret = builder.add("<|return|>", 3);
  const uint32_t channel = builder.add("<|channel|>", 3);
  const Tokenizer tokenizer = builder.build();
  EXPECT_EQ(tokenizer.end_tokens(), Ids({call, ret}));
  EXPECT_EQ(tokenizer.token_bytes(channel), "<|channel|>");
  EXPECT_EQ(tokenizer.token_bytes(end), "<|end|>");
  EXPECT_EQ(tokenizer.token_bytes(call), "");
}

TEST(Tokenizer, GlmEndsAtTheNextSpeaker) {
  Builder builder;
  builder.pre = "glm4";
  const uint32_t user = builder.add("<|user|>", 3);
  const uint32_t observation = builder.add("<|observation|>", 3);
  EXPECT_EQ(builder.build().end_tokens(), Ids({user, observation}));
}

TEST(Tokenizer, ByteAndUnusedTokens) {
  Builder builder;
  const uint32_t byte = builder.add("<0x0A>", 6);
  const uint32_t pad = builder.add("[PAD7]", 5);
  const Tokenizer tokenizer = builder.build();
  EXPECT_EQ(tokenizer.token_bytes(byte), "\n");
  EXPECT_EQ(tokenizer.token_bytes(pad), "");
}

TEST(Tokenizer, ContradictionsAreCorrupt) {
  Builder types;
  types.types.pop_back();
  EXPECT_EQ(kind_of_failure(types), ErrorKind::kCorrupt);
  Builder kind;
  kind.types[3] = 7;
  EXPECT_EQ(kind_of_failure(kind), ErrorKind::kCorrupt);
  for (const char* line : {"ab", "", " a", "a "}) {
    Builder merge;
    merge.merges.push_back(line);
    EXPECT_EQ(kind_of_failure(merge), ErrorKind::kCorrupt) << line;
  }
  Builder long_text;
  long_text.add(std::string(5000, 'x'), 3);
  EXPECT_EQ(kind_of_failure(long_text), ErrorKind::kCorrupt);
  Builder none;
  none.tokens.clear();
  none.types.clear();
  EXPECT_EQ(kind_of_failure(none), ErrorKind::kCorrupt);
}

TEST(Tokenizer, WhatIsNotSupportedIsNamed) {
  Builder pre;
  pre.pre = "superbpe";
  EXPECT_EQ(kind_of_failure(pre), ErrorKind::kUnsupported);
  Builder model;
  model.model = "llama";
  EXPECT_EQ(kind_of_failure(model), ErrorKind::kUnsupported);
  Metadata metadata("test");
  metadata.add("tokenizer.ggml.model", scalar(ValueType::kString, std::string("gpt2")));
  metadata.add("tokenizer.ggml.tokens", strings({"a"}));
  EXPECT_THROW(Tokenizer::from_metadata(metadata), Error);  // no pre-tokenizer named
}

TEST(Tokenizer, IdsBeyondTheVocabularyAreRefused) {
  const Tokenizer tokenizer = Builder().build();
  EXPECT_THROW(tokenizer.token_bytes(256), Error);
  EXPECT_THROW(tokenizer.decode(Ids({1, 4000000000})), Error);
  EXPECT_THROW(tokenizer.is_control(256), Error);
  EXPECT_THROW(tokenizer.is_end_of_generation(256), Error);
}

TEST(Tokenizer, AMegabyteWithoutSpacesTakesNoQuadraticTime) {
  Builder builder;
  builder.merge("a", "a");
  builder.merge("aa", "aa");
  builder.merge("aaaa", "aaaa");
  const Tokenizer tokenizer = builder.build();
  EXPECT_EQ(tokenizer.encode(std::string(1 << 20, 'a'), Special::kParse).size(), (1u << 20) / 8);
}

}  // namespace
}  // namespace tierpack::text

// The texts of a Hugging Face checkpoint from arbitrary bytes: an Error, or metadata that can be written as a GGUF head
// and read back. The input is config.json, a NUL, tokenizer.json, a NUL, tokenizer_config.json, a NUL,
// generation_config.json, a NUL, vocab.json, a NUL and merges.txt; what is left out is empty.
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/hf_metadata.h"
#include "formats/model_config.h"

using namespace tierpack;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto next = [&] {
    const size_t end = std::min(rest.find('\0'), rest.size());
    const std::string text(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return text;
  };
  HfCheckpointTexts texts;
  for (std::string* text : {&texts.config, &texts.tokenizer, &texts.tokenizer_config, &texts.generation_config,
                            &texts.vocab, &texts.merges}) {
    *text = next();
  }
  texts.source = "fuzz";
  const auto integers = [&](std::string_view name) -> std::optional<std::vector<int64_t>> {
    if (size % 2 == 0 || !name.ends_with("layer_multipliers")) return std::nullopt;
    return std::vector<int64_t>{3, 5, -static_cast<int64_t>(size % 3)};
  };
  for (const bool has_mtp : {false, true}) {
    try {
      const Metadata metadata = metadata_from_hf(texts, integers, has_mtp);
      const std::vector<std::byte> head = encode_gguf_header(metadata, {}, 32);
      const Metadata again = read_gguf_header(MemorySource(head, "again")).metadata;
      if (again.entries().size() != metadata.entries().size()) std::abort();
      for (const auto& [key, value] : metadata.entries()) {
        const MetaValue* found = again.find(key);
        if (found == nullptr || found->value != value.value) std::abort();
      }
      read_model_config(again);
    } catch (const Error& e) {
      if (std::string_view(e.what()).starts_with("again")) std::abort();
    }
  }
  return 0;
}

// Writes a random Mixture-of-Experts GGUF for scripts: moe_gguf_tool DIRECTORY NAME [key=value]...
// Keys: seed layers experts hidden ff key_rows alignment shards merged shuffled dirty_padding table_row table_rows trailing.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "tests/support/moe_gguf.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: moe_gguf_tool DIRECTORY NAME [key=value]...\n");
    return 2;
  }
  tierpack::testing_support::MoeGguf model;
  std::map<std::string, uint64_t> values;
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    if (equals == std::string::npos) return 2;
    values[word.substr(0, equals)] = std::strtoull(word.c_str() + equals + 1, nullptr, 10);
  }
  const auto take = [&](const char* key, auto& into) {
    const auto found = values.find(key);
    if (found == values.end()) return;
    into = static_cast<std::remove_reference_t<decltype(into)>>(found->second);
    values.erase(found);
  };
  take("seed", model.seed);
  take("layers", model.layers);
  take("experts", model.experts);
  take("hidden", model.hidden);
  take("ff", model.ff);
  take("key_rows", model.key_rows);
  take("alignment", model.alignment);
  take("shards", model.shards);
  take("merged", model.merged);
  take("shuffled", model.shuffled);
  take("dirty_padding", model.dirty_padding);
  take("table_row", model.table_row);
  take("table_rows", model.table_rows);
  take("trailing", model.trailing);
  if (!values.empty()) {
    std::fprintf(stderr, "moe_gguf_tool: unknown key %s\n", values.begin()->first.c_str());
    return 2;
  }
  std::printf("%s\n", tierpack::testing_support::MoeGgufWriter(model).write(argv[1], argv[2]).c_str());
  return 0;
}

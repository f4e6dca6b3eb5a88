// tokenizer_tool MODEL.gguf encode|encode-text|decode: drives the tokenizer from scripts. Reads one JSON value a line
// from stdin and writes one a line: encode (special tokens parsed) and encode-text (not) turn strings into arrays of
// ids, decode turns arrays of ids into strings, control tokens included.
#include <cstdio>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "formats/gguf.h"
#include "runtime/text/tokenizer.h"

namespace {

int run(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: tokenizer_tool MODEL.gguf encode|encode-text|decode\n");
    return 2;
  }
  using tierpack::Json;
  using tierpack::text::Tokenizer;
  const Tokenizer tokenizer = Tokenizer::from_metadata(tierpack::open_gguf(argv[1]).metadata());
  const std::string mode = argv[2];
  std::string line;
  while (std::getline(std::cin, line)) {
    const Json in = tierpack::parse_json(line, "stdin");
    Json out;
    if (mode == "decode") {
      out = tokenizer.decode(in.get<std::vector<uint32_t>>(), true);
    } else {
      out = tokenizer.encode(in.get<std::string>(),
                             mode == "encode" ? Tokenizer::Special::kParse : Tokenizer::Special::kAsText);
    }
    std::cout << out.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tokenizer_tool: %s\n", error.what());
    return 1;
  }
}

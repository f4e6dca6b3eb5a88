// template_tool TEMPLATE_FILE [--now SECONDS]: renders a chat template from scripts. Reads one JSON value a line from
// stdin, the variables, and writes one a line: {"text": ...} or {"error": kind, "message": ...}. With "-" as the file,
// every line is {"template": ..., "variables": ...}.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "runtime/text/chat_template.h"

namespace {

using tierpack::Json;
using tierpack::text::ChatTemplate;

int run(int argc, char** argv) {
  if (argc != 2 && !(argc == 4 && std::string(argv[2]) == "--now")) {
    std::fprintf(stderr, "usage: template_tool TEMPLATE_FILE|- [--now SECONDS]\n");
    return 2;
  }
  const int64_t now = argc == 4 ? std::atoll(argv[3]) : 0;
  const std::string file = argv[1];
  std::optional<ChatTemplate> fixed;
  if (file != "-") fixed.emplace(tierpack::read_text_file(file, 16 << 20));
  std::string line;
  while (std::getline(std::cin, line)) {
    Json out;
    try {
      if (fixed) {
        out["text"] = fixed->render(line, now);
      } else {
        const nlohmann::ordered_json in = nlohmann::ordered_json::parse(line);
        // The variables keep their own spelling of numbers.
        const std::string variables =
            in.at("variables").is_string() ? in.at("variables").get<std::string>() : in.at("variables").dump();
        out["text"] = ChatTemplate(in.at("template").get<std::string>()).render(variables, now);
      }
    } catch (const tierpack::Error& error) {
      out["error"] = tierpack::kind_name(error.kind());
      out["message"] = error.what();
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
    std::fprintf(stderr, "template_tool: %s\n", error.what());
    return 1;
  }
}

// What a subcommand is to main.cpp: a name, a line of help, and a function that declares its options.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace tierpack {

// Runs a parsed command and returns the exit code; failures are thrown.
using CommandRun = std::function<int()>;

struct Command {
  const char* name;
  const char* summary;
  // Declares options on `app` (description and examples in the footer included) and returns what to run after parsing.
  CommandRun (*setup)(CLI::App& app);
};

}  // namespace tierpack

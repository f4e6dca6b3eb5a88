// A command as a user calls it, in this process.
#pragma once

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "base/command.h"

namespace tierpack::testing_support {

// Runs the command that `setup` declares with `arguments`, expects exit code 0, and returns what it printed on stdout.
inline std::string run_command(CommandRun (*setup)(CLI::App&), std::vector<std::string> arguments) {
  CLI::App app;
  const CommandRun run = setup(app);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them last first
  app.parse(arguments);
  testing::internal::CaptureStdout();
  std::exception_ptr problem;
  try {
    EXPECT_EQ(run(), 0);
  } catch (...) {
    problem = std::current_exception();
  }
  const std::string out = testing::internal::GetCapturedStdout();
  if (problem) std::rethrow_exception(problem);
  return out;
}

}  // namespace tierpack::testing_support

// Shell completions and man pages, generated from the options that the commands declare, so that they are never stale.
#pragma once

#include <string>
#include <string_view>

#include "base/command.h"

namespace tierpack {

// Completion script of `app` and its subcommands for "bash", "zsh" or "fish"; throws kUsage for another shell.
std::string completion_script(const CLI::App& app, std::string_view shell);

// One man page (roff, section 1) that covers `app` and every subcommand.
std::string man_page(const CLI::App& app, std::string_view version);

// The command `completion SHELL|man`, which prints one of them. `root` must outlive the returned closure.
CommandRun setup_completion(CLI::App& app, const CLI::App& root, std::string_view version);

}  // namespace tierpack

// The interactive half of `run`: a conversation read from the terminal line by line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/chat_format.h"
#include "runtime/generate.h"

namespace tierpack {

struct ConversationOptions {
  text::SamplerOptions sampling;
  bool fixed_seed = false;  // else every answer draws its own
  uint32_t max_tokens = 0;
  std::vector<std::string> stop;
  std::string system;
  std::optional<bool> thinking;  // template argument enable_thinking
};

// One line of input, read with getline. kInterrupted: Ctrl-C at the prompt.
enum class LineResult { kLine, kEnd, kInterrupted };

// A template's variables for these messages.
std::string chat_variables(const std::string& messages_json, const std::optional<bool>& thinking);

// Talks until /quit, end of input or two interrupts; returns the exit code.
int converse(Generator& generator, const ChatFormat& format, const ConversationOptions& options);

}  // namespace tierpack

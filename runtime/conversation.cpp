#include "runtime/conversation.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "runtime/engine_cli.h"
#include "runtime/terminal_text.h"

namespace tierpack {

namespace {

constexpr const char* kHelp =
    "  /clear          forget the conversation\n"
    "  /system TEXT    start again with this system message; without TEXT, with none\n"
    "  /seed N         use this seed from now on; without N, a new one for each answer\n"
    "  /save FILE      write the conversation as JSON messages\n"
    "  /quit           leave (also Ctrl-D)\n"
    "  A line that ends with \\ goes on. Ctrl-C stops an answer.";

struct Line {
  LineResult result = LineResult::kEnd;
  std::string text;
};

// The terminal edits the line. A signal interrupts the read.
Line read_line(const char* prompt) {
  std::fputs(prompt, stderr);
  std::fflush(stderr);
  char* buffer = nullptr;
  size_t capacity = 0;
  errno = 0;
  const ssize_t length = ::getline(&buffer, &capacity, stdin);
  const bool signal = length < 0 && errno == EINTR;
  Line line;
  if (length >= 0) {
    line.result = LineResult::kLine;
    line.text.assign(buffer, static_cast<size_t>(length));
    if (line.text.ends_with('\n')) line.text.pop_back();
  } else if (signal) {
    line.result = LineResult::kInterrupted;
    std::clearerr(stdin);
  }
  std::free(buffer);
  return line;
}

class Conversation {
 public:
  Conversation(Generator& generator, const ChatFormat& format, const ConversationOptions& options)
      : generator_(generator), format_(format), options_(options) {
    clear();
  }

  int run() {
    log_info("Type a message; /help lists the commands.");
    bool leaving = false;
    for (;;) {
      const Line line = read_message();
      if (line.result == LineResult::kEnd) {
        std::fputc('\n', stderr);
        return 0;
      }
      if (line.result == LineResult::kInterrupted) {
        take_interrupt();
        std::fputc('\n', stderr);
        if (leaving) return exit_code(ErrorKind::kInterrupted);
        leaving = true;
        log_info("Ctrl-C again or /quit to leave.");
        continue;
      }
      leaving = false;
      if (line.text.find_first_not_of(" \t") == std::string::npos) continue;
      if (line.text == "/quit" || line.text == "/exit") return 0;
      try {
        if (line.text.starts_with('/')) {
          command(line.text);
        } else {
          answer(line.text);
        }
      } catch (const Error& e) {
        // What was typed cannot be done; the conversation goes on.
        if (e.kind() != ErrorKind::kUsage && e.kind() != ErrorKind::kIo) throw;
        log_error(e.what());
      }
    }
  }

 private:
  static Line read_message() {
    Line line = read_line("> ");
    while (line.result == LineResult::kLine && line.text.ends_with('\\')) {
      line.text.back() = '\n';
      const Line more = read_line("  ");
      if (more.result == LineResult::kInterrupted) return more;
      line.text += more.text;
      if (more.result == LineResult::kEnd) break;
    }
    return line;
  }

  void clear() {
    messages_ = Json::array();
    if (!options_.system.empty()) messages_.push_back({{"role", "system"}, {"content", options_.system}});
    generator_.clear();
  }

  void command(const std::string& line) {
    const size_t space = line.find_first_of(" \t");
    const std::string name = line.substr(0, space);
    const size_t start = space == std::string::npos ? std::string::npos : line.find_first_not_of(" \t", space);
    const std::string argument = start == std::string::npos ? "" : line.substr(start);
    if (name == "/help") {
      std::fprintf(stderr, "%s\n", kHelp);
    } else if (name == "/clear") {
      clear();
    } else if (name == "/system") {
      options_.system = argument;
      clear();
    } else if (name == "/seed") {
      set_seed(argument);
    } else if (name == "/save") {
      if (argument.empty()) fail(ErrorKind::kUsage, "/save needs a file name");
      write_file_atomically(argument, as_bytes(dump_json(messages_)));
      log_info("written: " + argument);
    } else {
      fail(ErrorKind::kUsage, "{} is not a command; /help lists them", name);
    }
  }

  void set_seed(const std::string& argument) {
    options_.fixed_seed = !argument.empty();
    if (argument.empty()) return;
    char* end = nullptr;
    errno = 0;
    options_.sampling.seed = std::strtoull(argument.c_str(), &end, 10);
    if (errno != 0 || *end != '\0' || argument.front() == '-') {
      options_.fixed_seed = false;
      fail(ErrorKind::kUsage, "/seed {}: expected a whole number from 0 to 2^64 - 1", argument);
    }
  }

  void answer(const std::string& question) {
    messages_.push_back({{"role", "user"}, {"content", question}});
    std::string text;
    std::string reasoning;
    TerminalText out(stdout, TerminalText::Look::kPlain);
    TerminalText aside(stderr, TerminalText::Look::kDim);
    try {
      ChatPrompt prompt = format_.prompt(chat_variables(messages_.dump(), options_.thinking));
      GenerateRequest request;
      request.prompt = std::move(prompt.ids);
      request.reasoning = prompt.reasoning;
      request.sampling = options_.sampling;
      if (!options_.fixed_seed) request.sampling.seed = random_seed();
      request.max_tokens = options_.max_tokens;
      request.stop = options_.stop;
      const GenerateResult result = generator_.generate(
          request,
          [&](TextKind kind, std::string_view piece) {
            const bool thought = kind == TextKind::kReasoning;
            (thought ? reasoning : text) += piece;
            if (!thought) aside.end();
            (thought ? aside : out).write(piece);
          },
          [] { return interrupted(); });
      aside.end();
      out.end();
      take_interrupt();
      report(result, request.sampling.seed);
    } catch (...) {
      messages_.erase(messages_.end() - 1);  // the question did not get through
      throw;
    }
    Json message = {{"role", "assistant"}, {"content", text}};
    if (!reasoning.empty()) message["reasoning_content"] = reasoning;
    messages_.push_back(std::move(message));
  }

  static void report(const GenerateResult& result, uint64_t seed) {
    if (result.finish == FinishReason::kCancelled) log_info("(stopped)");
    if (result.finish == FinishReason::kLength) log_info("(cut: the limit of tokens is reached)");
    log_detail(fmt::format("prompt {} tokens ({} reused), {:.1f}/s; answer {} tokens, {:.1f}/s; seed {}; logits {}",
                           result.prompt_tokens, result.reused_tokens, result.prefill_rate(), result.tokens.size(),
                           result.decode_rate(), seed, result.logits.hex()));
  }

  Generator& generator_;
  const ChatFormat& format_;
  ConversationOptions options_;
  Json messages_;
};

}  // namespace

std::string chat_variables(const std::string& messages_json, const std::optional<bool>& thinking) {
  Json variables = {{"messages", parse_json(messages_json, "messages")}};
  if (thinking) variables["enable_thinking"] = *thinking;
  return variables.dump();
}

int converse(Generator& generator, const ChatFormat& format, const ConversationOptions& options) {
  return Conversation(generator, format, options).run();
}

}  // namespace tierpack

#include "runtime/run.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "runtime/conversation.h"
#include "runtime/engine_cli.h"
#include "runtime/expert_report.h"
#include "runtime/terminal_text.h"

namespace tierpack {

namespace {

constexpr size_t kPromptBytesMax = size_t{64} << 20;

struct RunOptions {
  EngineOptions engine;
  ConversationOptions chat;
  std::string prompt;
  bool prompt_given = false;
  bool raw = false;
  bool no_think = false;
  bool json = false;
};

std::string read_stdin() {
  std::string text;
  char buffer[1 << 16];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) {
    text.append(buffer, n);
    if (text.size() > kPromptBytesMax) {
      fail(ErrorKind::kUsage, "the prompt on standard input is larger than {}", format_size(kPromptBytesMax));
    }
  }
  throw_if_interrupted();
  if (std::ferror(stdin) != 0) fail(ErrorKind::kIo, "standard input cannot be read");
  return text;
}

GenerateRequest make_request(const RunOptions& options, const Engine& engine, const std::string& prompt) {
  GenerateRequest request;
  if (options.raw) {
    request.prompt = engine.tokenizer().encode_prompt(prompt, text::Tokenizer::Special::kParse);
  } else {
    const ChatFormat format(engine.pack().metadata(), engine.tokenizer());
    Json messages = Json::array();
    if (!options.chat.system.empty()) messages.push_back({{"role", "system"}, {"content", options.chat.system}});
    messages.push_back({{"role", "user"}, {"content", prompt}});
    ChatPrompt chat = format.prompt(
        chat_variables(messages.dump(-1, ' ', false, Json::error_handler_t::replace), options.chat.thinking));
    request.prompt = std::move(chat.ids);
    request.reasoning = chat.reasoning;
  }
  request.sampling = options.chat.sampling;
  request.max_tokens = options.chat.max_tokens;
  request.stop = options.chat.stop;
  return request;
}

void print_statistics(const GenerateResult& result, const RunOptions& options) {
  log_info(fmt::format("prompt {} tokens, {:.1f}/s; answer {} tokens, {:.1f}/s, first after {:.2f} s; ended by {}",
                       result.prompt_tokens, result.prefill_rate(), result.tokens.size(), result.decode_rate(),
                       result.prefill_s, finish_reason_name(result.finish)));
  log_info(expert_summary(result.experts));
  log_info(
      fmt::format("logits {}{}", result.logits.hex(),
                  options.chat.sampling.temperature > 0 ? fmt::format("; seed {}", options.chat.sampling.seed) : ""));
}

void print_json(const GenerateResult& result, const RunOptions& options, const std::string& answer,
                const std::string& reasoning) {
  Json out = {{"answer", answer}};
  if (!reasoning.empty()) out["reasoning"] = reasoning;
  out["finish_reason"] = finish_reason_name(result.finish);
  out["prompt_tokens"] = result.prompt_tokens;
  out["completion_tokens"] = result.tokens.size();
  out["tokens"] = result.tokens;
  out["prefill_s"] = result.prefill_s;
  out["prefill_tokens_per_s"] = result.prefill_rate();
  out["decode_s"] = result.decode_s;
  out["decode_tokens_per_s"] = result.decode_rate();
  out["seed"] = options.chat.sampling.seed;
  out["logits_xxh3"] = result.logits.hex();
  out["experts"] = expert_json(result.experts);
  fmt::print("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace));
}

int answer_once(const RunOptions& options, Engine& engine, const std::string& prompt) {
  const GenerateRequest request = make_request(options, engine, prompt);
  Generator generator(engine);
  TerminalText out(stdout, TerminalText::Look::kPlain);
  TerminalText aside(stderr, TerminalText::Look::kDim);
  std::string answer;
  std::string reasoning;
  const GenerateResult result = generator.generate(
      request,
      [&](TextKind kind, std::string_view piece) {
        const bool thought = kind == TextKind::kReasoning;
        (thought ? reasoning : answer) += piece;
        if (options.json || (thought && log_level() == LogLevel::kQuiet)) return;
        if (!thought) aside.end();
        (thought ? aside : out).write(piece);
      },
      [] { return interrupted(); });
  aside.end();
  out.end();
  if (options.json) print_json(result, options, answer, reasoning);
  print_statistics(result, options);
  return result.finish == FinishReason::kCancelled ? exit_code(ErrorKind::kInterrupted) : 0;
}

int run_command(RunOptions options) {
  if (!options.chat.fixed_seed) options.chat.sampling.seed = random_seed();
  if (options.no_think) options.chat.thinking = false;
  const text::Sampler check(options.chat.sampling);  // refuses bad options before the model is loaded
  const bool from_stdin = options.prompt_given ? options.prompt == "-" : ::isatty(STDIN_FILENO) == 0;
  const bool interactive = !options.prompt_given && !from_stdin;
  if (interactive && (options.raw || options.json)) {
    fail(ErrorKind::kUsage, "{} needs a prompt: give one with -p TEXT or on standard input",
         options.raw ? "--raw" : "--json");
  }
  if (options.raw && !options.chat.system.empty()) {
    fail(ErrorKind::kUsage, "--system belongs to the chat template, which --raw leaves out");
  }
  std::string prompt = options.prompt;
  if (from_stdin) {
    prompt = read_stdin();
    if (!options.raw && prompt.ends_with('\n')) prompt.pop_back();
  }
  if (!interactive && prompt.empty())
    fail(ErrorKind::kUsage, "the prompt is empty; give one with -p TEXT or on standard input");

  const std::unique_ptr<Engine> engine =
      open_engine(options.engine, options.json ? ProgressStyle::kSilent : ProgressStyle::kAuto);
  const int status = [&] {
    if (!interactive) return answer_once(options, *engine, prompt);
    const ChatFormat format(engine->pack().metadata(), engine->tokenizer());
    Generator generator(*engine);
    return converse(generator, format, options.chat);
  }();
  log_detail("\n" + expert_layer_table(engine->expert_layer_counters()));
  if (const std::string problem = engine->save_learned(); !problem.empty()) log_warning(problem);
  return status;
}

}  // namespace

CommandRun setup_run(CLI::App& app) {
  const auto options = std::make_shared<RunOptions>();
  app.description(
      "Answers one prompt (-p TEXT, or what is piped in), or without one opens a conversation in the terminal. The "
      "answer goes to stdout; reasoning, speed and the logits' fingerprint go to stderr.");
  add_engine_options(app, options->engine);
  add_workload_option(app, options->engine);
  CLI::Option* prompt = app.add_option("-p,--prompt", options->prompt, "The user's message; - = standard input");
  app.add_flag("--raw", options->raw, "Give the prompt to the model without its chat template");
  app.add_option("--system", options->chat.system, "System message");
  app.add_flag("--no-think", options->no_think,
               "Ask the chat template to leave reasoning out (enable_thinking = false)");
  add_sampling_options(app, options->chat.sampling);
  CLI::Option* seed = app.add_option("--seed", options->chat.sampling.seed, "Seed of the choices; random if not given");
  app.add_option("--max-tokens", options->chat.max_tokens,
                 "End the answer after this many tokens; 0 = the context's end")
      ->capture_default_str();
  app.add_option("--stop", options->chat.stop, "End the answer before this text; may be given several times")
      ->allow_extra_args(false);
  app.add_flag("--json", options->json, "Print one JSON object with the answer and its figures instead of the text");
  app.footer(
      "Examples:\n"
      "  tierpack run pebble.tierpack                                   a conversation\n"
      "  tierpack run pebble.tierpack -p 'What is the capital of France?' --temp 0\n"
      "  git diff | tierpack run model.tierpack --system 'Review this change.'\n"
      "  tierpack run pebble.tierpack --raw -p 'Once upon a time' --max-tokens 64 --seed 7");
  return [options, prompt, seed] {
    options->prompt_given = prompt->count() > 0;
    options->chat.fixed_seed = seed->count() > 0;
    return run_command(*options);
  };
}

}  // namespace tierpack

#include "runtime/server/serve.h"

#include <unistd.h>

#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "runtime/engine_cli.h"
#include "runtime/server/guards.h"
#include "runtime/server/server.h"

namespace tierpack::server {

namespace {

constexpr uint64_t kKeyFileBytesMax = 64 << 10;

struct ServeOptions {
  EngineOptions engine;
  ServerOptions server;
  std::filesystem::path api_key_file;
  std::string max_request_bytes = "16MiB";
  double grace_s = 10;
  bool json = false;
};

// One key a line; blank lines and lines that begin with # are skipped.
std::vector<std::string> read_keys(const std::filesystem::path& path) {
  const std::string text = read_text_file(path, kKeyFileBytesMax);
  std::vector<std::string> keys;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
    while (!line.empty() && is_space(line.back())) line.pop_back();
    line.erase(0, static_cast<size_t>(std::find_if_not(line.begin(), line.end(), is_space) - line.begin()));
    if (!line.empty() && line.front() != '#') keys.push_back(std::move(line));
  }
  if (keys.empty()) fail(ErrorKind::kUsage, "--api-key-file {}: no key in it; write one a line", path.string());
  const auto mode = std::filesystem::status(path).permissions();
  if ((mode & std::filesystem::perms::others_read) != std::filesystem::perms::none) {
    log_warning(path.string() + ": every user of this machine can read these keys; chmod 600 it");
  }
  return keys;
}

ServedModel load(const EngineOptions& options, const std::function<void(uint64_t, uint64_t)>& on_load) {
  EngineOptions engine_options = options;
  engine_options.on_load = on_load;
  use_tuned_settings(engine_options);
  ServedModel model;
  model.engine = Engine::open(engine_options);
  log_detail(describe(*model.engine));
  log_plan(*model.engine);
  const Metadata& metadata = model.engine->pack().metadata();
  if (ChatFormat::available(metadata)) {
    model.format.emplace(metadata, model.engine->tokenizer());
  } else {
    log_warning("the model brings no chat template: only /v1/completions works");
  }
  return model;
}

std::string url_of(const std::string& host, uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

int run_serve(ServeOptions options) {
  ServerOptions& server_options = options.server;
  server_options.http.max_request_bytes = parse_size(options.max_request_bytes);
  if (server_options.http.max_request_bytes < 1024) {
    fail(ErrorKind::kUsage, "--max-request-bytes {}: at least 1 KiB is needed", options.max_request_bytes);
  }
  server_options.grace = std::chrono::milliseconds(static_cast<int64_t>(options.grace_s * 1000));
  if (server_options.model.empty()) server_options.model = pack_name(options.engine.pack);
  if (!options.api_key_file.empty()) server_options.api_keys = read_keys(options.api_key_file);
  const text::Sampler check(server_options.sampling);  // refuses bad options before anything starts
  if (!std::filesystem::is_directory(options.engine.pack)) {
    fail(ErrorKind::kUsage, "{}: not a pack directory; make one with tierpack repack", options.engine.pack.string());
  }

  const bool loopback = HostGuard::is_local(server_options.host);
  if (!loopback && server_options.api_keys.empty()) {
    log_warning(server_options.host +
                " can be reached by other machines, and without --api-key-file everyone may use it");
  }
  Server server(server_options, [engine = options.engine](const std::function<void(uint64_t, uint64_t)>& on_load) {
    return load(engine, on_load);
  });
  const uint16_t port = server.listen();
  const std::string url = url_of(server_options.host, port);
  log_info("listening on " + url);
  if (options.json) {
    const Json line = {{"event", "listening"}, {"url", url},        {"host", server_options.host},
                       {"port", port},         {"pid", ::getpid()}, {"model", server_options.model}};
    fmt::print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
    std::fflush(stdout);
  }
  const bool complete = server.run([] { return interrupted(); });
  log_info(complete ? "stopped" : "stopped; answers were cut short");
  return complete ? 0 : exit_code(ErrorKind::kInterrupted);
}

}  // namespace

CommandRun setup_serve(CLI::App& app) {
  const auto options = std::make_shared<ServeOptions>();
  ServerOptions& server = options->server;
  app.description(
      "Serves a pack's model with an OpenAI-compatible HTTP API: /v1/chat/completions, /v1/completions, /v1/models, "
      "/health, /metrics. One request runs at a time, others wait in order. Ctrl-C lets the running answer end.");
  add_engine_options(app, options->engine);
  add_workload_option(app, options->engine);
  app.add_option("--host", server.host, "Address or name to listen on")->capture_default_str();
  app.add_option("--port", server.port, "Port; 0 = any free one")->capture_default_str();
  app.add_option("--model-name", server.model, "Name of the model in the API; the pack's name if not given");
  app.add_option("--api-key-file", options->api_key_file,
                 "Serve only requests with one of the keys in this file, one a line")
      ->check(CLI::ExistingFile);
  app.add_option("--allow-host", server.allowed_hosts, "Answer to this Host name too; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--allow-origin", server.allowed_origins,
                 "Let pages of this origin (https://chat.example) use the server; * = all; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--queue", server.queue, "Requests that may wait")
      ->check(CLI::Range(0, 100'000))
      ->capture_default_str();
  app.add_option("--max-request-bytes", options->max_request_bytes, "Largest request body")->capture_default_str();
  app.add_option("--max-connections", server.http.max_connections, "Connections open at once")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--grace", options->grace_s, "Seconds that the running answer may take at shutdown")
      ->check(CLI::Range(0.0, 86'400.0))
      ->capture_default_str();
  add_sampling_options(app, server.sampling);
  app.add_flag("--json", options->json, "Print one JSON line with the address when listening");
  app.footer(
      "The sampling options stand for what a request leaves open.\n\n"
      "Examples:\n"
      "  tierpack serve pebble.tierpack\n"
      "  tierpack serve model.tierpack --host 0.0.0.0 --api-key-file keys.txt --context 32768\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": "
      "\"Hello\"}]}'");
  return [options] { return run_serve(*options); };
}

}  // namespace tierpack::server

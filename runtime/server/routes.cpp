#include "runtime/server/routes.h"

#include <chrono>

#include "base/json.h"
#include "base/log.h"
#include "runtime/server/api_error.h"
#include "runtime/server/openai_replies.h"

namespace tierpack::server {

namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

// "%20" -> " "; anything malformed stays as it is.
std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    std::byte value[1];
    if (text[i] == '%' && i + 2 < text.size() && from_hex(text.substr(i + 1, 2), value)) {
      out += static_cast<char>(value[0]);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

Routes::Routes(const ServerOptions& options, const ServerState& state, const RequestQueue& queue, Metrics& metrics,
               Completions& completions)
    : options_(options),
      state_(state),
      queue_(queue),
      metrics_(metrics),
      completions_(completions),
      hosts_(options.host, options.allowed_hosts),
      origins_(options.allowed_origins),
      keys_(options.api_keys),
      started_s_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                     .count()) {}

std::optional<Routes::Route> Routes::find(const std::string& path) {
  if (path == "/health") return Route::kHealth;
  if (path == "/metrics") return Route::kMetrics;
  if (path == "/v1/models") return Route::kModels;
  if (path == "/v1/chat/completions") return Route::kChat;
  if (path == "/v1/completions") return Route::kText;
  if (path.size() > kModelPrefix.size() && path.starts_with(kModelPrefix)) return Route::kModel;
  return std::nullopt;
}

const char* Routes::method_of(Route route) { return route == Route::kChat || route == Route::kText ? "POST" : "GET"; }

// Who asks: a page of another site, a name that was made to point here, someone without a key.
std::optional<HttpResponse> Routes::refuse_stranger(const HttpHead& head) const {
  // A rebinding attacker has no key, so that with keys any name may lead here.
  if (keys_.open() && head.host && !hosts_.accepts(*head.host)) {
    return ApiError(
               403,
               "the Host header '" + *head.host + "' is not one this server answers to; allow it with --allow-host",
               "host_not_allowed")
        .response();
  }
  if (head.origin && !origins_.accepts(*head.origin, head.host.value_or(""))) {
    return ApiError(403,
                    "pages of the origin '" + *head.origin + "' may not use this server; allow it with --allow-origin",
                    "origin_not_allowed")
        .response();
  }
  return std::nullopt;
}

std::optional<HttpResponse> Routes::refuse_early() const {
  const Phase phase = state_.phase;
  if (phase == Phase::kReady) return std::nullopt;
  if (phase == Phase::kStopping) return ApiError(503, "the server is stopping", "stopping").response();
  return ApiError(503, fmt::format("the model is still loading ({:.0f} %); try again", state_.load_progress * 100),
                  "loading")
      .response();
}

std::optional<HttpResponse> Routes::refuse(const HttpHead& head) {
  if (auto stranger = refuse_stranger(head)) return stranger;
  if (head.method == "OPTIONS") return preflight(head);
  const std::optional<Route> route = find(head.path);
  if (route != Route::kHealth && !keys_.accepts(head.authorization)) {
    return ApiError(401, "this server needs an API key: send 'Authorization: Bearer KEY' with a valid one",
                    "invalid_api_key")
        .response();
  }
  if (!route) {
    const std::string hint = find("/v1" + head.path)
                                 ? "; did you mean /v1" + head.path + "?"
                                 : "; see /v1/models, /v1/chat/completions, /v1/completions, /health, /metrics";
    return ApiError(404, "there is nothing at " + head.path + hint, "not_found").response();
  }
  const std::string method = method_of(*route);
  if (head.method != method && !(head.method == "HEAD" && method == "GET")) {
    HttpResponse response =
        ApiError(405, head.path + " is used with " + method + ", not " + head.method, "method_not_allowed").response();
    response.headers.emplace_back("Allow", method == "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS");
    return response;
  }
  if (route == Route::kHealth || route == Route::kMetrics) return std::nullopt;
  return refuse_early();
}

HttpResponse Routes::preflight(const HttpHead& head) const {
  HttpResponse response;
  response.status = 204;
  response.content_type.clear();
  response.headers.emplace_back("Allow", "GET, HEAD, POST, OPTIONS");
  if (head.origin) {
    response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    if (!head.requested_headers.empty()) {
      response.headers.emplace_back("Access-Control-Allow-Headers", head.requested_headers);
    }
    response.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
    response.headers.emplace_back("Access-Control-Max-Age", "600");
  }
  return response;
}

Headers Routes::response_headers(const HttpHead& head) {
  if (!head.origin || !origins_.accepts(*head.origin, head.host.value_or(""))) return {};
  return {{"Access-Control-Allow-Origin", *head.origin}, {"Vary", "Origin"}};
}

HttpResponse Routes::http_error(unsigned status, const std::string& message) {
  return ApiError(status, message).response();
}

void Routes::on_answered(const HttpHead& head, unsigned status) {
  const std::optional<Route> route = find(head.path);
  metrics_.on_response(!route ? "other" : *route == Route::kModel ? "/v1/models/" : head.path, status);
  log_detail(
      fmt::format("{} {} {}", head.method.empty() ? "-" : head.method, head.path.empty() ? "-" : head.path, status));
}

ServerGauges Routes::gauges() const {
  ServerGauges gauges;
  gauges.ready = state_.phase == Phase::kReady;
  gauges.waiting = queue_.waiting();
  gauges.running = queue_.running();
  gauges.connections = connections_;
  if (gauges.ready) {
    gauges.experts = state_.model->engine->expert_counters();
    gauges.layers = state_.model->engine->expert_layer_counters();
    gauges.seed = state_.model->engine->seed_progress();
  }
  return gauges;
}

HttpResponse Routes::health() const {
  const Phase phase = state_.phase;
  HttpResponse response;
  Json json;
  if (phase == Phase::kReady) {
    const SeedProgress seed = state_.model->engine->seed_progress();
    const double share = seed.done || seed.total_bytes == 0 ? 1.0 : static_cast<double>(seed.loaded_bytes) / static_cast<double>(seed.total_bytes);
    json = {{"status", seed.done ? "ready" : "warming"}, {"progress", share}};
    json["model"] = options_.model;
    json["context_length"] = state_.context;
    json["running"] = queue_.running();
    json["waiting"] = queue_.waiting();
  } else {
    json["status"] = phase == Phase::kLoading ? "loading" : "stopping";
    json["progress"] = state_.load_progress.load();
    response.status = 503;
    response.headers.emplace_back("Retry-After", "1");
  }
  response.body = json.dump();
  return response;
}

HttpResponse Routes::model(const std::string& path) const {
  const std::string name = percent_decoded(path.substr(kModelPrefix.size()));
  if (name != options_.model) {
    return ApiError(404, "the model '" + name + "' is not served here; this server has '" + options_.model + "'",
                    "model_not_found", "model")
        .response();
  }
  HttpResponse response;
  response.body = model_json(options_.model, started_s_, state_.context);
  return response;
}

void Routes::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  HttpResponse response;
  switch (find(request.head.path).value()) {
    case Route::kHealth: return exchange->respond(health());
    case Route::kModel: return exchange->respond(model(request.head.path));
    case Route::kModels:
      response.body = models_json(options_.model, started_s_, state_.context);
      return exchange->respond(std::move(response));
    case Route::kMetrics:
      response.content_type = "text/plain; version=0.0.4; charset=utf-8";
      response.body = metrics_.prometheus(gauges(), options_.model);
      return exchange->respond(std::move(response));
    case Route::kChat:
      return completions_.handle(Completions::Endpoint::kChat, std::move(request), std::move(exchange));
    case Route::kText:
      return completions_.handle(Completions::Endpoint::kText, std::move(request), std::move(exchange));
  }
}

}  // namespace tierpack::server

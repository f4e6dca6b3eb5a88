// The table of routes, and everything a request must pass before it reaches one.
#pragma once

#include "runtime/server/completions.h"
#include "runtime/server/guards.h"

namespace tierpack::server {

class Routes final : public HttpHandler {
 public:
  Routes(const ServerOptions& options, const ServerState& state, const RequestQueue& queue, Metrics& metrics,
         Completions& completions);

  std::optional<HttpResponse> refuse(const HttpHead& head) override;
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override;
  Headers response_headers(const HttpHead& head) override;
  HttpResponse http_error(unsigned status, const std::string& message) override;
  void on_answered(const HttpHead& head, unsigned status) override;

  void set_connections(size_t connections) { connections_ = connections; }

 private:
  enum class Route { kHealth, kMetrics, kModels, kModel, kChat, kText };
  static std::optional<Route> find(const std::string& path);
  static const char* method_of(Route route);
  std::optional<HttpResponse> refuse_stranger(const HttpHead& head) const;
  std::optional<HttpResponse> refuse_early() const;  // while loading or stopping
  HttpResponse preflight(const HttpHead& head) const;
  HttpResponse health() const;
  HttpResponse model(const std::string& path) const;
  ServerGauges gauges() const;

  const ServerOptions& options_;
  const ServerState& state_;
  const RequestQueue& queue_;
  Metrics& metrics_;
  Completions& completions_;
  HostGuard hosts_;
  OriginGuard origins_;
  KeyGuard keys_;
  int64_t started_s_;
  size_t connections_ = 0;
};

}  // namespace tierpack::server

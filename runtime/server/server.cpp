#include "runtime/server/server.h"

#include <atomic>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "runtime/server/http_server.h"
#include "runtime/server/routes.h"

namespace tierpack::server {

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

// Members are in order of dependence: the threads' work ends before what it uses is gone.
struct Server::Impl {
  Impl(ServerOptions server_options, ModelLoader loader)
      : options(std::move(server_options)), load(std::move(loader)) {}

  const ServerOptions options;
  const ModelLoader load;
  ServerState state;
  ServedModel model;
  Metrics metrics;
  RequestQueue queue{options.queue};
  std::optional<Completions> completions{std::in_place, options, state, queue, metrics};
  Routes routes{options, state, queue, metrics, *completions};
  HttpServer http{options.http, routes};

  std::atomic<bool> stop_requested{false};
  std::atomic<bool> model_done{false};
  std::exception_ptr failure;  // of the model's thread, read after it was joined
  std::atomic<bool> failed{false};
  Clock::time_point deadline;  // for the running answer
  bool stopping = false;
  bool complete = true;

  void model_main() {
    try {
      model = load([this](uint64_t done, uint64_t total) {
        if (stop_requested) fail(ErrorKind::kInterrupted, "interrupted while loading the model");
        state.load_progress = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
      });
      Generator generator(*model.engine);
      state.context = generator.context();
      state.model = &model;
      completions->set_generator(&generator, model.engine.get());
      state.load_progress = 1;
      Phase loading = Phase::kLoading;
      if (state.phase.compare_exchange_strong(loading, Phase::kReady)) log_info("ready");
      while (const std::shared_ptr<RequestQueue::Job> job = queue.pop()) job->run();
      if (const std::string problem = model.engine->save_learned(); !problem.empty()) log_warning(problem);
    } catch (...) {
      failure = std::current_exception();
      failed = true;
    }
    model_done = true;
  }

  void tick(const std::function<bool()>& should_stop) {
    routes.set_connections(http.connections());
    if (should_stop && should_stop()) stop_requested = true;
    if ((stop_requested || failed) && !stopping) {
      stopping = true;
      stop_requested = true;
      deadline = Clock::now() + options.grace;
      if (queue.waiting() > 0 || state.phase != Phase::kReady) complete = false;
      state.phase = Phase::kStopping;
      queue.close();
      http.stop();
    }
    if (stopping && !model_done && Clock::now() > deadline) {
      if (queue.running() > 0) complete = false;
      queue.cancel_running();
    }
  }
};

Server::Server(ServerOptions options, ModelLoader load)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(load))) {}

Server::~Server() = default;

uint16_t Server::listen() { return impl_->http.listen(impl_->options.host, impl_->options.port); }

bool Server::run(const std::function<bool()>& should_stop) {
  Impl& impl = *impl_;
  std::thread model_thread([&impl] { impl.model_main(); });
  try {
    impl.http.run([&impl, &should_stop] { impl.tick(should_stop); });
  } catch (...) {
    impl.stop_requested = true;
    impl.queue.close();
    impl.queue.cancel_running();
    model_thread.join();
    throw;
  }
  model_thread.join();
  impl.completions.reset();
  if (impl.failure) {
    try {
      std::rethrow_exception(impl.failure);
    } catch (const Error& e) {
      // A stop while loading is the caller's wish, not a failure.
      if (e.kind() != ErrorKind::kInterrupted) throw;
      return false;
    }
  }
  return impl.complete;
}

void Server::stop() { impl_->stop_requested = true; }

}  // namespace tierpack::server

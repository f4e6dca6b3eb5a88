#include "runtime/server/completions.h"

#include <chrono>
#include <new>

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/log.h"
#include "runtime/server/openai_replies.h"
#include "runtime/server/openai_types.h"
#include "runtime/text/tokenizer.h"

namespace tierpack::server {

namespace {

using Clock = std::chrono::steady_clock;

// While a request is being prepared nothing but its own text can be too much.
ApiError preparing_error(const Error& e) {
  return e.kind() == ErrorKind::kCapacity ? ApiError(400, e.what(), "text_too_large") : ApiError(e);
}

// Runs `body`; whatever it throws becomes an answer to the client.
template <typename Body, typename Fail>
void at_request_boundary(Body body, Fail fail) {
  try {
    body();
  } catch (const ApiError& e) {
    fail(e);
  } catch (const Error& e) {
    fail(ApiError(e));
  } catch (const std::bad_alloc&) {
    fail(ApiError(503, "out of memory while working on this request", "capacity"));
  } catch (const std::exception& e) {
    fail(ApiError(500, std::string("unexpected failure: ") + e.what(), "internal"));
  }
}

ApiError stopping_error() { return ApiError(503, "the server is stopping", "stopping"); }

}  // namespace

struct Completions::Impl {
  class GenerateJob;

  const ServerOptions& options;
  const ServerState& state;
  RequestQueue& queue;
  Metrics& metrics;
  Generator* generator = nullptr;
  Engine* engine = nullptr;
  boost::asio::thread_pool preparing{1};

  void prepare(Endpoint endpoint, const HttpRequest& request, const std::shared_ptr<Exchange>& exchange,
               RequestQueue::Place place);
  std::vector<uint32_t> text_prompt(const CompletionRequest& request) const;
  void check_length(const std::vector<uint32_t>& ids, const char* param) const;
};

class Completions::Impl::GenerateJob final : public RequestQueue::Job {
 public:
  GenerateJob(Impl& impl, GenerateRequest request, Reply reply, std::shared_ptr<Exchange> exchange,
              RequestQueue::Place place)
      : impl_(impl),
        request_(std::move(request)),
        reply_(std::move(reply)),
        exchange_(std::move(exchange)),
        place_(std::move(place)) {}

  void open() { reply_.open(); }

  void run() override {
    at_request_boundary([this] { generate(); },
                        [this](const ApiError& e) {
                          log_warning(std::string("a request failed: ") + e.what());
                          place_.reset();
                          reply_.fail(e);
                        });
  }

  void refuse() override {
    place_.reset();
    reply_.fail(stopping_error());
  }

 private:
  void generate() {
    const double queued_s = std::chrono::duration<double>(Clock::now() - arrived_).count();
    reply_.begin();
    const GenerateResult result = impl_.generator->generate(
        request_, [this](TextKind kind, std::string_view text) { reply_.text(kind, text); },
        [this] { return cancelled(); });
    impl_.metrics.on_generated(result, queued_s);
    log_detail(
        fmt::format("answered: {} prompt tokens ({} reused) at {:.1f}/s, {} generated at {:.1f}/s, {}, logits {}",
                    result.prompt_tokens, result.reused_tokens, result.prefill_rate(), result.tokens.size(),
                    result.decode_rate(), finish_reason_name(result.finish), result.logits.hex()));
    // The next request may enter as soon as this answer can be read.
    place_.reset();
    if (result.finish == FinishReason::kCancelled) {
      reply_.fail(stopping_error());
    } else {
      reply_.finish(result);
    }
  }

  Impl& impl_;
  GenerateRequest request_;
  Reply reply_;
  std::shared_ptr<Exchange> exchange_;
  std::optional<RequestQueue::Place> place_;
  Clock::time_point arrived_ = Clock::now();
};

void Completions::Impl::check_length(const std::vector<uint32_t>& ids, const char* param) const {
  if (ids.empty()) throw ApiError(400, "the prompt is empty: at least one token is needed", "invalid_value", param);
  if (ids.size() < state.context) return;
  throw ApiError(400,
                 fmt::format("the prompt has {} tokens, but the context holds {} tokens, prompt and answer together; "
                             "shorten the prompt or start the server with a larger --context",
                             ids.size(), state.context),
                 "context_length_exceeded", param);
}

std::vector<uint32_t> Completions::Impl::text_prompt(const CompletionRequest& request) const {
  const text::Tokenizer& tokenizer = state.model->engine->tokenizer();
  if (const auto* text = std::get_if<std::string>(&request.prompt)) {
    return tokenizer.encode_prompt(*text, text::Tokenizer::Special::kParse);
  }
  const auto& ids = std::get<std::vector<uint32_t>>(request.prompt);
  for (const uint32_t id : ids) {
    if (id < tokenizer.size()) continue;
    throw ApiError(400,
                   fmt::format("'prompt': token id {} is not below the vocabulary's size of {}", id, tokenizer.size()),
                   "invalid_value", "prompt");
  }
  return ids;
}

void Completions::Impl::prepare(Endpoint endpoint, const HttpRequest& http, const std::shared_ptr<Exchange>& exchange,
                                RequestQueue::Place place) {
  if (exchange->gone()) return;
  const bool chat = endpoint == Endpoint::kChat;
  GenerateRequest generate;
  CommonRequest common;
  const auto check_model = [&] {
    if (common.model.empty() || common.model == options.model) return;
    throw ApiError(404,
                   fmt::format("the model '{}' is not served here; this server has '{}'", common.model, options.model),
                   "model_not_found", "model");
  };
  if (chat) {
    ChatRequest request = parse_chat_request(http.body, options.sampling);
    common = request;
    check_model();
    if (!state.model->format) {
      throw ApiError(400, "this model brings no chat template; use /v1/completions", "no_chat_template");
    }
    ChatPrompt prompt;
    try {
      prompt = state.model->format->prompt(request.variables_json);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::kUsage) throw;
      throw ApiError(400, std::string("the model's chat template refuses these messages: ") + e.what(), "invalid_value",
                     "messages");
    }
    generate.prompt = std::move(prompt.ids);
    generate.reasoning = prompt.reasoning;
  } else {
    const CompletionRequest request = parse_completion_request(http.body, options.sampling);
    common = request;
    check_model();
    generate.prompt = text_prompt(request);
  }
  check_length(generate.prompt, chat ? "messages" : "prompt");
  generate.sampling = common.sampling;
  generate.max_tokens = common.max_tokens;
  generate.stop = common.stop;

  Reply reply(exchange, {.chat = chat,
                         .stream = common.stream,
                         .include_usage = common.include_usage,
                         .model = options.model,
                         .seed = common.sampling.seed});
  const auto job =
      std::make_shared<GenerateJob>(*this, std::move(generate), std::move(reply), exchange, std::move(place));
  exchange->on_gone([this, weak = std::weak_ptr<GenerateJob>(job)] {
    if (const auto alive = weak.lock()) queue.cancel(alive);
  });
  job->open();
  queue.push(job);
}

Completions::Completions(const ServerOptions& options, const ServerState& state, RequestQueue& queue, Metrics& metrics)
    : impl_(new Impl{options, state, queue, metrics}) {}

Completions::~Completions() { impl_->preparing.join(); }

void Completions::set_generator(Generator* generator, Engine* engine) {
  impl_->generator = generator;
  impl_->engine = engine;
}

void Completions::handle(Endpoint endpoint, HttpRequest request, std::shared_ptr<Exchange> exchange) {
  std::optional<RequestQueue::Place> place = impl_->queue.enter();
  if (!place) {
    const ApiError error = impl_->state.phase == Phase::kStopping
                               ? stopping_error()
                               : ApiError(429,
                                          fmt::format("{} requests are waiting already, the most this server allows "
                                                      "(--queue); try again",
                                                      impl_->queue.waiting()),
                                          "queue_full");
    return exchange->respond(error.response());
  }
  boost::asio::post(impl_->preparing, [this, endpoint, request = std::move(request), exchange = std::move(exchange),
                                       place = std::move(*place)]() mutable {
    const auto prepare = [&] {
      try {
        impl_->prepare(endpoint, request, exchange, std::move(place));
      } catch (const Error& e) {
        throw preparing_error(e);
      }
    };
    at_request_boundary(prepare,
                        [&](const ApiError& e) { exchange->respond(e.response()); });
  });
}

}  // namespace tierpack::server

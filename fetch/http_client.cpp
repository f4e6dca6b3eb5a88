#include "fetch/http_client.h"

#include <chrono>
#include <ctime>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/printable.h"

namespace tierpack::fetch {

namespace {

class Collector final : public ExchangeReceiver {
 public:
  Collector(uint64_t max_bytes, std::optional<uint64_t> enough) : max_bytes_(max_bytes), enough_(enough) {}

  bool on_head(const ResponseHead& head) override {
    head_ = head;
    return true;
  }
  BodyStep on_body(Bytes data) override {
    const uint64_t limit = std::min(max_bytes_, enough_.value_or(UINT64_MAX));
    const uint64_t room = limit - body_.size();
    if (data.size() > room) too_large_ = !enough_ || *enough_ > max_bytes_;
    body_.append(as_text(data.subspan(0, std::min<uint64_t>(room, data.size()))));
    return too_large_ || (enough_ && body_.size() >= *enough_) ? BodyStep::kStop : BodyStep::kTaken;
  }

  ResponseHead head_;
  std::string body_;
  bool too_large_ = false;

 private:
  uint64_t max_bytes_;
  std::optional<uint64_t> enough_;
};

// Small documents that take this long are being dripped.
HttpSettings with_deadline(HttpSettings settings) {
  settings.total_timeout_s = 600;
  return settings;
}

bool is_worth_retrying(int status) {
  return status == 408 || status == 425 || status == 429 || (status >= 500 && status != 501 && status != 505);
}

}  // namespace

void sleep_interruptibly(double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    throw_if_interrupted();
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= left.zero()) return;
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(left, std::chrono::milliseconds(100)));
  }
}

HttpClient::HttpClient(HttpSettings settings, Credentials credentials, RetryPolicy retry)
    : settings_(std::move(settings)),
      credentials_(std::move(credentials)),
      retry_(retry),
      exchange_(with_deadline(settings_)),
      random_(std::random_device{}()) {}

HttpAnswer HttpClient::get(const Url& url, const GetOptions& options) {
  std::string problem;
  ErrorKind kind = ErrorKind::kNetwork;
  for (int failures = 0;;) {
    throw_if_interrupted();
    Hop hop = first_hop(url);
    std::optional<double> asked;
    for (;;) {
      Collector collector(options.max_bytes, options.enough_bytes);
      std::vector<std::string> headers = options.headers;
      for (std::string& line : credentials_.headers_for(hop.url)) headers.push_back(std::move(line));
      exchange_.prepare(hop, headers, collector);
      const ExchangeResult result = exchange_.perform();
      if (result.kind == ExchangeResult::Kind::kPermanent) fail(ErrorKind::kNetwork, "{}", result.message);
      if (result.kind == ExchangeResult::Kind::kTransient) {
        problem = result.message;
        kind = ErrorKind::kNetwork;
        break;
      }
      if (collector.too_large_) {
        fail(ErrorKind::kCorrupt, "{}: more than {} where a small document was expected", hop.url.redacted(),
             format_size(options.max_bytes));
      }
      const ResponseHead& head = collector.head_;
      if (is_redirect(head.status)) {
        const RedirectDecision decision = follow_redirect(exchange_.hop(), head, settings_.allow_private_redirects);
        if (!decision.next) fail(ErrorKind::kRefused, "{}", decision.refusal);
        hop = *decision.next;
        continue;
      }
      const std::string encoding = head.value("content-encoding");
      const bool plain = encoding.empty() || encoding == "identity";
      const bool nonsense = plain && options.json && head.status == 200 && !Json::accept(collector.body_);
      kind = nonsense ? ErrorKind::kCorrupt : ErrorKind::kNetwork;
      if (plain && !nonsense && !is_worth_retrying(head.status)) return {head, std::move(collector.body_), hop.url};
      problem = nonsense ? fmt::format("{} answers with something that is not whole JSON{}", hop.url.redacted(),
                                       head.value("content-type").starts_with("text/html") ? " but an HTML page" : "")
                : plain ? fmt::format("{} answers {}", hop.url.redacted(), head.status)
                      : fmt::format("{} sends Content-Encoding '{}' although plain bytes were asked for", hop.url.redacted(),
                                    printable(encoding, 40));
      asked = server_wait(head, std::time(nullptr));
      break;
    }
    if (++failures > retry_.attempts) {
      fail(kind, "{}; given up after {} attempts", problem, failures);
    }
    if (asked && *asked > retry_.longest_server_wait_s) {
      fail(ErrorKind::kNetwork, "{} and asks to wait {:.0f} s; try again then", problem, *asked);
    }
    const double wait = wait_seconds(retry_, failures, std::generate_canonical<double, 24>(random_), asked);
    if (on_retry_) on_retry_(fmt::format("{}; trying again in {:.1f} s", problem, wait));
    sleep_interruptibly(wait);
  }
}

}  // namespace tierpack::fetch

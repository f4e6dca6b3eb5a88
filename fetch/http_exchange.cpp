#include "fetch/http_exchange.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/interrupt.h"

namespace tierpack::fetch {

namespace {

struct CurlFree {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct SlistFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

void initialise_once() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

// What no further try can change: certificates, our own mistakes. Everything else a network can do to us may pass.
bool is_permanent(CURLcode code) {
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CRL_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ENGINE_INITFAILED:
    case CURLE_URL_MALFORMAT:
    case CURLE_FAILED_INIT:
    case CURLE_NOT_BUILT_IN:
    case CURLE_BAD_FUNCTION_ARGUMENT:
    case CURLE_UNKNOWN_OPTION:
    case CURLE_ABORTED_BY_CALLBACK: return true;
    default: return false;
  }
}

uint16_t port_of(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    return ntohs(v4.sin_port);
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof v6);
    return ntohs(v6.sin6_port);
  }
  return 0;
}

}  // namespace

struct HttpExchange::State {
  HttpSettings settings;
  std::unique_ptr<CURL, CurlFree> curl;
  std::unique_ptr<curl_slist, SlistFree> headers;
  std::optional<Hop> hop;
  ExchangeReceiver* receiver = nullptr;
  HeadCollector collector;
  bool stopped = false;
  bool head_too_large = false;
  std::string refusal;
  char error[CURL_ERROR_SIZE] = {};

  bool may_reach(AddressClass to) {
    if (hop->number == 0 || settings.allow_private_redirects || !hop->first_peer) return true;
    if (redirect_may_reach(*hop->first_peer, to)) return true;
    refusal = fmt::format("{} was reached by a redirect and is at a {} address; refused (--allow-private-redirects "
                          "permits it)", hop->url.origin().text(), address_class_name(to));
    return false;
  }

  // Where the response comes from, which for a reused connection only the finished head tells. A proxy hides it; then
  // only literal addresses are judged.
  bool peer_is_fine() {
    char* text = nullptr;
    long port = 0;
    curl_easy_getinfo(curl.get(), CURLINFO_PRIMARY_IP, &text);
    curl_easy_getinfo(curl.get(), CURLINFO_PRIMARY_PORT, &port);
    const bool direct = port == hop->url.origin().port;
    const auto peer = direct && text != nullptr ? classify_literal(text) : std::nullopt;
    if (hop->number == 0 && !hop->first_peer) hop->first_peer = peer.value_or(AddressClass::kPublic);
    return !peer || may_reach(*peer);
  }

  static curl_socket_t open_socket(void* self, curlsocktype, curl_sockaddr* address) {
    auto& state = *static_cast<State*>(self);
    const bool direct = port_of(&address->addr) == state.hop->url.origin().port;
    if (direct && !state.may_reach(classify_address(&address->addr))) return CURL_SOCKET_BAD;
    return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  }

  static size_t on_header(char* data, size_t size, size_t count, void* self) {
    auto& state = *static_cast<State*>(self);
    switch (state.collector.line({data, size * count})) {
      case HeadCollector::State::kReading: return size * count;
      case HeadCollector::State::kTooLarge: state.head_too_large = true; return 0;
      case HeadCollector::State::kComplete: break;
    }
    if (!state.peer_is_fine()) return 0;
    if (state.receiver->on_head(state.collector.head())) return size * count;
    state.stopped = true;
    return 0;
  }

  static size_t on_data(char* data, size_t size, size_t count, void* self) {
    auto& state = *static_cast<State*>(self);
    switch (state.receiver->on_body({reinterpret_cast<const std::byte*>(data), size * count})) {
      case BodyStep::kTaken: return size * count;
      case BodyStep::kLater: return CURL_WRITEFUNC_PAUSE;
      case BodyStep::kStop: break;
    }
    state.stopped = true;
    return 0;
  }

  static int on_progress(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) { return interrupted() ? 1 : 0; }
};

HttpExchange::HttpExchange(const HttpSettings& settings) : state_(std::make_unique<State>()) {
  initialise_once();
  state_->settings = settings;
  state_->curl.reset(curl_easy_init());
  TIERPACK_CHECK(state_->curl != nullptr);
}

HttpExchange::~HttpExchange() = default;
HttpExchange::HttpExchange(HttpExchange&&) noexcept = default;
HttpExchange& HttpExchange::operator=(HttpExchange&&) noexcept = default;

void HttpExchange::prepare(const Hop& hop, const std::vector<std::string>& headers, ExchangeReceiver& receiver) {
  State& state = *state_;
  const HttpSettings& settings = state.settings;
  state.hop = hop;
  state.receiver = &receiver;
  state.collector.reset();
  state.stopped = false;
  state.head_too_large = false;
  state.refusal.clear();
  state.error[0] = '\0';

  curl_slist* list = nullptr;
  for (const std::string& line : headers) list = curl_slist_append(list, line.c_str());
  list = curl_slist_append(list, "Accept-Encoding: identity");
  state.headers.reset(list);

  curl_easy_reset(state.curl.get());  // keeps connections and caches
  // A handle whose last attempt ended before it connected still holds its buffer and takes no other: it has no connection to keep.
  if (curl_easy_setopt(state.curl.get(), CURLOPT_BUFFERSIZE, static_cast<long>(settings.receive_buffer_bytes)) != CURLE_OK) {
    state.curl.reset(curl_easy_init());
    TIERPACK_CHECK(state.curl != nullptr);
  }
  CURL* const curl = state.curl.get();
  const auto set = [curl](CURLoption option, auto value) {
    const CURLcode code = curl_easy_setopt(curl, option, value);
    if (code != CURLE_OK && code != CURLE_UNKNOWN_OPTION) {
      fail(ErrorKind::kInternal, "libcurl refuses option {}: {}", static_cast<int>(option), curl_easy_strerror(code));
    }
  };
  set(CURLOPT_URL, hop.url.text().c_str());
  set(CURLOPT_HTTPHEADER, list);
  set(CURLOPT_USERAGENT, settings.user_agent.c_str());
  set(CURLOPT_ERRORBUFFER, state.error);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTP_CONTENT_DECODING, 0L);
  set(CURLOPT_FAILONERROR, 0L);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  // Several HTTP/1.1 connections share a link better than streams of one HTTP/2 connection, and are not cancelled together.
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(settings.connect_timeout_s * 1000));
  set(CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(std::max<uint64_t>(1, settings.stall_bytes_per_s)));
  set(CURLOPT_LOW_SPEED_TIME, std::max(1L, std::lround(settings.stall_timeout_s)));
  set(CURLOPT_BUFFERSIZE, static_cast<long>(settings.receive_buffer_bytes));
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_SSL_VERIFYPEER, settings.insecure ? 0L : 1L);
  set(CURLOPT_SSL_VERIFYHOST, settings.insecure ? 0L : 2L);
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (!settings.ca_file.empty()) {
    set(CURLOPT_CAINFO, settings.ca_file.c_str());
    set(CURLOPT_PROXY_CAINFO, settings.ca_file.c_str());
  }
  if (!settings.ca_directory.empty()) {
    set(CURLOPT_CAPATH, settings.ca_directory.c_str());
    set(CURLOPT_PROXY_CAPATH, settings.ca_directory.c_str());
  }
  set(CURLOPT_IPRESOLVE, settings.ip_version == 4   ? static_cast<long>(CURL_IPRESOLVE_V4)
                         : settings.ip_version == 6 ? static_cast<long>(CURL_IPRESOLVE_V6)
                                                    : static_cast<long>(CURL_IPRESOLVE_WHATEVER));
  if (settings.total_timeout_s > 0) set(CURLOPT_TIMEOUT_MS, static_cast<long>(settings.total_timeout_s * 1000));
  // libcurl reads http_proxy in lower case only. It applies NO_PROXY to this one too.
  if (!settings.http_proxy.empty() && hop.url.origin().scheme == "http") set(CURLOPT_PROXY, settings.http_proxy.c_str());
  set(CURLOPT_OPENSOCKETFUNCTION, &State::open_socket);
  set(CURLOPT_OPENSOCKETDATA, static_cast<void*>(&state));
  set(CURLOPT_HEADERFUNCTION, &State::on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&state));
  set(CURLOPT_WRITEFUNCTION, &State::on_data);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&state));
  set(CURLOPT_XFERINFOFUNCTION, &State::on_progress);
  set(CURLOPT_NOPROGRESS, 0L);
}

ExchangeResult HttpExchange::perform() {
  const CURLcode code = curl_easy_perform(state_->curl.get());
  if (code == CURLE_ABORTED_BY_CALLBACK) throw_if_interrupted();
  return finished(code);
}

ExchangeResult HttpExchange::finished(int curl_code) {
  const State& state = *state_;
  if (!state.refusal.empty()) return {ExchangeResult::Kind::kPermanent, state.refusal};
  if (state.stopped) return {ExchangeResult::Kind::kStopped, {}};
  if (state.head_too_large) {
    return {ExchangeResult::Kind::kTransient,
            state.hop->url.origin().text() + " sends more header fields than any server needs"};
  }
  const auto code = static_cast<CURLcode>(curl_code);
  if (code == CURLE_OK) {
    if (state.collector.is_complete()) return {ExchangeResult::Kind::kComplete, {}};
    return {ExchangeResult::Kind::kTransient, state.hop->url.origin().text() + " closed the connection before an answer's head was whole"};
  }
  const char* detail = state.error[0] != '\0' ? state.error : curl_easy_strerror(code);
  std::string message = fmt::format("{}: {} (curl error {})", state.hop->url.origin().text(), detail, curl_code);
  if (code == CURLE_PEER_FAILED_VERIFICATION) {
    message += "; the server's certificate cannot be trusted: check the clock, --cacert, or who is in between";
  }
  return {is_permanent(code) ? ExchangeResult::Kind::kPermanent : ExchangeResult::Kind::kTransient, message};
}

void HttpExchange::resume() { curl_easy_pause(state_->curl.get(), CURLPAUSE_CONT); }

const Hop& HttpExchange::hop() const { return *state_->hop; }
void* HttpExchange::handle() const { return state_->curl.get(); }

}  // namespace tierpack::fetch

#include "fetch/http_source.h"

#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <regex>

#include "base/error.h"
#include "fetch/hubs.h"
#include "fetch/response_rules.h"
#include "fetch/sources.h"
#include "formats/lock.h"

namespace tierpack::fetch {

namespace {

constexpr uint64_t kPieceBytes = uint64_t{256} << 10;
constexpr size_t kMaxPieces = 16;  // kept in memory

class HttpSource final : public ByteSource {
 public:
  HttpSource(HttpClient client, Url url, std::optional<uint64_t> promised) : client_(std::move(client)), url_(std::move(url)) {
    name_ = url_.redacted();
    request_.total = promised;
    fetch_piece(0);
    if (!request_.total) fail(ErrorKind::kNetwork, "{}: the server does not say how large the file is", name_);
  }

  uint64_t size() const override { return *request_.total; }
  const std::string& name() const override { return name_; }

  void read_at(uint64_t offset, MutableBytes out) const override {
    if (offset > size() || out.size() > size() - offset) {
      fail(ErrorKind::kCorrupt, "{}: ends at byte {}, wanted {} bytes from {}", name_, size(), out.size(), offset);
    }
    while (!out.empty()) {
      const Piece& piece = piece_with(offset);
      const uint64_t skip = offset - piece.begin;
      const uint64_t step = std::min<uint64_t>(out.size(), piece.bytes.size() - skip);
      std::copy_n(as_bytes(piece.bytes).begin() + static_cast<ptrdiff_t>(skip), step, out.begin());
      offset += step;
      out = out.subspan(step);
    }
  }

 private:
  struct Piece {
    uint64_t begin = 0;
    std::string bytes;
  };

  const Piece& piece_with(uint64_t offset) const {
    for (auto at = pieces_.begin(); at != pieces_.end(); ++at) {
      if (offset < at->begin || offset - at->begin >= at->bytes.size()) continue;
      pieces_.splice(pieces_.begin(), pieces_, at);
      return pieces_.front();
    }
    fetch_piece(offset / kPieceBytes * kPieceBytes);
    if (pieces_.empty() || offset - pieces_.front().begin >= pieces_.front().bytes.size()) {
      fail(ErrorKind::kNetwork, "{}: the server sent less than the range that was asked for", name_);
    }
    return pieces_.front();
  }

  void fetch_piece(uint64_t begin) const {
    request_.first = begin;
    request_.last = std::min(begin + kPieceBytes, request_.total.value_or(UINT64_MAX)) - 1;
    const std::string range = fmt::format("Range: bytes={}-{}", request_.first, *request_.last);
    HttpAnswer answer = client_.get(url_, {.headers = {range}, .enough_bytes = *request_.last - request_.first + 1});
    request_.on_hub = answer.url.text() == url_.text();
    const Decision decision = judge_response(request_, answer.head);
    if (decision.verdict == Verdict::kAtEnd) {
      request_.total = decision.total;
      return;
    }
    if (decision.verdict != Verdict::kWrite || (begin > 0 && decision.offset != begin)) {
      const bool refused = decision.verdict == Verdict::kDenied || decision.verdict == Verdict::kGone;
      fail(refused ? ErrorKind::kRefused : ErrorKind::kNetwork, "{}: the server {}", answer.url.redacted(), decision.reason);
    }
    if (!request_.total) request_.total = decision.total;
    if (const auto etag = strong_etag(answer.head)) request_.etag = etag;
    pieces_.push_front({decision.offset, std::move(answer.body)});
    if (pieces_.size() > kMaxPieces) pieces_.pop_back();
  }

  mutable HttpClient client_;
  Url url_;
  std::string name_;
  mutable PayloadRequest request_;
  mutable std::list<Piece> pieces_;  // most recently used first
};

// A file of a listing whose size is known: connects when it is first read.
class ListedSource final : public ByteSource {
 public:
  ListedSource(std::function<HttpClient()> connect, Url url, uint64_t bytes)
      : connect_(std::move(connect)), url_(std::move(url)), name_(url_.redacted()), bytes_(bytes) {}
  uint64_t size() const override { return bytes_; }
  const std::string& name() const override { return name_; }
  void read_at(uint64_t offset, MutableBytes out) const override {
    if (!open_) open_.emplace(connect_(), url_, bytes_);
    open_->read_at(offset, out);
  }

 private:
  std::function<HttpClient()> connect_;
  Url url_;
  std::string name_;
  uint64_t bytes_;
  mutable std::optional<HttpSource> open_;
};

bool is_hub(const std::string& reference) { return reference.starts_with("hf:") || reference.starts_with("ms:"); }

// Where the repository's name ends: "hf:org/name@rev" | "/dir/file". A revision with slashes cannot be told from a path, so
// it has none here.
size_t end_of_repository(const std::string& text) {
  const size_t first = text.starts_with("hf:datasets/") || text.starts_with("ms:datasets/") ? 12 : 0;
  return text.find('/', std::min(text.find('/', first), text.size() - 1) + 1);
}

SourceOptions quiet_options(const Environment& environment, const std::string& reference, const std::string& endpoint) {
  if (environment.offline) fail(ErrorKind::kUsage, "{} cannot be asked: HF_HUB_OFFLINE forbids the network", reference);
  SourceOptions options;
  options.endpoint = endpoint;
  options.http.ca_file = environment.ca_file;
  options.http.ca_directory = environment.ca_directory;
  options.http.http_proxy = environment.http_proxy;
  options.retry.attempts = 4;
  return options;
}

struct HubView {
  Listing listing;
  std::function<HttpClient()> connect;  // a client with the hub's credentials
};

HubView open_hub(const std::string& repository, const std::string& endpoint) {
  const Environment environment = read_environment();
  const SourceOptions options = quiet_options(environment, repository, endpoint);
  const Reference reference = parse_reference(repository);
  const auto base = endpoint_for(reference, options, environment);
  const Credentials credentials = gather_credentials(reference, base, options, environment);
  const auto connect = [=] { return HttpClient(options.http, credentials, options.retry); };
  HttpClient client = connect();
  Listing listing = list_source(client, reference, base, options);
  // Names that may not be used are not offered, matched or printed either.
  std::erase_if(listing.files, [](const RemoteFile& file) { return !is_safe_relative_path(file.path); });
  return {std::move(listing), connect};
}

}  // namespace

std::unique_ptr<ByteSource> open_http_source(const std::string& reference, const std::string& endpoint) {
  if (is_hub(reference)) {
    const size_t end = end_of_repository(reference);
    if (end == std::string::npos) fail(ErrorKind::kUsage, "'{}': expected hf:ORG/NAME[@REV]/FILE", reference);
    const HubView hub = open_hub(reference.substr(0, end), endpoint);
    const std::string path = reference.substr(end + 1);
    for (const RemoteFile& file : hub.listing.files) {
      if (file.path == path) return std::make_unique<HttpSource>(hub.connect(), file.urls.front(), file.size);
    }
    fail(ErrorKind::kUsage, "{} has no file '{}'", reference.substr(0, end), path);
  }
  const Environment environment = read_environment();
  const SourceOptions options = quiet_options(environment, reference, endpoint);
  const Reference parsed = parse_reference(reference);
  if (parsed.kind != ReferenceKind::kUrl || parsed.url->is_file()) {
    fail(ErrorKind::kUsage, "'{}' is not a URL or hub file that can be read by ranges", reference);
  }
  HttpClient client(options.http, gather_credentials(parsed, std::nullopt, options, environment), options.retry);
  return std::make_unique<HttpSource>(std::move(client), *parsed.url, std::nullopt);
}

std::vector<std::unique_ptr<ByteSource>> open_remote_gguf(const std::string& reference, const std::string& endpoint) {
  std::vector<std::unique_ptr<ByteSource>> out;
  if (!is_hub(reference) || end_of_repository(reference) != std::string::npos) {
    out.push_back(open_http_source(reference, endpoint));
    return out;
  }
  const HubView hub = open_hub(reference, endpoint);
  // Shards of one model differ only in their number.
  static const std::regex kShard(R"((.*)-\d{5}-of-(\d{5})\.gguf)");
  std::map<std::string, std::vector<const RemoteFile*>> models;
  for (const RemoteFile& file : hub.listing.files) {
    if (!file.path.ends_with(".gguf") || file.path.find("mmproj") != std::string::npos) continue;
    std::smatch match;
    models[std::regex_match(file.path, match, kShard) ? match[1].str() : file.path].push_back(&file);
  }
  if (models.size() != 1) {
    std::string choices;
    for (const auto& [name, files] : models) {
      if (choices.size() > 1000) break;
      choices += fmt::format("\n  {}/{}", reference, files.front()->path);
    }
    fail(ErrorKind::kUsage, "{} holds {} GGUF models; name one:{}", reference, models.size(), choices);
  }
  for (const RemoteFile* file : models.begin()->second) {
    out.push_back(std::make_unique<HttpSource>(hub.connect(), file->urls.front(), file->size));
  }
  return out;
}

std::vector<RemoteModelFile> open_remote_checkpoint(const std::string& reference, const std::string& endpoint) {
  if (!is_hub(reference) || end_of_repository(reference) != std::string::npos) return {};
  const HubView hub = open_hub(reference, endpoint);
  std::vector<RemoteModelFile> out;
  bool weights = false;
  for (const RemoteFile& file : hub.listing.files) {
    if (file.path.ends_with(".gguf")) return {};
    const bool is_weights = file.path.ends_with(".safetensors");
    const bool is_small = file.path.ends_with(".json") || file.path.ends_with(".txt") || file.path.ends_with(".jinja");
    if ((!is_weights && !is_small) || file.path.find('/') != std::string::npos || file.size.value_or(0) == 0) continue;
    weights |= is_weights;
    out.push_back({file.path, std::make_unique<ListedSource>(hub.connect, file.urls.front(), *file.size)});
  }
  if (!weights) out.clear();
  return out;
}

}  // namespace tierpack::fetch

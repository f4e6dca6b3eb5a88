#include "fetch/sources.h"

#include <map>

#include "base/error.h"
#include "base/log.h"
#include "fetch/hubs.h"

namespace tierpack::fetch {

namespace {

// Two listings of one model: adds URLs of `other` to files it agrees on.
void merge_mirror(const Listing& other, Listing& listing) {
  std::map<std::string, const RemoteFile*> by_path;
  for (const RemoteFile& file : other.files) by_path[file.path] = &file;
  size_t differing = 0;
  for (RemoteFile& file : listing.files) {
    const auto at = by_path.find(file.path);
    if (at == by_path.end()) continue;
    const RemoteFile& twin = *at->second;
    if (file.sha256 && twin.sha256 && *file.sha256 == *twin.sha256 && file.size == twin.size) {
      file.urls.push_back(twin.urls.front());
    } else {
      ++differing;
    }
  }
  if (differing > 0) {
    log_info(fmt::format("mirror {}: {} file{} not provably the same; only {} will be asked for them", other.source,
                         differing, differing == 1 ? " is" : "s are", listing.source));
  }
}

}  // namespace

std::optional<Url> endpoint_for(const Reference& reference, const SourceOptions& options, const Environment& environment) {
  const auto trimmed = [](std::string text) {
    while (!text.empty() && text.back() == '/') text.pop_back();
    return text;
  };
  if (reference.kind == ReferenceKind::kUrl) {
    if (!options.endpoint.empty()) fail(ErrorKind::kUsage, "--endpoint is for hub references, not for URLs");
    return std::nullopt;
  }
  if (!options.endpoint.empty()) return Url::require(trimmed(options.endpoint), "--endpoint");
  switch (reference.kind) {
    case ReferenceKind::kHuggingFace:
      if (!environment.hf_endpoint.empty()) return Url::require(trimmed(environment.hf_endpoint), "HF_ENDPOINT");
      return Url::require(kHuggingFaceEndpoint, "endpoint");
    case ReferenceKind::kModelScope:
      if (!environment.modelscope_endpoint.empty()) {
        return Url::require(trimmed(environment.modelscope_endpoint), "MODELSCOPE_ENDPOINT");
      }
      return Url::require(kModelScopeEndpoint, "endpoint");
    case ReferenceKind::kOci: return Url::require("https://" + reference.host, "registry");
    default: return std::nullopt;
  }
}

Credentials gather_credentials(const Reference& reference, const std::optional<Url>& endpoint,
                               const SourceOptions& options, const Environment& environment) {
  Credentials out;
  // The environment's tokens go to the hubs they are for, whatever is fetched (a lock may name several).
  out.add(Url::require(kHuggingFaceEndpoint, "endpoint").origin(), environment.hf_token);
  out.add(Url::require(kModelScopeEndpoint, "endpoint").origin(), environment.modelscope_token, "m_session_id");

  const bool modelscope = reference.kind == ReferenceKind::kModelScope;
  const std::optional<Url> target = endpoint ? endpoint : reference.url;
  if (!options.token_file.empty()) {
    if (!target) fail(ErrorKind::kUsage, "--token-file: a lock file names no single server; add --endpoint");
    const std::string token = read_token_file(options.token_file);
    if (token.empty()) fail(ErrorKind::kUsage, "--token-file {}: the file holds no token", options.token_file);
    out.add(target->origin(), token, modelscope ? "m_session_id" : "");
  } else if (target && options.send_token) {
    const std::string& token = modelscope ? environment.modelscope_token : environment.hf_token;
    out.add(target->origin(), token, modelscope ? "m_session_id" : "");
  } else if (endpoint && !out.has(endpoint->origin()) && reference.kind == ReferenceKind::kHuggingFace &&
             !environment.hf_token.empty()) {
    log_detail(fmt::format("the token from {} is not sent to {}; --send-token-to-endpoint would", environment.hf_token_source,
                           endpoint->origin().text()));
  }
  if (target && out.has(target->origin()) && target->origin().scheme == "http" &&
      classify_literal(target->origin().host) != AddressClass::kLoopback) {
    log_warning(fmt::format("the token travels unprotected to {}", target->origin().text()));
  }
  return out;
}

Listing list_source(HttpClient& client, const Reference& reference, const std::optional<Url>& endpoint,
                    const SourceOptions& options) {
  if (options.sha256 && reference.kind != ReferenceKind::kUrl) {
    fail(ErrorKind::kUsage, "--sha256 is for a single URL; hubs and locks bring their own hashes");
  }
  switch (reference.kind) {
    case ReferenceKind::kHuggingFace: return list_huggingface(client, reference, *endpoint);
    case ReferenceKind::kModelScope: return list_modelscope(client, reference, *endpoint);
    case ReferenceKind::kOci: return list_oci(client, reference, *endpoint);
    case ReferenceKind::kUrl: return list_url(client, reference, options.sha256);
    case ReferenceKind::kLock: return list_lock(read_lock(reference.path), endpoint);
  }
  fail(ErrorKind::kInternal, "unknown kind of reference");
}

namespace {

Listing list_mirror(HttpClient& client, const std::string& text, const Environment& environment) {
  const Reference other = parse_reference(text);
  const Url endpoint = *endpoint_for(other, {}, environment);
  return other.kind == ReferenceKind::kHuggingFace ? list_huggingface(client, other, endpoint)
                                                   : list_modelscope(client, other, endpoint);
}

}  // namespace

void add_mirrors(HttpClient& client, const Reference& reference, const SourceOptions& options,
                 const Environment& environment, Listing& listing) {
  for (const std::string& text : options.mirrors) {
    if (text.starts_with("hf:") || text.starts_with("ms:")) {
      // A mirror that cannot be asked is no reason not to fetch.
      try {
        merge_mirror(list_mirror(client, text, environment), listing);
      } catch (const Error& e) {
        if (e.kind() == ErrorKind::kInterrupted || e.kind() == ErrorKind::kUsage) throw;
        log_warning(fmt::format("mirror {} is left out: {}", text, e.what()));
      }
      continue;
    }
    const Url base = Url::require(text, "--mirror");
    const bool single = reference.kind == ReferenceKind::kUrl && listing.files.size() == 1 && !base.path().ends_with("/");
    for (RemoteFile& file : listing.files) {
      if (listing.source.starts_with("hf:")) {
        file.urls.push_back(huggingface_file_url(base, listing.source, listing.revision, file.path));
      } else if (listing.source.starts_with("ms:")) {
        file.urls.push_back(modelscope_file_url(base, listing.source, listing.revision, file.path));
      } else if (listing.source.starts_with("oci:") || listing.source.starts_with("ollama:")) {
        file.urls.push_back(registry_blob_url(base, listing.source, *file.sha256));
      } else {
        file.urls.push_back(single ? base : base.with_path_suffix("/" + percent_encode(file.path, "/")));
      }
    }
  }
}

}  // namespace tierpack::fetch

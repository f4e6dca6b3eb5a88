// From what the user typed and the environment says to a client with its credentials and a listing with its mirrors.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fetch/environment.h"
#include "fetch/http_client.h"
#include "fetch/listing.h"
#include "fetch/source_reference.h"
#include "formats/lock.h"

namespace tierpack::fetch {

struct SourceOptions {
  HttpSettings http;
  RetryPolicy retry;
  std::string endpoint;    // "" = from the environment, else the hub's own
  std::string token_file;
  bool send_token = false;  // HF_TOKEN also to an endpoint that is not the hub itself
  std::vector<std::string> mirrors;
  std::optional<Sha256Digest> sha256;
};

inline constexpr const char* kHuggingFaceEndpoint = "https://huggingface.co";
inline constexpr const char* kModelScopeEndpoint = "https://modelscope.cn";

// The hub's base URL for this reference; nullopt for references that have none.
std::optional<Url> endpoint_for(const Reference& reference, const SourceOptions& options, const Environment& environment);

// Tokens bound to the origins they are for. `note` is told what was deliberately not sent.
Credentials gather_credentials(const Reference& reference, const std::optional<Url>& endpoint,
                               const SourceOptions& options, const Environment& environment);

// Asks the source; for a lock, reads it. The listing is not yet checked by check_listing.
Listing list_source(HttpClient& client, const Reference& reference, const std::optional<Url>& endpoint,
                    const SourceOptions& options);

// Adds the mirrors' URLs behind the listing's own. Another hub's repository is asked for its list, and only files of
// equal size and SHA-256 are taken from there.
void add_mirrors(HttpClient& client, const Reference& reference, const SourceOptions& options,
                 const Environment& environment, Listing& listing);

}  // namespace tierpack::fetch

// The listings of every kind of source. Each function answers with pinned, checked metadata (sizes, hashes, URLs) taken
// from the source's own API, never from what a delivery network says about a file.
#pragma once

#include <string>

#include "fetch/http_client.h"
#include "fetch/listing.h"
#include "fetch/source_reference.h"
#include "formats/lock.h"

namespace tierpack::fetch {

// `endpoint`: base URL of the hub. `revision`: branch, tag or commit, "" for the default. Throws kRefused with the hub's
// reason, kNetwork, kCorrupt for answers that make no sense.
Listing list_huggingface(HttpClient& client, const Reference& reference, const Url& endpoint);
Listing list_modelscope(HttpClient& client, const Reference& reference, const Url& endpoint);
Listing list_oci(HttpClient& client, const Reference& reference, const Url& endpoint);

// One file, or the files of a SHA256SUMS list. `sha256` is the user's own promise for a single file.
Listing list_url(HttpClient& client, const Reference& reference, const std::optional<Sha256Digest>& sha256);

// What a lock names. With `endpoint`, the files of hubs and registries come from there instead of where the lock was made.
Listing list_lock(const Lock& lock, const std::optional<Url>& endpoint);

// Where a file of a hub repository is downloaded.
Url huggingface_file_url(const Url& endpoint, const std::string& source, const std::string& revision,
                         const std::string& path);
Url modelscope_file_url(const Url& endpoint, const std::string& source, const std::string& revision,
                        const std::string& path);
// `source` as in Listing: "oci:HOST/REPO" or "ollama:HOST/REPO".
Url registry_blob_url(const Url& endpoint, const std::string& source, const Sha256Digest& digest);

}  // namespace tierpack::fetch

// Container registries (OCI distribution, Ollama's dialect): a manifest names blobs by SHA-256 and size.
//
// Facts: GET {registry}/v2/{repo}/manifests/{tag|digest} -> {"config": {...}, "layers": [{"mediaType", "digest", "size",
// "annotations"?}]}; blobs at /v2/{repo}/blobs/{digest}. A digest is used nowhere before it has the form sha256:<64 hex>.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "fetch/hub_answers.h"
#include "fetch/hubs.h"
#include "fetch/registry_auth.h"

namespace tierpack::fetch {

namespace {

constexpr uint64_t kMaxManifestBytes = uint64_t{4} << 20;
constexpr const char* kAccept =
    "Accept: application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";

Sha256Digest parse_digest(const std::string& text, const std::string& where) {
  Sha256Digest digest;
  if (!text.starts_with("sha256:") || !from_hex(std::string_view(text).substr(7), digest.bytes)) {
    fail(ErrorKind::kCorrupt, "{}: '{}' is not a sha256 digest", where, printable(text, 100));
  }
  return digest;
}

// A file name for a blob: its title if the manifest gives one, else by what it is.
std::string blob_name(const Json& layer, const std::string& media_type, const std::string& model) {
  if (layer.contains("annotations") && layer["annotations"].is_object()) {
    const Json& annotations = layer["annotations"];
    if (annotations.contains("org.opencontainers.image.title") && annotations["org.opencontainers.image.title"].is_string()) {
      return annotations["org.opencontainers.image.title"].get<std::string>();
    }
  }
  static const std::map<std::string, std::string> kSuffixes = {
      {"application/vnd.ollama.image.model", ".gguf"},
      {"application/vnd.docker.ai.gguf.v3", ".gguf"},
      {"application/vnd.ollama.image.projector", ".projector.gguf"},
      {"application/vnd.ollama.image.adapter", ".adapter.gguf"},
      {"application/vnd.ollama.image.template", ".template"},
      {"application/vnd.ollama.image.system", ".system"},
      {"application/vnd.ollama.image.params", ".params.json"},
      {"application/vnd.ollama.image.messages", ".messages.json"},
      {"application/vnd.ollama.image.license", ".license"},
      {"application/vnd.docker.container.image.v1+json", ".config.json"},
      {"application/vnd.oci.image.config.v1+json", ".config.json"},
  };
  const auto at = kSuffixes.find(media_type);
  return model + (at != kSuffixes.end() ? at->second : ".blob");
}

}  // namespace

std::vector<RemoteFile> parse_registry_manifest(std::string_view body, const std::string& where, const std::string& model) {
  const Json manifest = parse_json(body, where);
  const Json& layers = json_member(manifest, "layers", where);
  if (!layers.is_array()) fail(ErrorKind::kCorrupt, "{}: layers is not an array", where);
  std::vector<Json> blobs(layers.begin(), layers.end());
  if (manifest.contains("config") && manifest["config"].is_object()) blobs.push_back(manifest["config"]);
  std::vector<RemoteFile> out;
  std::map<std::string, int> used;
  for (const Json& blob : blobs) {
    if (!blob.is_object()) fail(ErrorKind::kCorrupt, "{}: a layer is not an object", where);
    RemoteFile file;
    file.sha256 = parse_digest(json_string(blob, "digest", where), where);
    file.hash_origin = "hub";
    file.size = json_u64(blob, "size", where);
    file.path = blob_name(blob, json_string(blob, "mediaType", where), model);
    if (const int earlier = used[file.path]++; earlier > 0) file.path += fmt::format(".{}", earlier + 1);
    out.push_back(std::move(file));
  }
  return out;
}

Url registry_blob_url(const Url& endpoint, const std::string& source, const Sha256Digest& digest) {
  const std::string repo = source.substr(std::min(source.find('/'), source.size() - 1) + 1);  // after "oci:HOST/"
  return endpoint.with_path_suffix(fmt::format("/v2/{}/blobs/sha256:{}", repo, digest.hex()));
}

Listing list_oci(HttpClient& client, const Reference& reference, const Url& endpoint) {
  const Url url = endpoint.with_path_suffix(fmt::format("/v2/{}/manifests/{}", reference.repo, reference.revision));
  const GetOptions get{.headers = {kAccept}, .max_bytes = kMaxManifestBytes, .json = true};
  HttpAnswer answer = client.get(url, get);
  if (answer.head.status == 401 && !client.credentials().has(endpoint.origin())) {
    if (auto token = registry_token(client, endpoint, answer.head)) {
      client.add_credential(endpoint.origin(), std::move(*token));
      answer = client.get(url, get);
    }
  }
  const std::string where = url.redacted();
  if (answer.head.status != 200) {
    fail(ErrorKind::kRefused, "{}:{} at {}: {} (the registry answers {})", reference.text, reference.revision,
         endpoint.origin().text(),
         answer.head.status == 404 ? "no such model or tag" : "it may not be read without a token", answer.head.status);
  }
  const std::string digest = "sha256:" + Sha256::of(as_bytes(answer.body)).hex();
  const std::string promised = reference.revision.starts_with("sha256:") ? reference.revision
                                                                         : answer.head.value("docker-content-digest");
  if (!promised.empty() && promised != digest) {
    fail(ErrorKind::kCorrupt, "{}: the manifest hashes to {}, promised was {}", where, digest, printable(promised, 100));
  }

  Listing listing;
  listing.source = reference.text;
  listing.endpoint = endpoint.origin().text();
  listing.revision = digest;
  const std::string model = reference.repo.substr(reference.repo.rfind('/') + 1) +
                            (reference.revision.starts_with("sha256:") ? "" : "-" + reference.revision);
  listing.files = parse_registry_manifest(answer.body, where, model);
  for (RemoteFile& file : listing.files) file.urls.push_back(registry_blob_url(endpoint, listing.source, *file.sha256));
  std::sort(listing.files.begin(), listing.files.end(),
            [](const RemoteFile& a, const RemoteFile& b) { return a.path < b.path; });
  return listing;
}

}  // namespace tierpack::fetch

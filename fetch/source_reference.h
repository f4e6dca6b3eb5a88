// What the user wants fetched, parsed from the REF argument.
//
//   hf:ORG/NAME[@REV]         Hugging Face model; hf:datasets/ORG/NAME for a dataset, hf:spaces/ORG/NAME for a space
//   ms:ORG/NAME[@REV]         ModelScope model; ms:datasets/ORG/NAME for a dataset
//   ollama:[HOST/][NS/]NAME[:TAG]   Ollama registry; oci:HOST/NAME[:TAG|@sha256:...] any OCI registry
//   http(s)://.../file        one file;   http(s)://.../SHA256SUMS or .../ with a SHA256SUMS file: a list of files
//   file:///path              a local file or directory
//   path/to/tierpack.lock.json   exactly what a lock names
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fetch/url.h"

namespace tierpack::fetch {

enum class ReferenceKind { kHuggingFace, kModelScope, kOci, kUrl, kLock };
enum class RepoType { kModel, kDataset, kSpace };

struct Reference {
  ReferenceKind kind = ReferenceKind::kUrl;
  RepoType type = RepoType::kModel;
  std::string repo;      // "ORG/NAME", or an OCI repository name
  std::string revision;  // branch, tag, commit; an OCI tag or digest; "" = the default
  std::string host;      // OCI registry, with port if given
  bool is_ollama = false;
  std::optional<Url> url;  // kUrl, file:// included
  std::string path;      // kLock
  std::string text;      // canonical form without revision, as recorded in locks
};

// Throws kUsage with the accepted forms.
Reference parse_reference(std::string_view text);

}  // namespace tierpack::fetch

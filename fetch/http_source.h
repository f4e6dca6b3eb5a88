// A remote object as a ByteSource, read by ranges: so that inspecting a URL and inspecting a file are the same code.
//
// Reads are answered from the pieces fetched last; a request fetches at least 256 KiB, because headers are read in small
// steps. Every answer must prove its place as for a download; a changed object, an HTML page or a server without ranges
// is an error, not data. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"

namespace tierpack::fetch {

// Opens an http(s) URL, or one file of a hub: "hf:ORG/NAME[@REV]/path/in/repo" (a file://... URL or a plain path is not
// accepted). Credentials and proxies come from the environment as for `fetch`; `endpoint` as its --endpoint, may be "".
// Throws kUsage, kNetwork, kRefused.
std::unique_ptr<ByteSource> open_http_source(const std::string& reference, const std::string& endpoint = "");

// The shards of the one GGUF model that a URL or hub reference stands for: a URL or hub file is itself; a whole repository
// (hf:ORG/NAME) must hold exactly one model, split or not, projector files aside. Throws kUsage with the choices if not.
std::vector<std::unique_ptr<ByteSource>> open_remote_gguf(const std::string& reference, const std::string& endpoint = "");

struct RemoteModelFile {
  std::string name;
  std::unique_ptr<ByteSource> bytes;  // asked for when it is first read
};

// The files of the safetensors checkpoint that a whole repository (hf:ORG/NAME) holds: weights, and the small files that describe
// them, none in folders. Empty for a repository that holds GGUF files, and for any other reference.
std::vector<RemoteModelFile> open_remote_checkpoint(const std::string& reference, const std::string& endpoint = "");

}  // namespace tierpack::fetch

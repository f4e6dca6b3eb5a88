// The few standard environment variables that mean here what they mean elsewhere, read once. The only getenv of the
// program is behind this; proxies (http_proxy, https_proxy, all_proxy, no_proxy) are read by libcurl itself.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace tierpack::fetch {

struct Environment {
  // HF_TOKEN, else HUGGING_FACE_HUB_TOKEN, else the file HF_TOKEN_PATH or HF_HOME/token; "" with HF_HUB_DISABLE_IMPLICIT_TOKEN.
  std::string hf_token;
  std::string hf_token_source; // which of these, for messages
  std::string hf_endpoint;     // HF_ENDPOINT, "" if unset
  std::filesystem::path hf_cache;  // HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME or ~/.cache, huggingface/hub
  bool offline = false;        // HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is 1, on, yes or true
  std::string modelscope_token;     // MODELSCOPE_API_TOKEN
  std::string modelscope_endpoint;  // MODELSCOPE_ENDPOINT
  std::string ca_file;         // SSL_CERT_FILE, else CURL_CA_BUNDLE
  std::string ca_directory;    // SSL_CERT_DIR
  std::string http_proxy;      // HTTP_PROXY, unless http_proxy is set (which libcurl reads)
};

using Lookup = std::function<const char*(const char*)>;

// `lookup` stands in for getenv in tests. Token files are read from disk.
Environment read_environment(const Lookup& lookup);
Environment read_environment();

// A token as people store it: first line, white space removed. "" if the file does not exist.
std::string read_token_file(const std::filesystem::path& path);

}  // namespace tierpack::fetch

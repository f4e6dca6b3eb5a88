#include "fetch/environment.h"

#include <sys/stat.h>

#include <cctype>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace tierpack::fetch {

namespace fs = std::filesystem;

namespace {

std::string trimmed(std::string text) {
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && is_space(text.back())) text.pop_back();
  size_t from = 0;
  while (from < text.size() && is_space(text[from])) ++from;
  return text.substr(from);
}

bool truthy(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text == "1" || text == "ON" || text == "YES" || text == "TRUE";
}

}  // namespace

std::string read_token_file(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  if ((info.st_mode & 077) != 0 && S_ISREG(info.st_mode)) {
    log_warning(fmt::format("{} holds a token and can be read by others; chmod 600 it", path.string()));
  }
  std::string text = read_text_file(path, 64 << 10);
  return trimmed(text.substr(0, text.find('\n')));
}

Environment read_environment(const Lookup& lookup) {
  const auto value = [&](const char* name) {
    const char* text = lookup(name);
    return text != nullptr ? trimmed(text) : std::string();
  };
  Environment out;

  const std::string home = value("HOME");
  fs::path hf_home = value("HF_HOME");
  if (hf_home.empty()) {
    const std::string cache = value("XDG_CACHE_HOME");
    hf_home = fs::path(cache.empty() ? home + "/.cache" : cache) / "huggingface";
  }
  const std::string cache = value("HF_HUB_CACHE");
  out.hf_cache = cache.empty() ? hf_home / "hub" : fs::path(cache);

  const bool implicit = !truthy(value("HF_HUB_DISABLE_IMPLICIT_TOKEN"));
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (!implicit || !out.hf_token.empty()) break;
    out.hf_token = value(name);
    out.hf_token_source = name;
  }
  if (implicit && out.hf_token.empty()) {
    const std::string path = value("HF_TOKEN_PATH");
    const fs::path file = path.empty() ? hf_home / "token" : fs::path(path);
    out.hf_token = read_token_file(file);
    out.hf_token_source = file.string();
  }
  if (out.hf_token.empty()) out.hf_token_source.clear();

  out.hf_endpoint = value("HF_ENDPOINT");
  out.offline = truthy(value("HF_HUB_OFFLINE")) || truthy(value("TRANSFORMERS_OFFLINE"));
  out.modelscope_token = value("MODELSCOPE_API_TOKEN");
  out.modelscope_endpoint = value("MODELSCOPE_ENDPOINT");
  out.ca_file = value("SSL_CERT_FILE");
  if (out.ca_file.empty()) out.ca_file = value("CURL_CA_BUNDLE");
  if (value("http_proxy").empty()) out.http_proxy = value("HTTP_PROXY");
  out.ca_directory = value("SSL_CERT_DIR");
  return out;
}

Environment read_environment() { return read_environment([](const char* name) { return std::getenv(name); }); }

}  // namespace tierpack::fetch

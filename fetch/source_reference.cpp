#include "fetch/source_reference.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/error.h"

namespace tierpack::fetch {

namespace {

bool is_repo_segment(std::string_view text) {
  if (text.empty() || text.size() > 128 || text == "." || text == "..") return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  });
}

// A revision becomes a URL segment and part of file names in a cache: no control characters, no "..".
bool is_revision(std::string_view text) {
  if (text.size() > 255 || text.find("..") != std::string_view::npos || text.front() == '/') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > 0x20 && byte < 0x7f && c != '\\' && c != '?' && c != '#' && c != '%';
  });
}

std::string_view take_prefix(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix ? text.substr(prefix.size()) : text;
}

Reference parse_hub(ReferenceKind kind, std::string_view rest, std::string_view text, const char* scheme) {
  Reference out;
  out.kind = kind;
  if (rest.substr(0, 9) == "datasets/") out.type = RepoType::kDataset;
  if (rest.substr(0, 7) == "spaces/") out.type = RepoType::kSpace;
  rest = take_prefix(rest, "models/");
  rest = take_prefix(rest, "datasets/");
  rest = take_prefix(rest, "spaces/");
  if (const size_t at = rest.find('@'); at != std::string_view::npos) {
    out.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (out.revision.empty() || !is_revision(out.revision)) {
      fail(ErrorKind::kUsage, "'{}': '{}' is not a revision", text, out.revision);
    }
  }
  const size_t slash = rest.find('/');
  const bool one = slash == std::string_view::npos && kind == ReferenceKind::kHuggingFace;
  const bool good = one ? is_repo_segment(rest)
                        : slash != std::string_view::npos && is_repo_segment(rest.substr(0, slash)) &&
                              is_repo_segment(rest.substr(slash + 1));
  if (!good) fail(ErrorKind::kUsage, "'{}': expected {}:ORG/NAME[@REVISION]", text, scheme);
  out.repo = rest;
  const char* folder = out.type == RepoType::kDataset ? "datasets/" : out.type == RepoType::kSpace ? "spaces/" : "";
  out.text = fmt::format("{}:{}{}", scheme, folder, out.repo);
  return out;
}

Reference parse_registry(std::string_view rest, std::string_view text, bool is_ollama) {
  Reference out;
  out.kind = ReferenceKind::kOci;
  out.is_ollama = is_ollama;
  out.host = is_ollama ? "registry.ollama.ai" : "";
  out.revision = "latest";
  const auto bad = [&](const char* why) {
    fail(ErrorKind::kUsage, "'{}': {}; expected {}", text, why,
         is_ollama ? "ollama:[HOST/][NAMESPACE/]NAME[:TAG]" : "oci:HOST/NAME[:TAG|@sha256:DIGEST]");
  };
  if (const size_t at = rest.find('@'); at != std::string_view::npos) {
    out.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (out.revision.substr(0, 7) != "sha256:" || out.revision.size() != 71) bad("a digest is sha256: and 64 hex digits");
  } else if (const size_t colon = rest.rfind(':'); colon != std::string_view::npos && rest.find('/', colon) == std::string_view::npos) {
    out.revision = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    if (!is_repo_segment(out.revision)) bad("that is not a tag");
  }
  // The first component is a host if it looks like one.
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    const std::string_view first = rest.substr(0, slash);
    if (!is_ollama || first.find_first_of(".:") != std::string_view::npos || first == "localhost") {
      out.host = first;
      rest.remove_prefix(slash + 1);
    }
  }
  if (out.host.empty()) bad("a registry host is missing");
  std::string repo(rest);
  if (is_ollama && repo.find('/') == std::string::npos) repo = "library/" + repo;
  for (std::string_view left = repo;;) {
    const size_t end = std::min(left.find('/'), left.size());
    if (!is_repo_segment(left.substr(0, end))) bad("the repository name is not valid");
    if (end == left.size()) break;
    left.remove_prefix(end + 1);
  }
  out.repo = repo;
  out.text = fmt::format("{}:{}/{}", is_ollama ? "ollama" : "oci", out.host, out.repo);
  return out;
}

}  // namespace

Reference parse_reference(std::string_view text) {
  if (text.substr(0, 3) == "hf:") return parse_hub(ReferenceKind::kHuggingFace, text.substr(3), text, "hf");
  if (text.substr(0, 3) == "ms:") return parse_hub(ReferenceKind::kModelScope, text.substr(3), text, "ms");
  if (text.substr(0, 7) == "ollama:") return parse_registry(text.substr(7), text, true);
  if (text.substr(0, 4) == "oci:") return parse_registry(text.substr(4), text, false);
  Reference out;
  if (text.find("://") != std::string_view::npos) {
    out.url = Url::require(text, "REF");
    if (out.url->has_credentials()) {
      fail(ErrorKind::kUsage, "'{}': leave user names and passwords out of URLs, they end up in logs; use --token-file",
           out.url->redacted());
    }
    out.kind = ReferenceKind::kUrl;
    out.text = out.url->origin().text() + out.url->path();  // a signature in the query is not part of the name
    return out;
  }
  if (text.ends_with(".json") || std::filesystem::is_regular_file(std::filesystem::path(text))) {
    out.kind = ReferenceKind::kLock;
    out.path = text;
    out.text = text;
    return out;
  }
  fail(ErrorKind::kUsage,
       "'{}' is not a reference; expected hf:ORG/NAME[@REV], ms:ORG/NAME[@REV], ollama:NAME[:TAG], oci:HOST/NAME[:TAG], an "
       "http, https or file URL, or the path of a lock file", text);
}

}  // namespace tierpack::fetch

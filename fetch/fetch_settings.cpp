#include "fetch/fetch_settings.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"

namespace tierpack::fetch {

HttpSettings http_settings(const FetchOptions& options, const Environment& environment) {
  HttpSettings http;
  http.user_agent = std::string("tierpack/") + TIERPACK_VERSION;
  http.connect_timeout_s = options.connect_timeout_s;
  http.stall_timeout_s = options.stall_timeout_s;
  http.ca_file = options.ca_file.empty() ? environment.ca_file : options.ca_file;
  http.ca_directory = options.ca_file.empty() ? environment.ca_directory : "";
  http.http_proxy = environment.http_proxy;
  http.insecure = options.insecure;
  http.ip_version = options.ipv4 ? 4 : options.ipv6 ? 6 : 0;
  http.allow_private_redirects = options.allow_private;
  if (options.insecure) log_warning("--insecure: certificates are not verified; only the hashes protect what is fetched");
  return http;
}

namespace {

RetryPolicy retry_policy(const FetchOptions& options) {
  RetryPolicy out;
  out.attempts = options.retries;
  out.first_wait_s = options.retry_wait_s;
  return out;
}

}  // namespace

SourceOptions source_options(const FetchOptions& options, const HttpSettings& http) {
  SourceOptions out;
  out.http = http;
  out.retry = retry_policy(options);
  out.endpoint = options.endpoint;
  out.token_file = options.token_file;
  out.send_token = options.send_token;
  out.mirrors = options.mirrors;
  if (!options.sha256.empty()) {
    Sha256Digest digest;
    if (!from_hex(options.sha256, digest.bytes)) fail(ErrorKind::kUsage, "--sha256: 64 hex digits are expected");
    out.sha256 = digest;
  }
  return out;
}

DownloadOptions download_options(const FetchOptions& options, const HttpSettings& http) {
  DownloadOptions out;
  out.http = http;
  out.retry = retry_policy(options);
  out.files_at_once = options.jobs;
  if (options.connections != "auto") {
    const auto number = parse_decimal(options.connections);
    if (!number || *number < 1 || *number > 256) fail(ErrorKind::kUsage, "--connections: a number up to 256, or auto");
    out.connections = static_cast<int>(*number);
  }
  if (!options.range_size.empty()) {
    out.range_bytes = parse_size(options.range_size);
    if (out.range_bytes < 4096) fail(ErrorKind::kUsage, "--range-size: at least 4K");
  }
  if (!options.limit_rate.empty()) {
    out.limit_bytes_per_s = parse_size(options.limit_rate);
    if (out.limit_bytes_per_s == 0) fail(ErrorKind::kUsage, "--limit-rate: at least 1 byte per second");
    // A slow link is not a stalled one.
    out.http.stall_bytes_per_s = std::clamp<uint64_t>(out.limit_bytes_per_s / 64, 1, out.http.stall_bytes_per_s);
    out.http.receive_buffer_bytes = std::clamp<uint64_t>(out.limit_bytes_per_s / 16, 16 << 10, 512 << 10);
  }
  out.journal_s = options.checkpoint_s;
  out.hash_threads = std::clamp(usable_cores(), 1, options.jobs);
  const mode_t mask = ::umask(022);
  ::umask(mask);
  out.file_mode = 0644 & ~mask;
  out.replace = options.force;
  out.reread = options.reread;
  out.accept_unknown_size = options.accept_unknown_size;
  out.check_structure = !options.no_structure_check;
  return out;
}

int exit_code_of(const std::vector<FileOutcome>& outcomes) {
  static constexpr ErrorKind kOrder[] = {ErrorKind::kCorrupt, ErrorKind::kCapacity, ErrorKind::kIo, ErrorKind::kRefused,
                                         ErrorKind::kNetwork};
  for (const ErrorKind kind : kOrder) {
    for (const FileOutcome& outcome : outcomes) {
      if (outcome.status == FileOutcome::Status::kFailed && outcome.kind == kind) return exit_code(kind);
    }
  }
  const bool any = std::any_of(outcomes.begin(), outcomes.end(),
                               [](const FileOutcome& o) { return o.status == FileOutcome::Status::kFailed; });
  return any ? 1 : 0;
}

}  // namespace tierpack::fetch

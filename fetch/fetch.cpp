#include "fetch/fetch.h"

#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "fetch/fetch_job.h"

namespace tierpack::fetch {

CommandRun setup_fetch(CLI::App& app) {
  const auto options = std::make_shared<FetchOptions>();
  FetchOptions& o = *options;
  app.add_option("REF", o.reference, "hf:ORG/NAME[@REV], ms:ORG/NAME[@REV], ollama:NAME[:TAG], oci:HOST/NAME[:TAG], URL, or a lock file")
      ->required();
  app.add_option("--to", o.to, "Directory for the files (of a lock file: where it is)");
  app.add_option("--include", o.selection.include, "Only files that match this pattern; * also matches /; repeatable");
  app.add_option("--exclude", o.selection.exclude, "Not the files that match this pattern; repeatable");
  app.add_option("--revision", o.revision, "Branch, tag or commit; pinned to a commit before anything is fetched");
  app.add_option("--sha256", o.sha256, "What the single file must hash to");
  app.add_option("--lock", o.lock, "Where to write the lock (default: tierpack.lock.json in the directory)");

  CLI::Option_group* const network = app.add_option_group("Network");
  network->add_option("--endpoint", o.endpoint, "Base URL of the hub (default: HF_ENDPOINT or the hub's own)");
  network->add_option("--mirror", o.mirrors, "Another place with the same files: a base URL, hf:ORG/NAME or ms:ORG/NAME; repeatable");
  network->add_option("--jobs", o.jobs, "Files in progress at once")->check(CLI::Range(1, 256))->capture_default_str();
  network->add_option("--connections", o.connections, "Connections over all files: a number, or auto")->capture_default_str();
  network->add_option("--limit-rate", o.limit_rate, "Bytes per second over all connections, such as 20M");
  network->add_option("--range-size", o.range_size, "Bytes asked for in one request (default: by file size)");
  network->add_option("--stall-timeout", o.stall_timeout_s, "Seconds with hardly a byte before a connection is given up")
      ->check(CLI::Range(1.0, 86400.0))->capture_default_str();
  network->add_option("--connect-timeout", o.connect_timeout_s, "Seconds to wait for a connection")
      ->check(CLI::Range(0.1, 3600.0))->capture_default_str();
  network->add_option("--retries", o.retries, "Failures in a row before a source is given up")
      ->check(CLI::Range(0, 1000))->capture_default_str();
  network->add_option("--retry-wait", o.retry_wait_s, "Longest wait in seconds after the first failure; doubles with each")
      ->check(CLI::Range(0.001, 3600.0))->capture_default_str();
  network->add_option("--cacert", o.ca_file, "Certificates to trust (default: SSL_CERT_FILE or the system's)")->check(CLI::ExistingFile);
  network->add_flag("-4,--ipv4", o.ipv4, "IPv4 only");
  network->add_flag("-6,--ipv6", o.ipv6, "IPv6 only");

  CLI::Option_group* const trust = app.add_option_group("Trust");
  trust->add_option("--token-file", o.token_file, "File with an access token for the endpoint (default: HF_TOKEN for the hub itself)")
      ->check(CLI::ExistingFile);
  trust->add_flag("--send-token-to-endpoint", o.send_token, "Send HF_TOKEN also to an endpoint other than the hub itself");
  trust->add_flag("--reread", o.reread, "Before publishing, read every file back from the disk and hash it once more");
  trust->add_flag("--force", o.force, "Replace existing files that have other content");
  trust->add_flag("--accept-unknown-size", o.accept_unknown_size, "Believe a server that does not say where a file ends");
  trust->add_flag("--no-structure-check", o.no_structure_check, "Do not compare a GGUF's header with its promised size");
  trust->add_flag("--allow-private-redirects", o.allow_private, "Let redirects lead to private addresses");
  trust->add_flag("--insecure", o.insecure, "Do not verify certificates");

  CLI::Option_group* const mode = app.add_option_group("Mode");
  mode->add_option("--hf-cache", o.hf_cache, "Use the hub's cache layout, so that other tools find the files; a directory, or "
                   "nothing for the default cache")->expected(0, 1)->default_str("");
  mode->add_flag("--no-cache", o.no_cache, "Do not copy files that the hub's own cache has already (they are hashed like any other)");
  mode->add_flag("--offline", o.offline, "Ask no network: check what is there against its lock");
  mode->add_flag("--dry-run", o.dry_run, "Show what would be fetched and whether it fits (exit 4 if not), fetch nothing");
  mode->add_flag("--no-space-check", o.no_space_check, "Begin although the disk seems too small");
  mode->add_flag("--wait", o.wait, "Wait if another fetch works in the same directory");
  mode->add_flag("--json", o.json, "Events on stdout, one JSON object a line");

  app.footer(
      "A file gets its name only when all of it is there and its SHA-256 is the promised one. What a stopped or killed\n"
      "fetch leaves is continued by running the same command again. tierpack.lock.json records commit, sizes and hashes;\n"
      "fetching that lock elsewhere gives the same bytes.\n"
      "Environment: HF_TOKEN, HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE, https_proxy, no_proxy, SSL_CERT_FILE.\n"
      "Examples:\n"
      "  tierpack fetch hf:Qwen/Qwen3-30B-A3B-GGUF --include '*Q4_K_M*' --to qwen3\n"
      "  tierpack fetch hf:ORG/NAME@v1.0 --to model --dry-run\n"
      "  tierpack fetch ms:ORG/NAME --to model --mirror hf:ORG/NAME\n"
      "  tierpack fetch qwen3/tierpack.lock.json --to elsewhere\n"
      "  tierpack fetch https://example.org/model.gguf --sha256 HEX --to model\n"
      "  tierpack fetch qwen3/tierpack.lock.json --offline");
  CLI::Option* const cache = mode->get_option("--hf-cache");
  return [options, cache] {
    options->use_hf_cache = cache->count() > 0;
    return run_fetch(*options);
  };
}

}  // namespace tierpack::fetch

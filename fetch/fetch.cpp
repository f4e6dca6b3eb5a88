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
  app.add_option("--include", o.selection.include, "Only files that match this pattern; * also matches /; repeatable")->allow_extra_args(false);
  app.add_option("--exclude", o.selection.exclude, "Not the files that match this pattern; repeatable")->allow_extra_args(false);
  app.add_option("--revision", o.revision, "Branch, tag or commit; pinned to a commit before anything is fetched");
  app.add_option("--sha256", o.sha256, "What the single file must hash to");
  app.add_option("--lock", o.lock, "Where to write the lock (default: tierpack.lock.json in the directory)");

  CLI::Option_group* const network = app.add_option_group("Network");
  network->add_option("--jobs", o.jobs, "Files in progress at once")->check(CLI::Range(1, 256))->capture_default_str();
  CLI::Option_group* const trust = app.add_option_group("Trust");
  add_network_options(*network, *trust, o);
  trust->add_flag("--reread", o.reread, "Before publishing, read every file back from the disk and hash it once more");
  trust->add_flag("--force", o.force, "Replace existing files that have other content");
  trust->add_flag("--accept-unknown-size", o.accept_unknown_size, "Believe a server that does not say where a file ends");
  trust->add_flag("--no-structure-check", o.no_structure_check, "Do not compare a GGUF's header with its promised size");

  CLI::Option_group* const mode = app.add_option_group("Mode");
  mode->add_option("--hf-cache", o.hf_cache, "Use the hub's cache layout, so that other tools find the files; a directory, or "
                   "nothing for the default cache")->expected(0, 1)->default_str("");
  mode->add_flag("--no-cache", o.no_cache, "Do not copy files that the hub's own cache has already (they are hashed like any other)");
  mode->add_flag("--offline", o.offline, "Ask no network: check what is there against its lock");
  mode->add_flag("--dry-run", o.dry_run, "Show what would be fetched and whether it fits (exit 4 if not), fetch nothing");
  mode->add_flag("--no-space-check", o.no_space_check, "Begin although the disk seems too small");
  mode->add_option("--checkpoint", o.checkpoint_s, "Seconds between the points from which a killed fetch continues")
      ->check(CLI::Range(0.01, 3600.0))->capture_default_str();
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

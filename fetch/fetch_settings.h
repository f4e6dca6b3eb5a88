// From the command's options to the settings of its parts, with every limit checked.
#pragma once

#include "fetch/download.h"
#include "fetch/environment.h"
#include "fetch/fetch_job.h"
#include "fetch/sources.h"

namespace tierpack::fetch {

HttpSettings http_settings(const FetchOptions& options, const Environment& environment);
SourceOptions source_options(const FetchOptions& options, const HttpSettings& http);
DownloadOptions download_options(const FetchOptions& options, const HttpSettings& http);

// The most telling failure decides: wrong bytes, then no room, then a refusal, then the network.
int exit_code_of(const std::vector<FileOutcome>& outcomes);

}  // namespace tierpack::fetch

// `fetch --offline`: asks no network, holds what is there against its lock.
#pragma once

#include "fetch/fetch_job.h"
#include "fetch/fetch_view.h"
#include "fetch/source_reference.h"
#include "fetch/target_layout.h"

namespace tierpack::fetch {

// Returns the exit code.
int check_offline(const FetchOptions& options, const Reference& reference, const TargetLayout& layout, FetchView& view);

}  // namespace tierpack::fetch

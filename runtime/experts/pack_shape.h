// A pack's experts as cache policies number them.
#pragma once

#include "formats/pack.h"
#include "runtime/experts/cache_policy.h"

namespace tierpack::experts {

CacheShape cache_shape(const PackManifest& manifest);

}  // namespace tierpack::experts

#include "runtime/experts/pack_shape.h"

#include <algorithm>

namespace tierpack::experts {

CacheShape cache_shape(const PackManifest& manifest) {
  CacheShape shape;
  shape.layers = static_cast<uint32_t>(manifest.expert_layers.size());
  for (const ExpertLayer& layer : manifest.expert_layers) shape.experts = std::max(shape.experts, layer.experts);
  return shape;
}

}  // namespace tierpack::experts

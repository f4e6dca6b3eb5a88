#include "runtime/model/model.h"

#include <utility>

#include "base/error.h"

namespace tierpack::model {

void require_within_limits(const Pack& pack) {
  const ModelConfig& c = pack.config();
  const auto limit = [&](const char* what, uint64_t found, uint64_t most) {
    if (found <= most) return;
    fail(ErrorKind::kUnsupported, "{}: {} is {}; this build computes at most {}", pack.directory().filename().string(),
         what, found, most);
  };
  limit("the size of an attention head", c.head_dim, kernels::kAttentionDimMax);
  limit("the number of rotated pairs of a head", c.rotary_dim / 2, kMaxRotaryPairs);
  limit("the number of heads of the indexer", c.indexer.heads, kMaxIndexHeads);
  limit("the number of taps of the delta net's convolution", c.gdn.conv, kMaxConvTaps);
  limit("the number of taps of the n-gram convolution", c.ple.conv, kMaxConvTaps);
  limit("the number of hash heads of the n-gram embedding", c.ple.heads(), kMaxNgramHeads);
  for (const RowTable& table : pack.manifest().rows) {
    limit("a row of the lookup table in bytes", table.row_bytes, kMaxNgramRowBytes);
  }
}

uint64_t workspace_bytes(const ModelConfig& config, uint32_t chunk, uint32_t capacity) {
  Carver counter;
  Workspace::carve(counter, config, chunk, capacity);
  return counter.bytes();
}

std::unique_ptr<Model> make_model(ModelParts parts) {
  require_runnable(parts.pack.config(), parts.pack.directory().filename().string());
  require_within_limits(parts.pack);
  switch (parts.pack.config().architecture) {
    case Architecture::kQwen3Moe: return make_qwen3moe(std::move(parts));
    case Architecture::kQwen4Exp: return make_qwen4exp(std::move(parts));
    default: break;
  }
  fail(ErrorKind::kUnsupported, "{}: no forward pass for architecture {}", parts.pack.directory().filename().string(),
       architecture_name(parts.pack.config().architecture));
}

}  // namespace tierpack::model

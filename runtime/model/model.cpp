#include "runtime/model/model.h"

#include <utility>

#include "base/error.h"
#include "runtime/model/attention.h"

namespace tierpack::model {

namespace {

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

}  // namespace

uint64_t workspace_bytes(const ModelConfig& config, uint32_t chunk, uint32_t capacity) {
  Carver counter;
  Workspace::carve(counter, config, chunk, capacity);
  return counter.bytes();
}

Model::Model(ModelParts parts)
    : parts_(std::move(parts)),
      compute_{parts_.kernels, parts_.team, parts_.activations},
      inv_freq_(config().rotary_dim / 2),
      memory_(workspace_bytes(config(), parts_.chunk, parts_.capacity)) {
  kernels::rope_inv_freq(config().rope_base, config().rotary_dim, inv_freq_.data());
  Carver carver(memory_.data());
  workspace_ = Workspace::carve(carver, config(), parts_.chunk, parts_.capacity);
}

void Model::forward(const Chunk& chunk, SessionState& state) {
  TIERPACK_CHECK(chunk.tokens >= 1 && chunk.tokens <= workspace_.tokens);
  TIERPACK_CHECK(chunk.timeline.size() == size_t{chunk.first} + chunk.tokens);
  TIERPACK_CHECK(chunk.timeline.size() <= state.capacity() && state.capacity() <= parts_.capacity);
  last_ = chunk;
  const Pass pass = pass_over(last_);
  prepare(pass);
  const MatrixView& embedding = weights().embedding;
  for (uint32_t t = 0; t < chunk.tokens; ++t) {
    const uint64_t id = chunk.timeline[chunk.first + t];
    decode_matrix_row(compute_.k, embedding, id, workspace_.x.row(t));
  }
  prepare_rotation(pass);
  run_blocks(pass, state);
}

std::span<const float> Model::logits(uint32_t first, uint32_t count) {
  TIERPACK_CHECK(count <= workspace_.logit_rows && first + count <= last_.tokens);
  const Pass pass = pass_over(last_);
  const MatrixView& output = weights().output;
  run_head(pass, first, count);
  const Activations& x = workspace_.x;
  if (reads_quantised(compute_, output)) {
    for_ranges(compute_, size_t{count} * (x.n / 32), 32 * kElementCost, [&](size_t begin, size_t end) {
      x.quantize(compute_, first * size_t{x.n} + begin * 32, first * size_t{x.n} + end * 32);
    });
  }
  const Product product[] = {{&output, x.view(first, count), workspace_.logits, output.rows}};
  run_products(compute_, product);
  return {workspace_.logits, size_t{count} * output.rows};
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

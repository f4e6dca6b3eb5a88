#include "runtime/model/host_model.h"

#include <utility>

#include "base/error.h"
#include "runtime/model/attention.h"

namespace tierpack::model {

HostModel::HostModel(ModelParts parts)
    : parts_(std::move(parts)),
      compute_{parts_.kernels, parts_.team, parts_.activations},
      inv_freq_(config().rotary_dim / 2),
      memory_(workspace_bytes(config(), parts_.chunk, parts_.capacity)) {
  kernels::rope_inv_freq(config().rope_base, config().rotary_dim, inv_freq_.data());
  Carver carver(memory_.data());
  workspace_ = Workspace::carve(carver, config(), parts_.chunk, parts_.capacity);
}

std::unique_ptr<SessionState> HostModel::new_state(kernels::KvType kv_type) const {
  return std::make_unique<SessionState>(config(), parts_.capacity, kv_type);
}

void HostModel::forward(const Chunk& chunk, SessionState& state) {
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

std::span<const float> HostModel::logits(uint32_t first, uint32_t count) {
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

}  // namespace tierpack::model

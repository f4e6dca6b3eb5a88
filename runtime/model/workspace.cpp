#include "runtime/model/workspace.h"

#include <algorithm>

namespace tierpack::model {

namespace {

// Logits computed at a time: at most this many values, at least one token.
constexpr uint64_t kLogitValues = uint64_t{2} << 20;
// Rows of an expert's down matrix are filled up to whole blocks of NVFP4.
constexpr uint64_t kHiddenColumns = 64;

HyperScratch take_hyper(Carver& carver, const ModelConfig& c, uint64_t tokens) {
  const uint64_t wide = uint64_t{c.hc.streams} * c.hidden;
  HyperScratch s;
  s.normed = take_activations(carver, tokens, wide);
  s.low = take_activations(carver, tokens, c.hc.low_rank);
  s.gated = carver.take<float>(tokens * wide);
  s.inject = carver.take<float>(tokens * c.hc.streams);
  return s;
}

AttentionScratch take_attention(Carver& carver, const ModelConfig& c, uint64_t tokens, uint64_t capacity, uint64_t sparse_queries) {
  const uint64_t query = uint64_t{c.heads} * c.head_dim;
  const uint64_t key = uint64_t{c.kv_heads} * c.head_dim;
  const bool gated = c.architecture == Architecture::kQwen4Exp;
  AttentionScratch s;
  s.q = carver.take<float>(tokens * (gated ? 2 * query : query));
  s.k = carver.take<float>(tokens * key);
  s.v = carver.take<float>(tokens * key);
  s.heads = take_activations(carver, tokens, query);
  uint32_t largest_ratio = 0;
  uint32_t smallest_ratio = 0;
  for (const uint32_t ratio : c.compress_ratio) {
    if (ratio == 0) continue;
    largest_ratio = std::max(largest_ratio, ratio);
    smallest_ratio = smallest_ratio == 0 ? ratio : std::min(smallest_ratio, ratio);
  }
  if (largest_ratio == 0) return s;
  s.index_q = carver.take<float>(tokens * c.indexer.heads * c.indexer.head_dim);
  s.index_raw = carver.take<float>((tokens + largest_ratio - 1) * c.indexer.head_dim);
  s.scores = carver.take<float>(sparse_queries * (capacity / smallest_ratio));
  // A budget above the capacity is never exceeded, and nothing is selected.
  const uint64_t budget = std::min<uint64_t>(c.indexer.budget, capacity);
  s.picked = carver.take<uint32_t>(sparse_queries * (budget / smallest_ratio));
  s.visible_stride = budget + largest_ratio - 1;
  s.visible = carver.take<uint32_t>(sparse_queries * s.visible_stride);
  s.visible_count = carver.take<uint32_t>(sparse_queries);
  return s;
}

GdnScratch take_gdn(Carver& carver, const ModelConfig& c, uint64_t tokens) {
  const uint64_t values = uint64_t{c.gdn.v_heads} * c.gdn.head_dim;
  const uint64_t channels = 2 * uint64_t{c.gdn.k_heads} * c.gdn.head_dim + values;
  GdnScratch s;
  s.input = carver.take<float>((tokens + c.gdn.conv - 1) * channels);
  s.mixed = carver.take<float>(tokens * channels);
  s.z = carver.take<float>(tokens * values);
  s.beta = carver.take<float>(tokens * c.gdn.v_heads);
  s.decay = carver.take<float>(tokens * c.gdn.v_heads);
  s.out = take_activations(carver, tokens, values);
  return s;
}

MoeScratch take_moe(Carver& carver, const ModelConfig& c, uint64_t tokens, bool gathers) {
  const uint64_t pairs = tokens * c.experts_used;
  MoeScratch s;
  s.router = carver.take<float>(tokens * c.experts);
  s.ids = carver.take<uint32_t>(pairs);
  s.weights = carver.take<float>(pairs);
  s.row = carver.take<uint32_t>(pairs);
  s.pair_token = carver.take<uint32_t>(pairs);
  s.first_row = carver.take<uint32_t>(uint64_t{c.experts} + 1);
  s.requested = carver.take<uint32_t>(c.experts);
  s.counts = carver.take<uint32_t>(c.experts);
  s.guess = carver.take<uint32_t>(c.experts_used);
  if (gathers && tokens > 1) s.input = take_activations(carver, pairs, c.hidden);
  s.gate = carver.take<float>(pairs * c.expert_ff);
  s.up = carver.take<float>(pairs * c.expert_ff);
  s.hidden = take_activations(carver, pairs, expert_hidden_columns(c));
  s.out = carver.take<float>(pairs * c.hidden);
  if (c.shared_ff > 0) {
    s.shared_weight = carver.take<float>(tokens);
    s.shared_gate = carver.take<float>(tokens * c.shared_ff);
    s.shared_up = carver.take<float>(tokens * c.shared_ff);
    s.shared_hidden = take_activations(carver, tokens, c.shared_ff);
    s.shared_out = carver.take<float>(tokens * c.hidden);
  }
  return s;
}

PleScratch take_ple(Carver& carver, const ModelConfig& c, uint64_t tokens) {
  const uint64_t wide = uint64_t{c.hc.streams} * c.hidden;
  PleScratch s;
  s.embedding = take_activations(carver, tokens, uint64_t{c.ple.heads()} * c.ple.head_dim);
  s.key = carver.take<float>(tokens * wide);
  s.value = carver.take<float>(tokens * c.hidden);
  s.query = carver.take<float>(tokens * wide);
  s.gated = carver.take<float>(tokens * wide);
  s.conv_input = carver.take<float>((tokens + uint64_t{c.ple.conv - 1} * c.ple.ngram) * wide);
  s.conv = carver.take<float>(tokens * wide);
  return s;
}

}  // namespace

Activations take_activations(Carver& carver, uint64_t rows, uint64_t n) {
  Activations a;
  a.n = static_cast<uint32_t>(n);
  a.x = carver.take<float>(rows * n);
  if (n % 32 == 0) {  // otherwise no quantised weight can read it
    a.q = carver.take<int8_t>(rows * n);
    a.scale = carver.take<float>(rows * (n / 32));
    a.sum = carver.take<int32_t>(rows * (n / 32));
  }
  return a;
}

uint32_t logit_rows(const ModelConfig& c, uint32_t tokens) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(kLogitValues / c.vocab, 1, tokens));
}

uint32_t expert_hidden_columns(const ModelConfig& c) { return static_cast<uint32_t>(align_up(c.expert_ff, kHiddenColumns)); }

Workspace Workspace::carve(Carver& carver, const ModelConfig& c, uint32_t tokens, uint32_t capacity, WorkspacePlace place) {
  const bool device = place == WorkspacePlace::kDevice;
  const bool hyper = c.hc.streams > 0;
  const uint64_t wide = uint64_t{hyper ? c.hc.streams : 1} * c.hidden;
  Workspace w;
  w.tokens = tokens;
  w.logit_rows = model::logit_rows(c, tokens);
  w.streams = carver.take<float>(tokens * wide);
  w.x = take_activations(carver, tokens, c.hidden);
  w.y = carver.take<float>(uint64_t{tokens} * c.hidden);
  w.cos = carver.take<float>(uint64_t{tokens} * (c.rotary_dim / 2));
  w.sin = carver.take<float>(uint64_t{tokens} * (c.rotary_dim / 2));
  w.logits = carver.take<float>(uint64_t{w.logit_rows} * c.vocab);
  if (hyper) w.hyper = take_hyper(carver, c, tokens);

  const uint64_t shared = carver.place();
  w.attention = take_attention(carver, c, tokens, capacity, device ? kDeviceSparseQueries : kSparseQueries);
  carver.back_to(shared);
  w.moe = take_moe(carver, c, tokens, !device);
  if (c.architecture == Architecture::kQwen4Exp) {
    carver.back_to(shared);
    w.gdn = take_gdn(carver, c, tokens);
    if (c.ple.layer >= 0) {
      carver.back_to(shared);
      w.ple = take_ple(carver, c, tokens);
    }
  }
  carver.skip_to_high();
  return w;
}

}  // namespace tierpack::model

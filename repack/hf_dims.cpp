#include "repack/hf_dims.h"

#include <algorithm>

namespace tierpack::repack {

HfDims::HfDims(const ModelConfig& c, std::string source) : source_(std::move(source)) {
  set(Dim::kHidden, c.hidden);
  set(Dim::kTwoHidden, uint64_t{2} * c.hidden);
  set(Dim::kVocab, c.vocab);
  set(Dim::kHeads, c.heads);
  set(Dim::kHeadDim, c.head_dim);
  set(Dim::kQueries, uint64_t{c.heads} * c.head_dim);
  set(Dim::kQueriesAndGates, 2 * known(Dim::kQueries));
  set(Dim::kKeys, uint64_t{c.kv_heads} * c.head_dim);
  set(Dim::kExperts, c.experts);
  set(Dim::kExpertFf, c.expert_ff);
  set(Dim::kSharedFf, c.shared_ff);
  set(Dim::kGdnHeadDim, c.gdn.head_dim);
  set(Dim::kGdnConv, c.gdn.conv);
  set(Dim::kGdnVHeads, c.gdn.v_heads);
  set(Dim::kGdnTwoVHeads, uint64_t{2} * c.gdn.v_heads);
  set(Dim::kGdnValues, uint64_t{c.gdn.v_heads} * c.gdn.head_dim);
  set(Dim::kGdnQkv, (uint64_t{2} * c.gdn.k_heads + c.gdn.v_heads) * c.gdn.head_dim);
  set(Dim::kGdnQkvz, known(Dim::kGdnQkv) + known(Dim::kGdnValues));
  set(Dim::kWide, uint64_t{c.hc.streams} * c.hidden);
  set(Dim::kLowRank, c.hc.low_rank);
  set(Dim::kStreams, c.hc.streams);
  set(Dim::kIndexHeadDim, c.indexer.head_dim);
  set(Dim::kIndexQueries, uint64_t{c.indexer.heads} * c.indexer.head_dim);
  set(Dim::kPleWidth, c.ple.head_dim);
  set(Dim::kPleConv, c.ple.conv);
}

void HfDims::expect(const QuantWeight& weight, std::initializer_list<Wanted> shape) {
  expect_span(weight, {shape.begin(), shape.size()});
}

void HfDims::expect(const QuantWeight& weight, const std::array<Dim, 3>& shape) {
  std::array<Wanted, 3> wanted;
  for (size_t i = 0; i < shape.size(); ++i) wanted[i].dim = shape[i];
  expect_span(weight, wanted);
}

void HfDims::expect_span(const QuantWeight& weight, std::span<const Wanted> shape) {
  std::vector<uint64_t> found;
  for (size_t i = weight.shape.size(); i-- > 0;) {
    if (weight.shape[i] != 1) found.push_back(weight.shape[i]);
  }
  std::string text;
  size_t next = 0;
  bool fits = true;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i].dim == Dim::kNone) continue;
    const uint64_t value = at(shape[i].dim);
    text += fmt::format("{}{}", text.empty() ? "" : ", ", value == 0 ? "?" : std::to_string(value * shape[i].factor));
  }
  for (const Wanted& wanted : shape) {
    if (wanted.dim == Dim::kNone || !fits) continue;
    uint64_t& value = at(wanted.dim);
    if (wanted.dim != Dim::kAny && value != 0 && value * wanted.factor == 1) continue;
    const uint64_t size = next < found.size() ? found[next++] : 1;
    if (wanted.dim == Dim::kAny) continue;
    if (value == 0 && size % wanted.factor == 0) value = size / wanted.factor;
    fits = value != 0 && size % wanted.factor == 0 && size / wanted.factor == value;
  }
  if (fits && next == found.size()) return;
  fail(ErrorKind::kCorrupt,
       "{}: tensor '{}' has the shape {}, but the configuration and the tensors before it ask for [{}]", source_,
       weight.name, hf_shape_text(weight.shape), text);
}

// A configuration with dense attention everywhere does not give the indexer's widths.
void HfDims::learn_indexer(const HfTargets& targets, const std::string& block) {
  if (known(Dim::kIndexQueries) != 0) return;
  const QuantWeight* both = targets.find(block + "self_attn.indexer.index_qk_proj.weight");
  const QuantWeight* norm = targets.find(block + "self_attn.indexer.k_layernorm.weight");
  if (both == nullptr || norm == nullptr) return;
  const uint64_t keys = norm->columns(), rows = both->rows();
  if (keys == 0 || rows <= keys || (rows - keys) % keys != 0) {
    fail(ErrorKind::kCorrupt, "{}: tensor '{}' has the shape {}, which is not heads of {} rows and one more", source_,
         both->name, hf_shape_text(both->shape), keys);
  }
  set(Dim::kIndexHeadDim, keys);
  set(Dim::kIndexQueries, rows - keys);
}

// The widths of latent attention, from the tensors of the first block.
void HfDims::learn_latent(const HfTargets& targets, const std::string& block) {
  if (known(Dim::kMlaKey) != 0) return;
  const std::string at = block + "self_attn.";
  const QuantWeight* q = targets.find(at + "q_b_proj.weight");
  const QuantWeight& queries = q ? *q : targets.require(at + "q_proj.weight");
  const QuantWeight& latent = targets.require(at + "kv_a_proj_with_mqa.weight");
  const QuantWeight& output = targets.require(at + "o_proj.weight");
  const uint64_t heads = need(Dim::kHeads, queries.name);
  const uint64_t rank = targets.require(at + "kv_a_layernorm.weight").columns();
  const uint64_t rope = latent.rows() - std::min(rank, latent.rows());
  const uint64_t head = queries.rows() / heads, value = output.columns() / heads;
  if (rank == 0 || rope == 0 || head <= rope || queries.rows() % heads != 0 || value == 0 ||
      output.columns() % heads != 0) {
    fail(ErrorKind::kCorrupt, "{}: the tensors of '{}' do not fit {} heads: {} {}, {} {}, {} {}", source_, at, heads,
         queries.name, hf_shape_text(queries.shape), latent.name, hf_shape_text(latent.shape), output.name,
         hf_shape_text(output.shape));
  }
  set(Dim::kKeyRank, rank);
  set(Dim::kKeyRankAndRope, latent.rows());
  set(Dim::kMlaQueries, queries.rows());
  set(Dim::kMlaKey, head - rope);
  set(Dim::kMlaValue, value);
  set(Dim::kMlaValues, output.columns());
  set(Dim::kMlaKeysAndValues, heads * (head - rope + value));
}

uint64_t HfDims::need(Dim dim, std::string_view whose) const {
  if (at(dim) == 0) {
    fail(ErrorKind::kCorrupt, "{}: the configuration lacks a width that tensor '{}' depends on", source_, whose);
  }
  return at(dim);
}

}  // namespace tierpack::repack

#include "runtime/model/weights.h"

#include <utility>

#include "base/error.h"
#include "runtime/model/decoded_weights.h"

namespace tierpack::model {

namespace {

Shape flat(uint64_t n) { return {{n, 1, 1, 1}, 1}; }
Shape matrix_shape(uint64_t in, uint64_t out) { return {{in, out, 1, 1}, 2}; }

// Binds by the vocabulary of one config; every function takes the tensors' common prefix ("blk.3.").
class Names {
 public:
  Names(const Pack& pack, TensorBinder& binder) : pack_(pack), c_(pack.config()), bind_(binder) {}

  HyperMixer mixer(const std::string& prefix, bool inject) const {
    HyperMixer m;
    m.norm = per_stream(prefix + "_norm.weight");
    m.down = bind_.matrix(prefix + "_down.weight", wide(), c_.hc.low_rank);
    m.up = bind_.matrix(prefix + "_up.weight", c_.hc.low_rank, wide());
    if (inject) m.inject = bind_.matrix(prefix + "_inject.weight", wide(), c_.hc.streams);
    return m;
  }

  AttentionWeights attention(const std::string& p, bool gated, uint32_t compress_ratio) const {
    AttentionWeights a;
    const uint64_t query = uint64_t{c_.heads} * c_.head_dim;
    const uint64_t key = uint64_t{c_.kv_heads} * c_.head_dim;
    a.gated = gated;
    a.q = bind_.matrix(p + "attn_q.weight", c_.hidden, gated ? 2 * query : query);
    a.k = bind_.matrix(p + "attn_k.weight", c_.hidden, key);
    a.v = bind_.matrix(p + "attn_v.weight", c_.hidden, key);
    a.output = bind_.matrix(p + "attn_output.weight", query, c_.hidden);
    a.q_norm = bind_.vector(p + "attn_q_norm.weight", c_.head_dim);
    a.k_norm = bind_.vector(p + "attn_k_norm.weight", c_.head_dim);
    a.compress_ratio = compress_ratio;
    // A file may carry an indexer that its compress ratios switch off: checked all the same, never run.
    if (compress_ratio > 0 || bind_.has(p + "indexer.q_proj.weight")) {
      const ModelConfig::Indexer& x = c_.indexer;
      a.indexer.q = bind_.matrix(p + "indexer.q_proj.weight", c_.hidden, uint64_t{x.heads} * x.head_dim);
      a.indexer.k = bind_.matrix(p + "indexer.k_proj.weight", c_.hidden, x.head_dim);
      a.indexer.q_norm = bind_.vector(p + "indexer.q_norm.weight", x.head_dim);
      a.indexer.k_norm = bind_.vector(p + "indexer.k_norm.weight", x.head_dim);
    }
    return a;
  }

  GdnWeights gdn(const std::string& p) const {
    GdnWeights g;
    const uint64_t keys = uint64_t{c_.gdn.k_heads} * c_.gdn.head_dim;
    const uint64_t values = uint64_t{c_.gdn.v_heads} * c_.gdn.head_dim;
    const uint64_t channels = 2 * keys + values;
    g.qkv = bind_.matrix(p + "attn_qkv.weight", c_.hidden, channels);
    g.gate = bind_.matrix(p + "attn_gate.weight", c_.hidden, values);
    g.beta = bind_.matrix(p + "ssm_beta.weight", c_.hidden, c_.gdn.v_heads);
    g.alpha = bind_.matrix(p + "ssm_alpha.weight", c_.hidden, c_.gdn.v_heads);
    g.conv = bind_.floats(p + "ssm_conv1d.weight", {matrix_shape(c_.gdn.conv, channels)});
    g.dt_bias = bind_.vector(p + "ssm_dt.bias", c_.gdn.v_heads);
    g.a = bind_.vector(p + "ssm_a", c_.gdn.v_heads);
    g.norm = bind_.vector(p + "ssm_norm.weight", c_.gdn.head_dim);
    g.output = bind_.matrix(p + "ssm_out.weight", values, c_.hidden);
    return g;
  }

  MoeWeights moe(const std::string& p, uint32_t block) const {
    MoeWeights m;
    m.router = bind_.matrix(p + "ffn_gate_inp.weight", c_.hidden, c_.experts);
    m.experts = experts(block);
    m.gate_scales = expert_scales(m.experts->gate);
    m.up_scales = expert_scales(m.experts->up);
    m.down_scales = expert_scales(m.experts->down);
    if (c_.shared_ff > 0) {
      m.has_shared = true;
      m.shared_gate_input = bind_.matrix(p + "ffn_gate_inp_shexp.weight", c_.hidden, 1);
      m.shared_gate = bind_.matrix(p + "ffn_gate_shexp.weight", c_.hidden, c_.shared_ff);
      m.shared_up = bind_.matrix(p + "ffn_up_shexp.weight", c_.hidden, c_.shared_ff);
      m.shared_down = bind_.matrix(p + "ffn_down_shexp.weight", c_.shared_ff, c_.hidden);
    }
    return m;
  }

  PleWeights ple(const std::string& p) const {
    PleWeights w;
    const uint64_t e = uint64_t{c_.ple.heads()} * c_.ple.head_dim;
    w.key = bind_.matrix(p + "ple_key.weight", e, wide());
    w.value = bind_.matrix(p + "ple_value.weight", e, c_.hidden);
    w.norm_key = per_stream(p + "ple_norm_key.weight");
    w.norm_query = per_stream(p + "ple_norm_query.weight");
    w.norm_conv = per_stream(p + "ple_norm_conv.weight");
    w.conv = bind_.floats(p + "ple_conv1d.weight", {matrix_shape(c_.ple.conv, wide())});
    w.table = row_table("per_layer_token_embd.weight");
    return w;
  }

  BlockWeights qwen4exp_block(uint32_t block) const {
    const std::string p = prefix(block);
    BlockWeights b;
    b.index = block;
    b.recurrent = c_.recurrent[block];
    b.attention_mixer = mixer(p + "hc_attn", true);
    b.ffn_mixer = mixer(p + "hc_ffn", true);
    if (b.recurrent) {
      b.gdn = gdn(p);
    } else {
      b.attention = attention(p, true, c_.compress_ratio[block]);
    }
    b.moe = moe(p, block);
    return b;
  }

  MtpWeights qwen4exp_mtp(uint32_t block, const ModelWeights& trunk) const {
    const std::string p = prefix(block) + "nextn.";
    const auto own_or = [&](const std::string& name, const MatrixView& shared) {
      return bind_.has(name) ? bind_.matrix(name, c_.hidden, c_.vocab) : shared;
    };
    MtpWeights m;
    m.embedding = own_or(p + "embed_tokens.weight", trunk.embedding);
    m.output = own_or(p + "shared_head_head.weight", trunk.output);
    m.block = qwen4exp_block(block);
    m.embedding_norm = bind_.vector(p + "enorm.weight", c_.hidden);
    m.hidden_norm = per_stream(p + "hnorm.weight");
    m.projection = bind_.matrix(p + "eh_proj.weight", 2 * uint64_t{c_.hidden}, c_.hidden);
    m.head_mixer = mixer(p + "hc_head", false);
    return m;
  }

  BlockWeights qwen3moe_block(uint32_t block) const {
    const std::string p = prefix(block);
    BlockWeights b;
    b.index = block;
    b.attention_norm = bind_.vector(p + "attn_norm.weight", c_.hidden);
    b.ffn_norm = bind_.vector(p + "ffn_norm.weight", c_.hidden);
    b.attention = attention(p, false, 0);
    b.moe = moe(p, block);
    return b;
  }

 private:
  uint64_t wide() const { return uint64_t{c_.hc.streams} * c_.hidden; }
  static std::string prefix(uint32_t block) { return "blk." + std::to_string(block) + "."; }

  // S * D gammas, written flat or as {D, S}.
  const float* per_stream(const std::string& name) const {
    return bind_.floats(name, {flat(wide()), matrix_shape(c_.hidden, c_.hc.streams)});
  }

  const ExpertLayer* experts(uint32_t block) const {
    const std::string name = pack_.directory().filename().string();
    const ExpertLayer* layer = pack_.find_expert_layer(block);
    if (layer == nullptr) fail(ErrorKind::kCorrupt, "{}: block {} has no experts", name, block);
    if (layer->experts != c_.experts) {
      fail(ErrorKind::kCorrupt, "{}: block {} has {} experts; the hyper-parameters ask for {}", name, block,
           layer->experts, c_.experts);
    }
    const auto check = [&](const ExpertPart& part, uint64_t in, uint64_t out) {
      if (part.in != in || part.out != out) {
        fail(ErrorKind::kCorrupt, "{}: an expert of {} has the shape {{{}, {}}}; the hyper-parameters ask for {{{}, {}}}",
             name, part.tensor, part.in, part.out, in, out);
      }
      require_weight_type(part.dtype, name + ": " + part.tensor);
      if (part.bytes != out * row_bytes(part.dtype, in) || part.offset % kPartAlignment != 0 ||
          part.offset > layer->record_bytes || part.bytes > layer->record_bytes - part.offset) {
        fail(ErrorKind::kCorrupt, "{}: {} does not lie inside its record: {} bytes at {} of {}", name, part.tensor,
             part.bytes, part.offset, layer->record_bytes);
      }
      check_scales(part, layer->record_bytes);
    };
    check(layer->gate, c_.hidden, c_.expert_ff);
    check(layer->up, c_.hidden, c_.expert_ff);
    check(layer->down, c_.expert_ff, c_.hidden);
    return layer;
  }

  const float* expert_scales(const ExpertPart& part) const {
    const float* const scales = bind_.expert_scales(part.tensor, c_.experts);
    if (scales != nullptr && (part.scale_rows > 0 || !traits(part.dtype).quantised)) {
      fail(ErrorKind::kCorrupt, "{}: {} of type {} has a scale for each expert {}; repack the source",
           pack_.directory().filename().string(), part.tensor, dtype_name(part.dtype),
           part.scale_rows > 0 ? "and scales in its records" : "beside it, which only quantised experts have");
    }
    return scales;
  }

  void check_scales(const ExpertPart& part, uint64_t record_bytes) const {
    if (part.scale_rows == 0 && part.scale_columns == 0) return;
    const std::string what = pack_.directory().filename().string() + ": " + part.tensor;
    MatrixView matrix{part.dtype, nullptr, static_cast<uint32_t>(part.out), static_cast<uint32_t>(part.in)};
    if (!set_scales(matrix, nullptr, part.scale_rows, part.scale_columns)) {
      fail(ErrorKind::kCorrupt,
           "{} {{{}, {}}} of type {} has {} x {} scales; expected one, or for plain numbers one a row "
           "or one for each 128 x 128 weights",
           what, part.in, part.out, dtype_name(part.dtype), part.scale_rows, part.scale_columns);
    }
    const uint64_t bytes = uint64_t{part.scale_rows} * part.scale_columns * sizeof(float);
    if (part.scale_offset % kPartAlignment != 0 || part.scale_offset > record_bytes ||
        bytes > record_bytes - part.scale_offset) {
      fail(ErrorKind::kCorrupt, "{}: its scales do not lie inside its record: {} bytes at {} of {}", what, bytes,
           part.scale_offset, record_bytes);
    }
  }

  const RowTable* row_table(const std::string& tensor) const {
    const std::string name = pack_.directory().filename().string();
    const RowTable* table = pack_.find_rows(tensor);
    if (table == nullptr) fail(ErrorKind::kCorrupt, "{}: the lookup table {} is missing", name, tensor);
    if (table->shape.ne[0] != c_.ple.head_dim || table->shape.rows() < c_.ple.table_rows) {
      fail(ErrorKind::kCorrupt, "{}: the lookup table {} has the shape {}; the hyper-parameters ask for {} values a row "
           "and at least {} rows", name, tensor, table->shape.text(), c_.ple.head_dim, c_.ple.table_rows);
    }
    return table;
  }

  const Pack& pack_;
  const ModelConfig& c_;
  TensorBinder& bind_;
};

}  // namespace

ModelWeights bind_weights(const Pack& pack, DenseTensors tensors) {
  const ModelConfig& c = pack.config();
  ModelWeights w;
  w.dense = std::move(tensors);
  TensorBinder bind(pack, w.dense, w.decoded);
  const Names names(pack, bind);

  w.embedding = bind.matrix("token_embd.weight", c.hidden, c.vocab);
  w.output = bind.has("output.weight") ? bind.matrix("output.weight", c.hidden, c.vocab) : w.embedding;
  switch (c.architecture) {
    case Architecture::kQwen3Moe:
      w.output_norm = bind.vector("output_norm.weight", c.hidden);
      for (uint32_t i = 0; i < c.layers; ++i) w.blocks.push_back(names.qwen3moe_block(i));
      break;
    case Architecture::kQwen4Exp:
      w.output_mixer = names.mixer("output_hc", false);
      for (uint32_t i = 0; i < c.layers; ++i) w.blocks.push_back(names.qwen4exp_block(i));
      for (uint32_t i = c.layers; i < c.blocks(); ++i) w.mtp.push_back(names.qwen4exp_mtp(i, w));
      if (c.ple.layer >= 0) w.ple = names.ple("blk." + std::to_string(c.ple.layer) + ".");
      break;
    default: TIERPACK_CHECK(false);
  }
  bind.require_all_bound();
  return w;
}

}  // namespace tierpack::model

#include "repack/hf_mapping.h"

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "repack/hf_dims.h"
#include "repack/hf_scales.h"
#include "repack/hf_tables.h"
#include "repack/hf_targets.h"

namespace tierpack::repack {

namespace {

Shape make_shape(std::initializer_list<uint64_t> ne) {
  Shape shape;
  shape.dims = static_cast<uint32_t>(ne.size());
  std::copy(ne.begin(), ne.end(), shape.ne.begin());
  return shape;
}

std::string replaced(std::string_view text, char mark, const std::string& by) {
  std::string out(text);
  if (const size_t at = out.find(mark); at != std::string::npos) out.replace(at, 1, by);
  return out;
}

// Weights that are no part of the language model, or that say nothing the configuration does not say.
bool is_kept_only(std::string_view name) {
  for (const char* prefix : {"model.visual.", "visual."}) {
    if (name.starts_with(prefix)) return true;
  }
  for (const char* suffix : {".inv_freq", ".ple_embedding.layer_multipliers", ".ple_embedding.ngram_heads_offsets",
                             ".ple_embedding.ngram_heads_vocab_sizes"}) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

// Walks the tables of an architecture and carries out their rows.
class Mapper {
 public:
  Mapper(const SafetensorsSource& source, const QuantCatalog& catalog, const ModelConfig& config)
      : source_(source),
        catalog_(catalog),
        config_(config),
        tables_(hf_tables(config.architecture)),
        targets_(source, catalog),
        dims_(config, source.name()) {}

  HfMapping run() {
    catalog_.require_readable(source_.name());
    model_ = targets_.find("model.language_model.embed_tokens.weight") ? "model.language_model." : "model.";
    if (tables_.draft_apart && config_.mtp_layers > 1) {
      fail(ErrorKind::kUnsupported, "{}: {} draft blocks; at most one is supported", source_.name(),
           config_.mtp_layers);
    }
    rows(tables_.first, "", model_);
    if (config_.ple.layer >= 0) rows(tables_.lookup, "", fmt::format("{}layers.{}.", model_, config_.ple.layer));
    for (uint32_t n = 0; n < config_.blocks(); ++n) block(n);
    rows(tables_.last, "", model_);
    rows(tables_.head, "", "");
    check_remainders();
    return targets_.take([&](std::string_view name) { return is_kept_only(name) || is_left_out_draft(name); },
                         architecture_name(config_.architecture));
  }

 private:
  // ---- blocks

  void block(uint32_t n) {
    const bool draft = n >= config_.layers, apart = draft && tables_.draft_apart;
    const std::string target = fmt::format("blk.{}.", n);
    const std::string source =
        apart ? fmt::format("mtp.layers.{}.", n - config_.layers) : fmt::format("{}layers.{}.", model_, n);
    dims_.learn_indexer(targets_, source);
    if (config_.architecture == Architecture::kDeepseek2) dims_.learn_latent(targets_, source);
    rows(tables_.norms, target, source);
    const bool lite = !tables_.lite.empty() && targets_.find(source + "self_attn.q_proj.weight") != nullptr;
    rows(is_recurrent(n, source) ? tables_.recurrent : lite ? tables_.lite : tables_.attention, target, source);
    if (config_.ple.layer >= 0 && static_cast<uint32_t>(config_.ple.layer) == n) rows(tables_.ple, target, source);
    const bool routed = tables_.dense.empty() || targets_.find(source + "mlp.gate.weight") != nullptr;
    rows(routed ? tables_.experts : tables_.dense, target, source);
    if (draft) rows(tables_.draft, target, apart ? "mtp." : source);
  }

  bool is_recurrent(uint32_t n, const std::string& source) const {
    if (tables_.recurrent.empty()) return false;
    if (config_.recurrent.size() == config_.blocks()) return config_.recurrent[n];
    return targets_.find(source + "linear_attn.A_log") != nullptr;
  }

  // ---- rows of tables

  void rows(HfRows table, const std::string& target, const std::string& source) {
    target_prefix_ = target;
    source_prefix_ = source;
    for (const HfRow& row : table) apply(row);
  }

  void apply(const HfRow& row) {
    switch (row.how) {
      case How::kExpertGate: return experts(row, "gate_up_proj", 2, 0);
      case How::kExpertUp: return experts(row, "gate_up_proj", 2, 1);
      case How::kExpertDown: return experts(row, "down_proj", 1, 0);
      case How::kShards: return shards(row);
      case How::kSideBySide: return side_by_side(row);
      default: break;
    }
    const std::string name = source_prefix_ + row.source;
    const QuantWeight* found = row.need == Need::kRequired ? &targets_.require(name) : targets_.find(name);
    if (found == nullptr) return;
    const QuantWeight& weight = targets_.use(*found);
    switch (row.how) {
      case How::kFloats: return floats(row, weight, DerivedOp::kFloats);
      case How::kPlusOne: return floats(row, weight, DerivedOp::kPlusOne);
      case How::kVHeadFloats: return v_head_floats(row, weight, DerivedOp::kFloats);
      case How::kVHeadDecay: return v_head_floats(row, weight, DerivedOp::kNegExp);
      case How::kQkvChannels: return qkv_channels(row, weight);
      case How::kEvenFloats: return alternate_floats(row, weight, 0);
      case How::kOddFloats: return alternate_floats(row, weight, 1);
      case How::kNextRows: return next_rows(row, weight);
      case How::kInterleaved: return interleaved(row, weight);
      case How::kStack: return stack(row, weight);
      case How::kQkvOfGroups:
      case How::kZOfGroups: return groups(row, weight);
      case How::kKeysOfHeads:
      case How::kValuesOfHeads: return latent_heads(row, weight);
      default: return matrix(row, weight);
    }
  }

  // The shape of a row's target; every width is known.
  Shape shape_of(const HfRow& row) const {
    Shape shape;
    shape.dims = 0;
    for (const Dim dim : row.shape) {
      if (dim != Dim::kNone) shape.ne[shape.dims++] = dims_.need(dim, source_prefix_ + row.source);
    }
    return shape;
  }

  // ---- targets that are moved

  // V heads in the order of the target. Groups of one head and single groups need no tiles.
  bool is_tiled() const {
    return tables_.tiled && config_.gdn.k_heads > 1 && config_.gdn.v_heads > config_.gdn.k_heads;
  }
  uint32_t heads_per_group() const { return config_.gdn.v_heads / config_.gdn.k_heads; }

  void check_groups() const {
    const auto& gdn = config_.gdn;
    if (gdn.k_heads == 0 || gdn.head_dim == 0 || gdn.v_heads < gdn.k_heads || gdn.v_heads % gdn.k_heads != 0) {
      fail(ErrorKind::kCorrupt, "{}: {} value heads of the delta net do not divide over {} key heads", source_.name(),
           gdn.v_heads, gdn.k_heads);
    }
  }

  // `height` rows for each V head, in the target's order.
  void move_v_heads(const QuantWeight& weight, uint64_t source_row, uint64_t height, uint32_t target,
                    uint64_t target_row) {
    if (!is_tiled()) {
      targets_.move(weight, source_row, height * config_.gdn.v_heads, target, target_row);
      return;
    }
    const uint32_t per_group = heads_per_group();
    for (uint32_t j = 0; j < per_group; ++j) {
      for (uint32_t g = 0; g < config_.gdn.k_heads; ++g, target_row += height) {
        targets_.move(weight, source_row + (uint64_t{g} * per_group + j) * height, height, target, target_row);
      }
    }
  }

  void matrix(const HfRow& row, const QuantWeight& weight) {
    dims_.expect(weight, row.shape);
    const Shape shape = shape_of(row);
    targets_.check_columns(weight, shape.ne[0]);
    const uint32_t target = targets_.begin(target_prefix_ + row.target, shape, weight);
    if (row.how == How::kVHeadRows) {
      check_groups();
      move_v_heads(weight, 0, shape.ne[1] / config_.gdn.v_heads, target, 0);
    } else if (row.how == How::kQkvRows) {
      check_groups();
      const uint64_t head = config_.gdn.head_dim, first = 2 * config_.gdn.k_heads * head;
      targets_.move(weight, 0, first, target, 0);
      move_v_heads(weight, first, head, target, first);
    } else {
      RowMove& m = targets_.move(weight, 0, weight.rows(), target, 0);
      if (row.how == How::kVHeadColumns) {
        check_groups();
        if (is_tiled()) m.tiles = {config_.gdn.k_heads, heads_per_group(), config_.gdn.head_dim};
        check_tiles(weight, m.tiles, targets_.dtype(target));
      }
    }
    targets_.finish(target);
  }

  void check_tiles(const QuantWeight& weight, const ColumnTiles& tiles, DType dtype) const {
    if (tiles.groups == 0 || tiles.block % traits(dtype).block_elements == 0) return;
    fail(ErrorKind::kUnsupported,
         "{}: heads of {} columns of '{}' cannot be reordered: they are not whole {} blocks of {}", source_.name(),
         tiles.block, weight.name, dtype_name(dtype), traits(dtype).block_elements);
  }

  void next_rows(const HfRow& row, const QuantWeight& weight) {
    const Shape shape = shape_of(row);
    targets_.check_columns(weight, shape.ne[0]);
    uint64_t& next = next_row_[&weight];
    if (weight.shape.size() != 2 || shape.rows() > weight.rows() - next) {
      fail(ErrorKind::kCorrupt, "{}: tensor '{}' has the shape {}, which has no rows {} to {} for '{}{}'",
           source_.name(), weight.name, hf_shape_text(weight.shape), next, next + shape.rows() - 1, target_prefix_,
           row.target);
    }
    const uint32_t target = targets_.begin(target_prefix_ + row.target, shape, weight);
    targets_.move(weight, next, shape.rows(), target, 0);
    next += shape.rows();
    targets_.finish(target);
  }

  void side_by_side(const HfRow& row) {
    const std::string both = row.source;
    const size_t plus = both.find('+');
    const Shape shape = shape_of(row);
    const QuantWeight& left = targets_.use(targets_.require(source_prefix_ + both.substr(0, plus)));
    const QuantWeight& right = targets_.use(targets_.require(source_prefix_ + both.substr(plus + 1)));
    for (const QuantWeight* weight : {&left, &right}) {
      if (weight->shape.size() == 2 && weight->rows() == shape.ne[1] && weight->columns() == shape.ne[0] / 2) continue;
      fail(ErrorKind::kCorrupt, "{}: tensor '{}' has the shape {}, not [{}, {}]", source_.name(), weight->name,
           hf_shape_text(weight->shape), shape.ne[1], shape.ne[0] / 2);
    }
    const uint32_t target = targets_.begin(target_prefix_ + row.target, shape, left);
    if (left.columns() % traits(targets_.dtype(target)).block_elements != 0) {
      fail(ErrorKind::kUnsupported, "{}: '{}' and '{}' cannot be joined: their rows are not whole blocks",
           source_.name(), left.name, right.name);
    }
    targets_.move(left, 0, left.rows(), target, 0);
    targets_.move(right, 0, right.rows(), target, 0).target_column = left.columns();
    targets_.finish(target);
  }

  void experts(const HfRow& row, const char* fused_name, uint64_t parts, uint64_t part) {
    const uint64_t count = dims_.need(Dim::kExperts, source_prefix_ + row.source);
    const QuantWeight* fused = targets_.find(fmt::format("{}mlp.experts.{}", source_prefix_, fused_name));
    if (fused == nullptr) return separate_experts(row, count);
    targets_.use(*fused);
    dims_.expect(*fused, {{row.shape[0], 1}, {row.shape[1], parts}, {row.shape[2], 1}});
    const Shape shape = shape_of(row);
    targets_.check_columns(*fused, shape.ne[0]);
    const uint32_t target = targets_.begin(target_prefix_ + row.target, shape, *fused);
    const uint64_t height = shape.ne[1];
    for (uint64_t e = 0; e < count; ++e) targets_.move(*fused, (e * parts + part) * height, height, target, e * height);
    targets_.finish(target);
  }

  void separate_experts(const HfRow& row, uint64_t count) {
    uint32_t target = 0;
    uint64_t height = 0;
    for (uint64_t e = 0; e < count; ++e) {
      const QuantWeight& weight =
          targets_.use(targets_.require(source_prefix_ + replaced(row.source, '*', std::to_string(e))));
      dims_.expect(weight, {{row.shape[0], 1}, {row.shape[1], 1}});
      const Shape shape = shape_of(row);
      if (e == 0) {
        height = shape.ne[1];
        target = targets_.begin(target_prefix_ + row.target, shape, weight);
      }
      targets_.check_columns(weight, shape.ne[0]);
      targets_.move(weight, 0, height, target, e * height);
    }
    targets_.finish(target);
  }

  // A plain stack of gpt-oss is [experts, in, out].
  bool is_transposed(const QuantWeight& weight) const {
    if (weight.scheme == QuantScheme::kMxfp4) return false;
    if (weight.scheme == QuantScheme::kPlain) return true;
    fail(ErrorKind::kUnsupported,
         "{}: '{}' is quantised as {}; experts of gpt-oss are supported unquantised and as MXFP4", source_.name(),
         weight.name, quant_scheme_name(weight.scheme));
  }

  void interleaved(const HfRow& row, const QuantWeight& weight) {
    const bool transposed = is_transposed(weight);
    if (transposed) {
      dims_.expect(weight, {{row.shape[1], 2}, {row.shape[0], 1}, {row.shape[2], 1}});
    } else {
      dims_.expect(weight, {{row.shape[0], 1}, {row.shape[1], 2}, {row.shape[2], 1}});
    }
    const Shape shape = shape_of(row);
    targets_.check_columns(weight, transposed ? 2 * shape.ne[1] : shape.ne[0]);
    const std::string both = row.target;
    const size_t plus = both.find('+');
    const uint32_t gate = targets_.begin(target_prefix_ + both.substr(0, plus), shape, weight);
    const uint32_t up = targets_.begin(target_prefix_ + both.substr(plus + 1), shape, weight);
    if (!transposed) {
      RowMove& m = targets_.move(weight, 0, weight.rows(), gate, 0);
      m.ways = 2;
      m.target[1] = up;
      return;
    }
    for (uint64_t e = 0; e < shape.ne[2]; ++e) {
      RowMove& m = targets_.move(weight, e * shape.ne[0], shape.ne[0], gate, e * shape.ne[1]);
      m.ways = 2;
      m.target[1] = up;
      m.target_row[1] = e * shape.ne[1];
      m.transposed = true;
    }
  }

  void stack(const HfRow& row, const QuantWeight& weight) {
    const bool transposed = is_transposed(weight);
    dims_.expect(weight, {{row.shape[transposed ? 1 : 0], 1}, {row.shape[transposed ? 0 : 1], 1}, {row.shape[2], 1}});
    const Shape shape = shape_of(row);
    targets_.check_columns(weight, shape.ne[transposed ? 1 : 0]);
    const uint32_t target = targets_.begin(target_prefix_ + row.target, shape, weight);
    const uint64_t rows = shape.ne[transposed ? 0 : 1];
    for (uint64_t e = 0; e < shape.ne[2]; ++e) {
      targets_.move(weight, e * rows, rows, target, e * shape.ne[1]).transposed = transposed;
    }
    targets_.finish(target);
  }

  void shards(const HfRow& row) {
    std::vector<const QuantWeight*> parts;
    while (const QuantWeight* part =
               targets_.find(source_prefix_ + replaced(row.source, '*', std::to_string(parts.size())))) {
      parts.push_back(part);
    }
    if (parts.empty()) {
      std::string whole = source_prefix_ + row.source;
      if (const size_t at = whole.rfind(".shard_"); at != std::string::npos) whole.resize(at);
      const QuantWeight* table = targets_.find(whole);
      parts.push_back(table ? table : &targets_.require(source_prefix_ + replaced(row.source, '*', "0")));
    }
    uint64_t total = 0;
    for (const QuantWeight* part : parts) {
      dims_.expect(targets_.use(*part), {{row.shape[0], 1}, {row.shape[1], 1}});
      targets_.check_columns(*part, dims_.need(row.shape[0], part->name));
      const auto sum = checked_add(total, part->rows());
      if (!sum) fail(ErrorKind::kCorrupt, "{}: the parts of '{}' have too many rows", source_.name(), row.target);
      total = *sum;
    }
    if (total == 0 || total < config_.ple.table_rows) {
      fail(ErrorKind::kCorrupt, "{}: the {} parts of '{}' have {} rows together, needed are {}", source_.name(),
           parts.size(), row.target, total, config_.ple.table_rows);
    }
    const uint32_t target =
        targets_.begin(target_prefix_ + row.target, make_shape({parts[0]->columns(), total}), *parts[0]);
    uint64_t next = 0;
    for (const QuantWeight* part : parts) {
      targets_.move(*part, 0, part->rows(), target, next);
      next += part->rows();
    }
    targets_.finish(target);
  }

  // Rows of in_proj_qkvz: for each K head its q, its k, its r v heads, their r z heads.
  void groups(const HfRow& row, const QuantWeight& weight) {
    check_groups();
    dims_.expect(weight, {{row.shape[0], 1}, {Dim::kGdnQkvz, 1}});
    const Shape shape = shape_of(row);
    targets_.check_columns(weight, shape.ne[0]);
    const uint32_t target = targets_.begin(target_prefix_ + row.target, shape, weight);
    const uint64_t heads = config_.gdn.k_heads, head = config_.gdn.head_dim, values = heads_per_group() * head;
    const uint64_t group = 2 * head + 2 * values;
    const auto each = [&](uint64_t from, uint64_t height, uint64_t to) {
      for (uint64_t g = 0; g < heads; ++g) targets_.move(weight, g * group + from, height, target, to + g * height);
    };
    if (row.how == How::kQkvOfGroups) {
      each(0, head, 0);
      each(head, head, heads * head);
      each(2 * head, values, 2 * heads * head);
    } else {
      each(2 * head + values, values, 0);
    }
    targets_.finish(target);
  }

  void latent_heads(const HfRow& row, const QuantWeight& weight) {
    dims_.expect(weight, {{Dim::kKeyRank, 1}, {Dim::kMlaKeysAndValues, 1}});
    const Shape shape = shape_of(row);
    const uint64_t key = dims_.need(Dim::kMlaKey, weight.name), value = dims_.need(Dim::kMlaValue, weight.name);
    targets_.check_columns(weight, dims_.need(Dim::kKeyRank, weight.name));
    const bool keys = row.how == How::kKeysOfHeads;
    if (keys && traits(native_type(source_, weight)).block_elements != 1) {
      fail(ErrorKind::kUnsupported, "{}: '{}' is quantised as {} along rows that '{}{}' needs as columns",
           source_.name(), weight.name, quant_scheme_name(weight.scheme), target_prefix_, row.target);
    }
    const uint32_t target = targets_.begin(target_prefix_ + row.target, shape, weight);
    for (uint64_t h = 0; h < shape.ne[2]; ++h) {
      const uint64_t first = h * (key + value);
      targets_.move(weight, keys ? first : first + key, keys ? key : value, target, h * shape.ne[1]).transposed = keys;
    }
    targets_.finish(target);
  }

  // ---- targets that are computed

  DerivedTensor& floats_of(const HfRow& row, const QuantWeight& weight, DerivedOp op) {
    dims_.expect(weight, row.shape);
    return targets_.derive(target_prefix_ + row.target, shape_of(row), weight, op);
  }
  void floats(const HfRow& row, const QuantWeight& weight, DerivedOp op) { floats_of(row, weight, op); }

  void tile(DerivedTensor& d, uint64_t first, uint64_t block) const {
    check_groups();
    if (!is_tiled()) return;
    d.tile_first = first;
    d.tile_groups = config_.gdn.k_heads;
    d.tile_per_group = heads_per_group();
    d.tile_block = static_cast<uint32_t>(block);
  }

  void v_head_floats(const HfRow& row, const QuantWeight& weight, DerivedOp op) {
    tile(floats_of(row, weight, op), 0, 1);
  }

  void qkv_channels(const HfRow& row, const QuantWeight& weight) {
    DerivedTensor& d = floats_of(row, weight, DerivedOp::kFloats);
    d.item = d.target.shape.ne[0];
    tile(d, uint64_t{2} * config_.gdn.k_heads * config_.gdn.head_dim, config_.gdn.head_dim);
  }

  void alternate_floats(const HfRow& row, const QuantWeight& weight, uint64_t first) {
    dims_.expect(weight, {{row.shape[0], 2}, {row.shape[1], 1}});
    DerivedTensor& d = targets_.derive(target_prefix_ + row.target, shape_of(row), weight, DerivedOp::kFloats);
    d.first = first;
    d.step = 2;
  }

  // ---- what is left

  void check_remainders() const {
    for (const auto& [weight, next] : next_row_) {
      if (next == weight->rows()) continue;
      fail(ErrorKind::kCorrupt, "{}: tensor '{}' has {} rows, expected {}", source_.name(), weight->name,
           weight->rows(), next);
    }
  }

  // Whether a tensor belongs to a draft block that the configuration leaves out.
  bool is_left_out_draft(std::string_view name) const {
    if (tables_.draft.empty()) return false;
    if (tables_.draft_apart) return config_.mtp_layers == 0 && name.starts_with("mtp.");
    const std::string blocks = model_ + "layers.";
    if (!name.starts_with(blocks)) return false;
    const std::string_view rest = name.substr(blocks.size());
    const size_t digits = rest.find_first_not_of("0123456789");
    if (digits == 0 || digits > 6 || rest[digits] != '.') return false;
    uint32_t n = 0;
    for (const char digit : rest.substr(0, digits)) n = n * 10 + static_cast<uint32_t>(digit - '0');
    return n >= config_.blocks() && targets_.find(fmt::format("{}{}.eh_proj.weight", blocks, n)) != nullptr;
  }

  const SafetensorsSource& source_;
  const QuantCatalog& catalog_;
  const ModelConfig& config_;
  const HfTables tables_;
  HfTargets targets_;
  HfDims dims_;
  std::string model_;                                // prefix of the language model's tensors
  std::string target_prefix_, source_prefix_;        // of the rows at hand
  std::map<const QuantWeight*, uint64_t> next_row_;  // see How::kNextRows
};

}  // namespace

HfMapping map_checkpoint(const SafetensorsSource& source, const QuantCatalog& catalog, const ModelConfig& config) {
  return Mapper(source, catalog, config).run();
}

}  // namespace tierpack::repack

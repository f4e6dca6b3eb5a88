#include "repack/hf_mapping.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/bytes.h"
#include "formats/pack_layout.h"
#include "repack/hf_dims.h"
#include "repack/hf_scales.h"
#include "repack/hf_tables.h"

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
        dims_(config, source.name()),
        used_(catalog.weights.size(), false) {}

  HfMapping run() {
    catalog_.require_readable(source_.name());
    model_ = find("model.language_model.embed_tokens.weight") ? "model.language_model." : "model.";
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
    sort_out_unused();
    check_mapping(catalog_, out_);
    return std::move(out_);
  }

 private:
  // ---- blocks

  void block(uint32_t n) {
    const bool draft = n >= config_.layers, apart = draft && tables_.draft_apart;
    const std::string target = fmt::format("blk.{}.", n);
    const std::string source =
        apart ? fmt::format("mtp.layers.{}.", n - config_.layers) : fmt::format("{}layers.{}.", model_, n);
    learn_indexer(source);
    if (config_.architecture == Architecture::kDeepseek2) learn_latent(source);
    rows(tables_.norms, target, source);
    rows(is_recurrent(n, source) ? tables_.recurrent : tables_.attention, target, source);
    if (config_.ple.layer >= 0 && static_cast<uint32_t>(config_.ple.layer) == n) rows(tables_.ple, target, source);
    const bool routed = tables_.dense.empty() || find(source + "mlp.gate.weight") != nullptr;
    rows(routed ? tables_.experts : tables_.dense, target, source);
    if (draft) rows(tables_.draft, target, apart ? "mtp." : source);
  }

  bool is_recurrent(uint32_t n, const std::string& source) const {
    if (tables_.recurrent.empty()) return false;
    if (config_.recurrent.size() == config_.blocks()) return config_.recurrent[n];
    return find(source + "linear_attn.A_log") != nullptr;
  }

  // A configuration with dense attention everywhere does not give the indexer's widths.
  void learn_indexer(const std::string& source) {
    if (dims_.known(Dim::kIndexQueries) != 0) return;
    const QuantWeight* both = find(source + "self_attn.indexer.index_qk_proj.weight");
    const QuantWeight* norm = find(source + "self_attn.indexer.k_layernorm.weight");
    if (both == nullptr || norm == nullptr) return;
    const uint64_t keys = norm->columns(), rows = both->rows();
    if (keys == 0 || rows <= keys || (rows - keys) % keys != 0) {
      fail(ErrorKind::kCorrupt, "{}: tensor '{}' has the shape {}, which is not heads of {} rows and one more",
           source_.name(), both->name, hf_shape_text(both->shape), keys);
    }
    dims_.set(Dim::kIndexHeadDim, keys);
    dims_.set(Dim::kIndexQueries, rows - keys);
  }

  // The widths of latent attention, from the tensors of the first block.
  void learn_latent(const std::string& source) {
    if (dims_.known(Dim::kMlaKey) != 0) return;
    const std::string at = source + "self_attn.";
    const QuantWeight* q = find(at + "q_b_proj.weight");
    const QuantWeight& queries = q ? *q : require(at + "q_proj.weight");
    const QuantWeight& latent = require(at + "kv_a_proj_with_mqa.weight");
    const QuantWeight& output = require(at + "o_proj.weight");
    const uint64_t heads = dims_.need(Dim::kHeads, queries.name);
    const uint64_t rank = require(at + "kv_a_layernorm.weight").columns();
    const uint64_t rope = latent.rows() - std::min(rank, latent.rows());
    const uint64_t head = queries.rows() / heads, value = output.columns() / heads;
    if (rank == 0 || rope == 0 || head <= rope || queries.rows() % heads != 0 || value == 0 ||
        output.columns() % heads != 0) {
      fail(ErrorKind::kCorrupt, "{}: the tensors of '{}' do not fit {} heads: {} {}, {} {}, {} {}", source_.name(), at,
           heads, queries.name, hf_shape_text(queries.shape), latent.name, hf_shape_text(latent.shape), output.name,
           hf_shape_text(output.shape));
    }
    dims_.set(Dim::kKeyRank, rank);
    dims_.set(Dim::kKeyRankAndRope, latent.rows());
    dims_.set(Dim::kMlaQueries, queries.rows());
    dims_.set(Dim::kMlaKey, head - rope);
    dims_.set(Dim::kMlaValue, value);
    dims_.set(Dim::kMlaValues, output.columns());
    dims_.set(Dim::kMlaKeysAndValues, heads * (head - rope + value));
  }

  // ---- weights

  const QuantWeight* find(const std::string& name) const {
    const QuantWeight* weight = catalog_.find(name);
    return weight != nullptr || name.ends_with(".weight") ? weight : catalog_.find(name + ".weight");
  }

  const QuantWeight& require(const std::string& name) const {
    const QuantWeight* weight = find(name);
    if (weight == nullptr) fail(ErrorKind::kCorrupt, "{}: tensor '{}' is missing", source_.name(), name);
    return *weight;
  }

  uint32_t id_of(const QuantWeight& weight) const {
    return static_cast<uint32_t>(&weight - catalog_.weights.data());
  }

  const QuantWeight& use(const QuantWeight& weight) {
    used_[id_of(weight)] = true;
    return weight;
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
    const QuantWeight* found = row.need == Need::kRequired ? &require(name) : find(name);
    if (found == nullptr) return;
    const QuantWeight& weight = use(*found);
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

  uint32_t begin(std::string_view name, const Shape& shape, const QuantWeight& first) {
    TensorInfo info;
    info.name = target_prefix_ + std::string(name);
    info.dtype = native_type(source_, first);
    info.shape = shape;
    const uint32_t block = traits(info.dtype).block_elements;
    if (shape.ne[0] % block != 0) {
      fail(ErrorKind::kUnsupported, "{}: rows of {} elements of '{}' are not whole {} blocks of {}", source_.name(),
           shape.ne[0], first.name, dtype_name(info.dtype), block);
    }
    const auto bytes = checked_tensor_bytes(info.dtype, shape);
    if (!bytes) {
      fail(ErrorKind::kCorrupt, "{}: tensor '{}' with the shape {} is too large", source_.name(), info.name,
           shape.text());
    }
    info.bytes = *bytes;
    out_.tensors.push_back(std::move(info));
    first_move_ = out_.moves.size();
    return static_cast<uint32_t>(out_.tensors.size() - 1);
  }

  RowMove& move(const QuantWeight& weight, uint64_t source_row, uint64_t rows, uint32_t target, uint64_t target_row) {
    const TensorInfo& info = out_.tensors[target];
    const DType type = native_type(source_, weight);
    const QuantWeight& first =
        out_.moves.size() > first_move_ ? catalog_.weights[out_.moves[first_move_].weight] : weight;
    if (type != info.dtype || weight.scheme != first.scheme) {
      fail(ErrorKind::kUnsupported, "{}: '{}' is stored as {} ({}) and '{}' as {} ({}); all parts of one tensor must "
           "have the same type", source_.name(), first.name, dtype_name(info.dtype), quant_scheme_name(first.scheme),
           weight.name, dtype_name(type), quant_scheme_name(weight.scheme));
    }
    RowMove m;
    m.weight = id_of(weight);
    m.source_row = source_row;
    m.rows = rows;
    m.target = {target, target};
    m.target_row = {target_row, 0};
    out_.moves.push_back(m);
    return out_.moves.back();
  }

  // Adds the target's scales, if it has such.
  void finish(uint32_t target) {
    const std::span<const RowMove> moves = std::span(out_.moves).subspan(first_move_);
    auto scales = scale_tensor(source_, catalog_, out_.tensors[target], moves);
    if (scales) out_.derived.push_back(std::move(*scales));
  }

  // V heads in the order of the target. Groups of one head and single groups need no tiles.
  bool is_tiled() const { return tables_.tiled && config_.gdn.k_heads > 1 && config_.gdn.v_heads > config_.gdn.k_heads; }
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
      move(weight, source_row, height * config_.gdn.v_heads, target, target_row);
      return;
    }
    const uint32_t per_group = heads_per_group();
    for (uint32_t j = 0; j < per_group; ++j) {
      for (uint32_t g = 0; g < config_.gdn.k_heads; ++g, target_row += height) {
        move(weight, source_row + (uint64_t{g} * per_group + j) * height, height, target, target_row);
      }
    }
  }

  void matrix(const HfRow& row, const QuantWeight& weight) {
    dims_.expect(weight, row.shape);
    const Shape shape = shape_of(row);
    check_columns(weight, shape.ne[0]);
    const uint32_t target = begin(row.target, shape, weight);
    if (row.how == How::kVHeadRows) {
      check_groups();
      move_v_heads(weight, 0, shape.ne[1] / config_.gdn.v_heads, target, 0);
    } else if (row.how == How::kQkvRows) {
      check_groups();
      const uint64_t head = config_.gdn.head_dim, first = 2 * config_.gdn.k_heads * head;
      move(weight, 0, first, target, 0);
      move_v_heads(weight, first, head, target, first);
    } else {
      RowMove& m = move(weight, 0, weight.rows(), target, 0);
      if (row.how == How::kVHeadColumns) {
        check_groups();
        if (is_tiled()) m.tiles = {config_.gdn.k_heads, heads_per_group(), config_.gdn.head_dim};
        check_tiles(weight, m.tiles, out_.tensors[target].dtype);
      }
    }
    finish(target);
  }

  // A matrix with dimensions of 1 could have its columns elsewhere.
  void check_columns(const QuantWeight& weight, uint64_t columns) const {
    if (weight.columns() == columns) return;
    fail(ErrorKind::kCorrupt, "{}: tensor '{}' has the shape {}; rows of {} elements are needed", source_.name(),
         weight.name, hf_shape_text(weight.shape), columns);
  }

  void check_tiles(const QuantWeight& weight, const ColumnTiles& tiles, DType dtype) const {
    if (tiles.groups == 0 || tiles.block % traits(dtype).block_elements == 0) return;
    fail(ErrorKind::kUnsupported, "{}: heads of {} columns of '{}' cannot be reordered: they are not whole {} blocks of {}",
         source_.name(), tiles.block, weight.name, dtype_name(dtype), traits(dtype).block_elements);
  }

  void next_rows(const HfRow& row, const QuantWeight& weight) {
    const Shape shape = shape_of(row);
    check_columns(weight, shape.ne[0]);
    uint64_t& next = next_row_[id_of(weight)];
    if (weight.shape.size() != 2 || shape.rows() > weight.rows() - next) {
      fail(ErrorKind::kCorrupt, "{}: tensor '{}' has the shape {}, which has no rows {} to {} for '{}{}'",
           source_.name(), weight.name, hf_shape_text(weight.shape), next, next + shape.rows() - 1, target_prefix_,
           row.target);
    }
    const uint32_t target = begin(row.target, shape, weight);
    move(weight, next, shape.rows(), target, 0);
    next += shape.rows();
    finish(target);
  }

  void side_by_side(const HfRow& row) {
    const std::string_view both = row.source;
    const size_t plus = both.find('+');
    const Shape shape = shape_of(row);
    const QuantWeight& left = use(require(source_prefix_ + std::string(both.substr(0, plus))));
    const QuantWeight& right = use(require(source_prefix_ + std::string(both.substr(plus + 1))));
    for (const QuantWeight* weight : {&left, &right}) {
      if (weight->shape.size() == 2 && weight->rows() == shape.ne[1] && weight->columns() == shape.ne[0] / 2) continue;
      fail(ErrorKind::kCorrupt, "{}: tensor '{}' has the shape {}, not [{}, {}]", source_.name(), weight->name,
           hf_shape_text(weight->shape), shape.ne[1], shape.ne[0] / 2);
    }
    const uint32_t target = begin(row.target, shape, left);
    if (left.columns() % traits(out_.tensors[target].dtype).block_elements != 0) {
      fail(ErrorKind::kUnsupported, "{}: '{}' and '{}' cannot be joined: their rows are not whole blocks",
           source_.name(), left.name, right.name);
    }
    move(left, 0, left.rows(), target, 0);
    move(right, 0, right.rows(), target, 0).target_column = left.columns();
    finish(target);
  }

  void experts(const HfRow& row, const char* fused_name, uint64_t parts, uint64_t part) {
    const uint64_t count = dims_.need(Dim::kExperts, source_prefix_ + row.source);
    const QuantWeight* fused = find(fmt::format("{}mlp.experts.{}", source_prefix_, fused_name));
    if (fused == nullptr) return separate_experts(row, count);
    use(*fused);
    dims_.expect(*fused, {{row.shape[0], 1}, {row.shape[1], parts}, {row.shape[2], 1}});
    const Shape shape = shape_of(row);
    check_columns(*fused, shape.ne[0]);
    const uint32_t target = begin(row.target, shape, *fused);
    const uint64_t height = shape.ne[1];
    for (uint64_t e = 0; e < count; ++e) move(*fused, (e * parts + part) * height, height, target, e * height);
    finish(target);
  }

  void separate_experts(const HfRow& row, uint64_t count) {
    uint32_t target = 0;
    uint64_t height = 0;
    for (uint64_t e = 0; e < count; ++e) {
      const QuantWeight& weight = use(require(source_prefix_ + replaced(row.source, '*', std::to_string(e))));
      dims_.expect(weight, {{row.shape[0], 1}, {row.shape[1], 1}});
      if (e == 0) {
        const Shape shape = shape_of(row);
        height = shape.ne[1];
        target = begin(row.target, shape, weight);
      }
      check_columns(weight, out_.tensors[target].shape.ne[0]);
      move(weight, 0, height, target, e * height);
    }
    finish(target);
  }

  // A plain stack of gpt-oss is [experts, in, out].
  bool is_transposed(const QuantWeight& weight) const {
    if (weight.scheme == QuantScheme::kMxfp4) return false;
    if (weight.scheme == QuantScheme::kPlain) return true;
    fail(ErrorKind::kUnsupported, "{}: '{}' is quantised as {}; experts of gpt-oss are supported unquantised and as MXFP4",
         source_.name(), weight.name, quant_scheme_name(weight.scheme));
  }

  void interleaved(const HfRow& row, const QuantWeight& weight) {
    const bool transposed = is_transposed(weight);
    if (transposed) {
      dims_.expect(weight, {{row.shape[1], 2}, {row.shape[0], 1}, {row.shape[2], 1}});
    } else {
      dims_.expect(weight, {{row.shape[0], 1}, {row.shape[1], 2}, {row.shape[2], 1}});
    }
    const Shape shape = shape_of(row);
    check_columns(weight, transposed ? 2 * shape.ne[1] : shape.ne[0]);
    const std::string_view both = row.target;
    const size_t plus = both.find('+');
    const uint32_t gate = begin(both.substr(0, plus), shape, weight);
    const uint32_t up = begin(both.substr(plus + 1), shape, weight);
    if (!transposed) {
      RowMove& m = move(weight, 0, weight.rows(), gate, 0);
      m.ways = 2;
      m.target[1] = up;
      return;
    }
    for (uint64_t e = 0; e < shape.ne[2]; ++e) {
      RowMove& m = move(weight, e * shape.ne[0], shape.ne[0], gate, e * shape.ne[1]);
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
    check_columns(weight, shape.ne[transposed ? 1 : 0]);
    const uint32_t target = begin(row.target, shape, weight);
    const uint64_t rows = shape.ne[transposed ? 0 : 1];
    for (uint64_t e = 0; e < shape.ne[2]; ++e) {
      move(weight, e * rows, rows, target, e * shape.ne[1]).transposed = transposed;
    }
    finish(target);
  }

  void shards(const HfRow& row) {
    std::vector<const QuantWeight*> parts;
    while (const QuantWeight* part = find(source_prefix_ + replaced(row.source, '*', std::to_string(parts.size())))) {
      parts.push_back(part);
    }
    if (parts.empty()) {
      std::string whole = source_prefix_ + row.source;
      if (const size_t at = whole.rfind(".shard_"); at != std::string::npos) whole.resize(at);
      const QuantWeight* table = find(whole);
      parts.push_back(table ? table : &require(source_prefix_ + replaced(row.source, '*', "0")));
    }
    uint64_t total = 0;
    for (const QuantWeight* part : parts) {
      dims_.expect(use(*part), {{row.shape[0], 1}, {row.shape[1], 1}});
      check_columns(*part, dims_.need(row.shape[0], part->name));
      const auto sum = checked_add(total, part->rows());
      if (!sum) fail(ErrorKind::kCorrupt, "{}: the parts of '{}' have too many rows", source_.name(), row.target);
      total = *sum;
    }
    if (total == 0 || total < config_.ple.table_rows) {
      fail(ErrorKind::kCorrupt, "{}: the {} parts of '{}' have {} rows together, needed are {}", source_.name(),
           parts.size(), row.target, total, config_.ple.table_rows);
    }
    const uint32_t target = begin(row.target, make_shape({parts[0]->columns(), total}), *parts[0]);
    uint64_t next = 0;
    for (const QuantWeight* part : parts) {
      move(*part, 0, part->rows(), target, next);
      next += part->rows();
    }
    finish(target);
  }

  // Rows of in_proj_qkvz: for each K head its q, its k, its r v heads, their r z heads.
  void groups(const HfRow& row, const QuantWeight& weight) {
    check_groups();
    dims_.expect(weight, {{row.shape[0], 1}, {Dim::kGdnQkvz, 1}});
    const Shape shape = shape_of(row);
    check_columns(weight, shape.ne[0]);
    const uint32_t target = begin(row.target, shape, weight);
    const uint64_t heads = config_.gdn.k_heads, head = config_.gdn.head_dim, values = heads_per_group() * head;
    const uint64_t group = 2 * head + 2 * values;
    const auto each = [&](uint64_t from, uint64_t height, uint64_t to) {
      for (uint64_t g = 0; g < heads; ++g) move(weight, g * group + from, height, target, to + g * height);
    };
    if (row.how == How::kQkvOfGroups) {
      each(0, head, 0);
      each(head, head, heads * head);
      each(2 * head, values, 2 * heads * head);
    } else {
      each(2 * head + values, values, 0);
    }
    finish(target);
  }

  void latent_heads(const HfRow& row, const QuantWeight& weight) {
    dims_.expect(weight, {{Dim::kKeyRank, 1}, {Dim::kMlaKeysAndValues, 1}});
    const Shape shape = shape_of(row);
    const uint64_t key = dims_.need(Dim::kMlaKey, weight.name), value = dims_.need(Dim::kMlaValue, weight.name);
    check_columns(weight, dims_.need(Dim::kKeyRank, weight.name));
    const bool keys = row.how == How::kKeysOfHeads;
    if (keys && traits(native_type(source_, weight)).block_elements != 1) {
      fail(ErrorKind::kUnsupported, "{}: '{}' is quantised as {} along rows that '{}{}' needs as columns",
           source_.name(), weight.name, quant_scheme_name(weight.scheme), target_prefix_, row.target);
    }
    const uint32_t target = begin(row.target, shape, weight);
    for (uint64_t h = 0; h < shape.ne[2]; ++h) {
      const uint64_t first = h * (key + value);
      move(weight, keys ? first : first + key, keys ? key : value, target, h * shape.ne[1]).transposed = keys;
    }
    finish(target);
  }

  // ---- targets that are computed

  DerivedTensor& derive(const HfRow& row, const QuantWeight& weight, DerivedOp op) {
    require_numbers(source_, weight);
    DerivedTensor d;
    d.target.name = target_prefix_ + row.target;
    d.target.shape = shape_of(row);
    d.target.bytes = d.target.shape.elements() * sizeof(float);  // a source of as many elements lies in a file
    d.op = op;
    d.weights = {id_of(weight)};
    out_.derived.push_back(std::move(d));
    return out_.derived.back();
  }

  DerivedTensor& floats_of(const HfRow& row, const QuantWeight& weight, DerivedOp op) {
    dims_.expect(weight, row.shape);
    return derive(row, weight, op);
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
    DerivedTensor& d = derive(row, weight, DerivedOp::kFloats);
    d.first = first;
    d.step = 2;
  }

  // ---- what is left

  void check_remainders() const {
    for (const auto& [id, next] : next_row_) {
      const QuantWeight& weight = catalog_.weights[id];
      if (next == weight.rows()) continue;
      fail(ErrorKind::kCorrupt, "{}: tensor '{}' has {} rows, expected {}", source_.name(), weight.name, weight.rows(),
           next);
    }
  }

  // Whether a tensor belongs to a draft block that the configuration leaves out.
  bool is_left_out_draft(std::string_view name) const {
    if (tables_.draft.empty()) return false;
    if (tables_.draft_apart) return config_.mtp_layers == 0 && name.starts_with("mtp.");
    const std::string blocks = model_ + "layers.";
    if (!name.starts_with(blocks)) return false;
    uint64_t n = 0;
    size_t at = blocks.size();
    for (; at < name.size() && at < blocks.size() + 6 && name[at] >= '0' && name[at] <= '9'; ++at) {
      n = n * 10 + static_cast<uint64_t>(name[at] - '0');
    }
    return at > blocks.size() && at < name.size() && name[at] == '.' && n >= config_.blocks();
  }

  void sort_out_unused() {
    std::string names;
    size_t unknown = 0;
    for (size_t i = 0; i < used_.size(); ++i) {
      if (used_[i]) continue;
      const std::string_view name = catalog_.weights[i].name;
      if (is_kept_only(name) || is_left_out_draft(name)) {
        out_.kept_only.emplace_back(name);
      } else if (++unknown <= 3) {
        names += fmt::format("{}'{}'", names.empty() ? "" : ", ", name);
      }
    }
    if (unknown == 0) return;
    fail(ErrorKind::kUnsupported, "{}: {} {} not known of the architecture {}: {}{}", source_.name(), unknown,
         unknown == 1 ? "tensor is" : "tensors are", architecture_name(config_.architecture), names,
         unknown > 3 ? ", ..." : "");
  }

  const SafetensorsSource& source_;
  const QuantCatalog& catalog_;
  const ModelConfig& config_;
  const HfTables tables_;
  HfDims dims_;
  HfMapping out_;
  std::vector<bool> used_;
  std::string model_;                        // prefix of the language model's tensors
  std::string target_prefix_, source_prefix_;  // of the rows at hand
  size_t first_move_ = 0;                    // of the target at hand
  std::map<uint32_t, uint64_t> next_row_;    // see How::kNextRows
};

}  // namespace

HfMapping map_checkpoint(const SafetensorsSource& source, const QuantCatalog& catalog, const ModelConfig& config) {
  return Mapper(source, catalog, config).run();
}

}  // namespace tierpack::repack

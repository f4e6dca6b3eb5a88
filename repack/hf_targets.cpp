#include "repack/hf_targets.h"

#include "formats/pack_layout.h"
#include "repack/hf_scales.h"

namespace tierpack::repack {

HfTargets::HfTargets(const SafetensorsSource& source, const QuantCatalog& catalog)
    : source_(source), catalog_(catalog), used_(catalog.weights.size(), false) {}

const QuantWeight* HfTargets::find(const std::string& name) const {
  const QuantWeight* weight = catalog_.find(name);
  return weight != nullptr || name.ends_with(".weight") ? weight : catalog_.find(name + ".weight");
}

const QuantWeight& HfTargets::require(const std::string& name) const {
  const QuantWeight* weight = find(name);
  if (weight == nullptr) fail(ErrorKind::kCorrupt, "{}: tensor '{}' is missing", source_.name(), name);
  return *weight;
}

const QuantWeight& HfTargets::use(const QuantWeight& weight) {
  used_[id_of(weight)] = true;
  return weight;
}

uint32_t HfTargets::begin(const std::string& name, const Shape& shape, const QuantWeight& first) {
  TensorInfo info;
  info.name = name;
  info.dtype = native_type(source_, first);
  info.shape = shape;
  const uint32_t block = info.dtype == DType::kNVFP4 ? kNvfp4ScaleElements : traits(info.dtype).block_elements;
  if (!makes_rows(info.dtype, shape.ne[0])) {
    fail(ErrorKind::kUnsupported, "{}: rows of {} elements of '{}' are not whole {} blocks of {}", source_.name(),
         shape.ne[0], first.name, dtype_name(info.dtype), block);
  }
  const auto bytes = checked_tensor_bytes(info.dtype, shape);
  if (!bytes) {
    fail(ErrorKind::kCorrupt, "{}: tensor '{}' with the shape {} is too large", source_.name(), name, shape.text());
  }
  info.bytes = *bytes;
  mapping_.tensors.push_back(std::move(info));
  first_move_ = mapping_.moves.size();
  return static_cast<uint32_t>(mapping_.tensors.size() - 1);
}

RowMove& HfTargets::move(const QuantWeight& weight, uint64_t source_row, uint64_t rows, uint32_t target,
                         uint64_t target_row) {
  const bool is_first = mapping_.moves.size() == first_move_;
  const QuantWeight& first = is_first ? weight : catalog_.weights[mapping_.moves[first_move_].weight];
  const DType type = native_type(source_, weight);
  if (type != dtype(target) || weight.scheme != first.scheme) {
    fail(ErrorKind::kUnsupported,
         "{}: '{}' is stored as {} ({}) and '{}' as {} ({}); all parts of '{}' must have the same type", source_.name(),
         first.name, dtype_name(dtype(target)), quant_scheme_name(first.scheme), weight.name, dtype_name(type),
         quant_scheme_name(weight.scheme), mapping_.tensors[target].name);
  }
  RowMove m;
  m.weight = id_of(weight);
  m.source_row = source_row;
  m.rows = rows;
  m.target = {target, target};
  m.target_row = {target_row, 0};
  mapping_.moves.push_back(m);
  return mapping_.moves.back();
}

void HfTargets::finish(uint32_t target) {
  const std::span<const RowMove> moves = std::span(mapping_.moves).subspan(first_move_);
  auto scales = scale_tensor(source_, catalog_, mapping_.tensors[target], moves);
  if (scales) mapping_.derived.push_back(std::move(*scales));
}

DerivedTensor& HfTargets::derive(const std::string& name, const Shape& shape, const QuantWeight& weight, DerivedOp op) {
  require_numbers(source_, weight);
  DerivedTensor d;
  d.target.name = name;
  d.target.shape = shape;
  d.target.bytes = shape.elements() * sizeof(float);
  d.op = op;
  d.weights = {id_of(weight)};
  mapping_.derived.push_back(std::move(d));
  return mapping_.derived.back();
}

void HfTargets::check_columns(const QuantWeight& weight, uint64_t columns) const {
  if (weight.columns() == columns) return;
  fail(ErrorKind::kCorrupt, "{}: tensor '{}' has the shape {}; rows of {} elements are needed", source_.name(),
       weight.name, hf_shape_text(weight.shape), columns);
}

HfMapping HfTargets::take(const std::function<bool(std::string_view)>& kept, const char* architecture) {
  std::string names;
  size_t unknown = 0;
  for (size_t i = 0; i < used_.size(); ++i) {
    if (used_[i]) continue;
    const std::string_view name = catalog_.weights[i].name;
    if (kept(name)) {
      mapping_.kept_only.emplace_back(name);
    } else if (++unknown <= 3) {
      names += fmt::format("{}'{}'", names.empty() ? "" : ", ", name);
    }
  }
  if (unknown != 0) {
    fail(ErrorKind::kUnsupported, "{}: {} not known of the architecture {}: {}{}", source_.name(),
         unknown == 1 ? "1 tensor is" : fmt::format("{} tensors are", unknown), architecture, names,
         unknown > 3 ? ", ..." : "");
  }
  check_mapping(catalog_, mapping_);
  return std::move(mapping_);
}

}  // namespace tierpack::repack

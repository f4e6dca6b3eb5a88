#include "formats/quant_scheme.h"

#include <algorithm>
#include <array>
#include <initializer_list>

namespace tierpack {

const char* quant_scheme_name(QuantScheme scheme) {
  switch (scheme) {
    case QuantScheme::kPlain: return "plain";
    case QuantScheme::kFp8Tensor: return "fp8-tensor";
    case QuantScheme::kFp8Channel: return "fp8-channel";
    case QuantScheme::kFp8Block: return "fp8-block";
    case QuantScheme::kNvfp4: return "nvfp4";
    case QuantScheme::kMxfp4: return "mxfp4";
    case QuantScheme::kMxfp8: return "mxfp8";
  }
  return "unknown";
}

uint64_t QuantWeight::rows() const {
  uint64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

const QuantWeight* QuantCatalog::find(std::string_view name) const {
  const auto id = index.find(name, [&](uint32_t i) { return weights[i].name; });
  return id ? &weights[*id] : nullptr;
}

void QuantCatalog::require_readable(const std::string& source) const {
  if (problems.empty()) return;
  const QuantProblem& first = problems.front();
  fail(first.kind, "{}: {}{}", source, first.message,
       problems.size() > 1 ? fmt::format(" ({} more such problems)", problems.size() - 1) : "");
}

namespace {

using Dims = std::span<const uint64_t>;

constexpr uint64_t kNvfp4Block = 16;
constexpr uint64_t kMxBlock = 32;

bool same(Dims a, std::initializer_list<uint64_t> b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

bool is_e8m0(HfType type) { return type == HfType::kU8 || type == HfType::kF8E8M0; }
bool is_fp8(HfType type) { return type == HfType::kF8E4M3 || type == HfType::kF8E5M2; }

// A reader that takes the forms of quant_scheme.h apart: first every weight that has scales, then what is left.
class Recogniser {
 public:
  Recogniser(const SafetensorsSource& source, const QuantConfig& config)
      : source_(source), config_(config), taken_(source.tensors().size(), false) {}

  QuantCatalog run() {
    check_method();
    for (const SafetensorsTensor& tensor : source_.tensors()) {
      if (tensor.listed) recognise_scaled(tensor);
    }
    for (const SafetensorsTensor& tensor : source_.tensors()) {
      if (tensor.listed && !taken_[id_of(tensor)]) classify_rest(tensor);
    }
    std::sort(catalog_.weights.begin(), catalog_.weights.end(),
              [](const QuantWeight& a, const QuantWeight& b) { return a.data < b.data; });
    index_weights();
    return std::move(catalog_);
  }

 private:
  size_t id_of(const SafetensorsTensor& tensor) const {
    return static_cast<size_t>(&tensor - source_.tensors().data());
  }

  const SafetensorsTensor* sibling(std::string_view base, std::string_view suffix) {
    key_.assign(base).append(suffix);
    return source_.find(key_);
  }

  void take(const SafetensorsTensor* tensor) {
    if (tensor != nullptr) taken_[id_of(*tensor)] = true;
  }

  void problem(const SafetensorsTensor& tensor, ErrorKind kind, const std::string& message) {
    take(&tensor);
    catalog_.problems.push_back({std::string(tensor.name), kind, fmt::format("tensor '{}': {}", tensor.name, message)});
  }

  // The layout of these methods is recognised from the tensors; another method could look like plain numbers.
  void check_method() {
    const std::string& method = config_.method;
    for (const char* known : {"", "fp8", "fbgemm_fp8", "finegrained_fp8", "mxfp4", "compressed-tensors"}) {
      if (method == known) return;
    }
    if (method.starts_with("modelopt")) return;
    catalog_.problems.push_back(
        {"", ErrorKind::kUnsupported,
         fmt::format(
             "the checkpoint is quantised with '{}'; supported are unquantised checkpoints, FP8, NVFP4 (ModelOpt "
             "and compressed-tensors) and MXFP4",
             method)});
  }

  // ---- weights with scales

  void recognise_scaled(const SafetensorsTensor& tensor) {
    const std::string_view name = tensor.name;
    if (tensor.bytes == 0) return;  // below, every dimension is at least 1 and every product fits
    if (tensor.dtype == HfType::kU8 && name.ends_with("_blocks")) {
      const std::string_view base = name.substr(0, name.size() - 7);
      if (const SafetensorsTensor* scales = sibling(base, "_scales")) add_mxfp4_blocks(tensor, base, *scales);
      return;
    }
    if (name.ends_with(".weight_packed")) {
      add_packed(tensor, name.substr(0, name.size() - 7));
      return;
    }
    if (tensor.dtype != HfType::kU8 && tensor.dtype != HfType::kI8 && !is_fp8(tensor.dtype)) return;
    const SafetensorsTensor* scale = find_scale(tensor);
    if (scale == nullptr) return;
    take(scale);
    if (is_fp8(tensor.dtype)) {
      add_fp8(tensor, *scale);
    } else if (tensor.dtype == HfType::kI8) {
      problem(tensor, ErrorKind::kUnsupported, "8-bit integer weights with scales are not supported");
    } else {
      add_u8(tensor, name, *scale);
    }
  }

  // The first-level scale beside `tensor`, by the names that the known writers give it.
  const SafetensorsTensor* find_scale(const SafetensorsTensor& tensor) {
    const SafetensorsTensor* found = nullptr;
    const bool fused = !tensor.name.ends_with(".weight");
    for (const char* suffix : {"_scale", "_scale_inv", "_weight_scale", "_weight_scale_inv"}) {
      if (!fused && std::string_view(suffix).starts_with("_weight")) continue;
      const SafetensorsTensor* scale = sibling(tensor.name, suffix);
      if (scale == nullptr) continue;
      if (found != nullptr) {
        problem(*scale, ErrorKind::kCorrupt,
                fmt::format("'{}' already is the scale of '{}'", found->name, tensor.name));
        continue;
      }
      found = scale;
    }
    return found;
  }

  QuantWeight weight(const SafetensorsTensor& data, std::string_view name, QuantScheme scheme, Dims shape,
                     const SafetensorsTensor* scale) {
    QuantWeight weight;
    weight.name = name;
    weight.scheme = scheme;
    weight.shape = shape;
    weight.data = &data;
    weight.scale = scale;
    return weight;
  }

  void add(const QuantWeight& weight) {
    take(weight.data);
    take(weight.scale);
    take(weight.scale_2);
    catalog_.weights.push_back(weight);
  }

  // Shape of the values of a tensor that packs two a byte.
  Dims unpacked_shape(Dims packed, uint64_t factor) {
    std::vector<uint64_t> shape(packed.begin(), packed.end());
    shape.back() *= factor;
    return catalog_.arena.keep(shape);
  }

  void add_mxfp4_blocks(const SafetensorsTensor& blocks, std::string_view name, const SafetensorsTensor& scales) {
    take(&scales);
    const Dims dims = blocks.shape;
    if (dims.size() < 2 || dims.back() != kMxBlock / 2 ||
        !std::equal(dims.begin(), dims.end() - 1, scales.shape.begin(), scales.shape.end()) || !is_e8m0(scales.dtype)) {
      return problem(blocks, ErrorKind::kCorrupt,
                     fmt::format("MXFP4 blocks {} do not fit the scales {} {}; expected [.., groups, 16] with U8 [.., "
                                 "groups]",
                                 hf_shape_text(dims), hf_type_name(scales.dtype), hf_shape_text(scales.shape)));
    }
    QuantWeight w =
        weight(blocks, name, QuantScheme::kMxfp4, unpacked_shape(dims.first(dims.size() - 1), kMxBlock), &scales);
    w.block_rows = 1;
    w.block_columns = kMxBlock;
    add(w);
  }

  // compressed-tensors: `name` ends in ".weight".
  void add_packed(const SafetensorsTensor& packed, std::string_view name) {
    const SafetensorsTensor* scale = sibling(name, "_scale");
    take(scale);
    if (packed.dtype == HfType::kU8 && scale != nullptr) return add_u8(packed, name, *scale);
    for (const char* suffix : {"_shape", "_zero_point", "_g_idx", "_global_scale"}) take(sibling(name, suffix));
    if (packed.dtype != HfType::kU8) {
      return problem(packed, ErrorKind::kUnsupported, "integer weights packed by compressed-tensors are not supported");
    }
    problem(packed, ErrorKind::kCorrupt, fmt::format("'{}_scale' is missing", name));
  }

  // Two E2M1 codes a byte, with the scales of NVFP4 or MXFP4.
  void add_u8(const SafetensorsTensor& packed, std::string_view name, const SafetensorsTensor& scale) {
    const bool nvfp4 = scale.dtype == HfType::kF8E4M3;
    const uint64_t block = nvfp4 ? kNvfp4Block : kMxBlock;
    const Dims dims = packed.shape;
    if (!nvfp4 && !is_e8m0(scale.dtype)) {
      return problem(
          packed, ErrorKind::kUnsupported,
          fmt::format("U8 with scales of type {} is no form of FP4 that is known", hf_type_name(scale.dtype)));
    }
    const bool fits = dims.size() >= 2 && dims.size() == scale.shape.size() && dims.back() % (block / 2) == 0 &&
                      std::equal(dims.begin(), dims.end() - 1, scale.shape.begin()) &&
                      scale.shape.back() == dims.back() / (block / 2);
    if (!fits) {
      return problem(packed, ErrorKind::kUnsupported,
                     fmt::format("U8 {} with scales {} is not [.., out, in/2] with [.., out, in/{}]",
                                 hf_shape_text(dims), hf_shape_text(scale.shape), block));
    }
    QuantWeight w =
        weight(packed, name, nvfp4 ? QuantScheme::kNvfp4 : QuantScheme::kMxfp4, unpacked_shape(dims, 2), &scale);
    w.block_rows = 1;
    w.block_columns = block;
    if (nvfp4 && !find_second_scale(w)) return;
    add(w);
  }

  bool find_second_scale(QuantWeight& w) {
    const bool fused = !w.name.ends_with(".weight");
    const SafetensorsTensor* multiplier = sibling(w.name, "_scale_2");
    if (multiplier == nullptr && fused) multiplier = sibling(w.name, "_weight_scale_2");
    const SafetensorsTensor* divisor = sibling(w.name, "_global_scale");
    if (divisor == nullptr && fused) divisor = sibling(w.name, "_weight_global_scale");
    take(multiplier);
    take(divisor);
    if ((multiplier == nullptr) == (divisor == nullptr)) {
      problem(*w.data, ErrorKind::kCorrupt,
              multiplier == nullptr ? "NVFP4 without weight_scale_2 or weight_global_scale"
                                    : "NVFP4 with both weight_scale_2 and weight_global_scale");
      return false;
    }
    w.scale_2 = multiplier != nullptr ? multiplier : divisor;
    w.scale_2_divides = divisor != nullptr;
    const uint64_t count = w.scale_2->elements(), rows = w.rows();
    const uint64_t matrices = w.matrix_rows() == 0 ? 0 : rows / w.matrix_rows();
    const bool fits = count == 1 || (count != 0 && count == matrices) ||
                      (count != 0 && w.shape.size() > 2 && count == 2 * matrices && w.matrix_rows() % 2 == 0);
    if (w.scale_2->dtype != HfType::kF32 || !fits) {
      problem(
          *w.data, ErrorKind::kCorrupt,
          fmt::format("its second scale '{}' is {} {}; expected F32, one value or one a matrix of {}", w.scale_2->name,
                      hf_type_name(w.scale_2->dtype), hf_shape_text(w.scale_2->shape), hf_shape_text(w.shape)));
      return false;
    }
    w.scale_2_rows = rows / count;
    return true;
  }

  void add_fp8(const SafetensorsTensor& tensor, const SafetensorsTensor& scale) {
    QuantWeight w = weight(tensor, tensor.name, QuantScheme::kFp8Tensor, tensor.shape, &scale);
    const bool number = scale.dtype == HfType::kF32 || scale.dtype == HfType::kBF16 || scale.dtype == HfType::kF16;
    if ((number || is_e8m0(scale.dtype)) && find_fp8_grid(w)) {
      if (w.scheme == QuantScheme::kMxfp8 || scale.dtype != HfType::kU8) return add(w);
    }
    problem(tensor, ErrorKind::kUnsupported,
            fmt::format("{} {} with scales '{}' {} {} is no form of FP8 that is known (blocks of {} x {})",
                        hf_type_name(tensor.dtype), hf_shape_text(tensor.shape), scale.name, hf_type_name(scale.dtype),
                        hf_shape_text(scale.shape), config_.block_rows, config_.block_columns));
  }

  // What one scale covers, from the shapes. False when nothing fits.
  bool find_fp8_grid(QuantWeight& w) const {
    const uint64_t out = w.matrix_rows(), in = w.columns();
    const Dims lead = w.shape.size() > 2 ? w.shape.first(w.shape.size() - 2) : Dims{};
    w.block_rows = out;
    w.block_columns = in;
    if (w.scale->elements() == 1) {
      w.whole_stack = true;
      return true;
    }
    const Dims dims = w.scale->shape;
    if (dims.size() < lead.size() || !std::equal(lead.begin(), lead.end(), dims.begin())) return false;
    const Dims tail = dims.subspan(lead.size());
    if (same(tail, {}) || same(tail, {1}) || same(tail, {1, 1})) return true;
    if (same(tail, {out}) || same(tail, {out, 1})) {
      w.scheme = QuantScheme::kFp8Channel;
      w.block_rows = 1;
      return true;
    }
    if (is_e8m0(w.scale->dtype) && in % kMxBlock == 0 && same(tail, {out, in / kMxBlock})) {
      w.scheme = QuantScheme::kMxfp8;
      w.block_rows = 1;
      w.block_columns = kMxBlock;
      return true;
    }
    const uint64_t down = ceil_div(out, config_.block_rows), across = ceil_div(in, config_.block_columns);
    if (same(tail, {down, across}) || same(tail, {down, 1, across, 1})) {
      w.scheme = QuantScheme::kFp8Block;
      w.block_rows = config_.block_rows;
      w.block_columns = config_.block_columns;
      return true;
    }
    if (!lead.empty() && out % 2 == 0 && (same(tail, {2}) || same(tail, {2, 1}) || same(tail, {2, 1, 1}))) {
      w.block_rows = out / 2;  // gate and up of a fused stack
      return true;
    }
    return false;
  }

  // ---- everything else

  void classify_rest(const SafetensorsTensor& tensor) {
    const std::string_view name = tensor.name;
    const auto ends_with_any = [&](std::initializer_list<std::string_view> suffixes) {
      return std::any_of(suffixes.begin(), suffixes.end(), [&](std::string_view s) { return name.ends_with(s); });
    };
    const bool real = tensor.dtype == HfType::kF32 || tensor.dtype == HfType::kBF16 || tensor.dtype == HfType::kF16;
    if (real && ends_with_any({".input_scale", "_input_scale", ".input_global_scale", ".k_scale", ".v_scale",
                               ".activation_scale", "_activation_scale"})) {
      take(&tensor);
      catalog_.ignored.push_back(&tensor);
      return;
    }
    if (ends_with_any({".pre_quant_scale"})) {
      return problem(tensor, ErrorKind::kUnsupported, "AWQ scales of a layer's input are not supported");
    }
    if (name.find("svdquant") != std::string_view::npos) {
      return problem(tensor, ErrorKind::kUnsupported, "SVDQuant's low-rank factors are not supported");
    }
    if (ends_with_any({".qweight", ".qzeros"})) {
      return problem(tensor, ErrorKind::kUnsupported, "weights packed by GPTQ or AWQ are not supported");
    }
    if (ends_with_any({".absmax", ".quant_map", ".SCB"}) || name.find(".quant_state.") != std::string_view::npos) {
      return problem(tensor, ErrorKind::kUnsupported, "weights quantised by bitsandbytes are not supported");
    }
    if (ends_with_any({".trellis", ".suh", ".svh"})) {
      return problem(tensor, ErrorKind::kUnsupported, "EXL3 weights are not supported");
    }
    if (ends_with_any({".weight_scale", ".weight_scale_2", ".weight_scale_inv", ".weight_global_scale", "_scale_inv",
                       "_weight_scale", "_weight_scale_2", ".weight_zero_point"})) {
      return problem(tensor, ErrorKind::kCorrupt, "a scale, but no quantised weight is beside it");
    }
    if (tensor.dtype == HfType::kU8 && ends_with_any({"_blocks", "_scales"})) {
      return problem(tensor, ErrorKind::kCorrupt, "MXFP4 blocks and scales must be beside each other");
    }
    add(weight(tensor, name, QuantScheme::kPlain, tensor.shape, nullptr));
  }

  void index_weights() {
    const auto names = [&](uint32_t id) { return catalog_.weights[id].name; };
    catalog_.index.build(catalog_.weights.size(), names);
    // "X.weight" beside "X.weight_packed", or "W" beside "W_blocks".
    if (const auto twice = catalog_.index.duplicate(names)) {
      catalog_.problems.push_back({std::string(names(*twice)), ErrorKind::kCorrupt,
                                   fmt::format("weight '{}' is stored twice, in two forms", names(*twice))});
    }
  }

  const SafetensorsSource& source_;
  const QuantConfig& config_;
  std::vector<bool> taken_;
  std::string key_;
  QuantCatalog catalog_;
};

}  // namespace

QuantCatalog recognise_weights(const SafetensorsSource& source, const QuantConfig& config) {
  TIERPACK_CHECK(config.block_rows > 0 && config.block_columns > 0);
  return Recogniser(source, config).run();
}

}  // namespace tierpack

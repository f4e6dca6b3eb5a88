#include "runtime/model/tensor_binder.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "formats/dequant.h"
#include "formats/row_groups.h"
#include "runtime/model/decoded_weights.h"

namespace tierpack::model {

namespace {

constexpr uint64_t kTensorAlignment = 64;

bool is_weight_type(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8_E4M3: return true;
    case DType::kQ8_1:
    case DType::kQ8_K: return false;  // forms of activations
    default: return traits(type).quantised;
  }
}

}  // namespace

void require_weight_type(DType type, const std::string& what) {
  if (!is_weight_type(type)) {
    fail(ErrorKind::kUnsupported,
         "{}: type {} cannot be the weight of a matrix product; expected F32, F16, BF16, F8_E4M3 or "
         "a quantised weight type",
         what, dtype_name(type));
  }
}

uint64_t DenseTensors::total_bytes(const Pack& pack) {
  uint64_t total = 0;
  for (const DenseTensor& tensor : pack.manifest().dense) total += pack.manifest().records[tensor.record].bytes;
  return total;
}

uint64_t DenseTensors::arena_bytes(const PackManifest& manifest) {
  uint64_t at = 0;
  for (const DenseTensor& tensor : manifest.dense) at = align_up(at + manifest.records[tensor.record].bytes, kTensorAlignment);
  return at;
}

DenseTensors DenseTensors::load(const Pack& pack, ThreadTeam& team, const std::function<void(uint64_t)>& on_bytes) {
  const PackManifest& manifest = pack.manifest();
  DenseTensors result;
  uint64_t at = 0;
  for (const DenseTensor& tensor : manifest.dense) {
    const uint64_t bytes = manifest.records[tensor.record].bytes;
    result.offsets_.push_back(at);
    result.sizes_.push_back(bytes);
    at = align_up(at + bytes, kTensorAlignment);
  }
  result.arena_ = device::PinnedBuffer(at);
  team.for_each(manifest.dense.size(), [&](size_t i) {
    pack.read_record(manifest.dense[i].record, result.arena_.bytes().subspan(result.offsets_[i], result.sizes_[i]));
    on_bytes(result.sizes_[i]);
  });
  return result;
}

Bytes DenseTensors::tensor(size_t index) const { return arena_.bytes().subspan(offsets_[index], sizes_[index]); }

TensorBinder::TensorBinder(const Pack& pack, const DenseTensors& tensors,
                           std::vector<std::unique_ptr<float[]>>& decoded)
    : pack_(pack), tensors_(tensors), decoded_(decoded), bound_(pack.manifest().dense.size(), false) {}

size_t TensorBinder::find(const std::string& name, std::initializer_list<Shape> shapes) {
  const std::vector<DenseTensor>& dense = pack_.manifest().dense;
  const DenseTensor* tensor = pack_.find_dense(name);
  const std::string pack_name = pack_.directory().filename().string();
  if (tensor == nullptr) {
    fail(ErrorKind::kCorrupt, "{}: tensor {} {} is missing; the source is incomplete or of another architecture",
         pack_name, name, shapes.begin()->text());
  }
  if (std::find(shapes.begin(), shapes.end(), tensor->shape) == shapes.end()) {
    std::string expected;
    for (const Shape& shape : shapes) expected += (expected.empty() ? "" : " or ") + shape.text();
    fail(ErrorKind::kCorrupt, "{}: tensor {} has the shape {}; the hyper-parameters ask for {}", pack_name, name,
         tensor->shape.text(), expected);
  }
  const auto index = static_cast<size_t>(tensor - dense.data());
  const uint64_t bytes = tensor->shape.rows() * row_bytes(tensor->dtype, tensor->shape.ne[0]);
  if (tensors_.tensor(index).size() != bytes) {
    fail(ErrorKind::kCorrupt, "{}: the record of tensor {} ({} {}) has {} bytes, expected {}", pack_name, name,
         dtype_name(tensor->dtype), tensor->shape.text(), tensors_.tensor(index).size(), bytes);
  }
  bound_[index] = true;
  return index;
}

kernels::MatrixView TensorBinder::matrix(const std::string& name, uint64_t in, uint64_t out) {
  const size_t index = find(name, {Shape{{in, out, 1, 1}, 2}});
  const DType type = pack_.manifest().dense[index].dtype;
  require_weight_type(type, pack_.directory().filename().string() + ": tensor " + name);
  kernels::MatrixView matrix{type, tensors_.tensor(index).data(), static_cast<uint32_t>(out),
                             static_cast<uint32_t>(in)};
  bind_scales(name, matrix);
  return matrix;
}

const float* TensorBinder::scales_of(const DenseTensor& tensor) const {
  const auto index = static_cast<size_t>(&tensor - pack_.manifest().dense.data());
  return reinterpret_cast<const float*>(tensors_.tensor(index).data());
}

const DenseTensor* TensorBinder::find_scales(const std::string& name) {
  constexpr std::string_view kSuffix = ".weight";
  if (!name.ends_with(kSuffix)) return nullptr;
  const std::string base = name.substr(0, name.size() - kSuffix.size());
  if (const DenseTensor* unused = pack_.find_dense(base + ".input_scale")) {
    bound_[static_cast<size_t>(unused - pack_.manifest().dense.data())] = true;
  }
  const DenseTensor* tensor = pack_.find_dense(base + ".scale");
  if (tensor == nullptr) return nullptr;
  const std::string what = pack_.directory().filename().string() + ": tensor " + tensor->name;
  if (tensor->dtype != DType::kF32) {
    fail(ErrorKind::kUnsupported, "{}: scales of type {}; expected F32", what, dtype_name(tensor->dtype));
  }
  find(tensor->name, {tensor->shape});
  const float* const scales = scales_of(*tensor);
  for (uint64_t i = 0; i < tensor->shape.elements(); ++i) {
    if (std::isfinite(scales[i])) continue;
    fail(ErrorKind::kCorrupt, "{}: scale {} is {}; the file is damaged", what, i, scales[i]);
  }
  return tensor;
}

void TensorBinder::bind_scales(const std::string& name, kernels::MatrixView& matrix) {
  const DenseTensor* const tensor = find_scales(name);
  if (tensor == nullptr) return;
  const Shape& shape = tensor->shape;
  if (shape.ne[2] * shape.ne[3] == 1 && set_scales(matrix, scales_of(*tensor), shape.ne[1], shape.ne[0])) return;
  fail(ErrorKind::kCorrupt, "{}: tensor {} has the shape {}; {} {{{}, {}}} of type {} takes one scale{}",
       pack_.directory().filename().string(), tensor->name, shape.text(), name, matrix.cols, matrix.rows,
       dtype_name(matrix.dtype),
       traits(matrix.dtype).quantised ? "" : ", {1, rows} of them or one for each 128 x 128 weights");
}

const float* TensorBinder::expert_scales(const std::string& stack, uint64_t experts) {
  const DenseTensor* const tensor = find_scales(stack);
  if (tensor == nullptr) return nullptr;
  find(tensor->name, {Shape{{experts, 1, 1, 1}, 1}});
  return scales_of(*tensor);
}

const float* TensorBinder::floats(const std::string& name, std::initializer_list<Shape> shapes) {
  const size_t index = find(name, shapes);
  const DenseTensor& tensor = pack_.manifest().dense[index];
  const Bytes bytes = tensors_.tensor(index);
  if (tensor.dtype == DType::kF32) return reinterpret_cast<const float*>(bytes.data());
  const uint64_t n = tensor.shape.elements();
  decoded_.push_back(std::make_unique_for_overwrite<float[]>(n));
  float* const out = decoded_.back().get();
  const uint64_t cols = tensor.shape.ne[0];
  const uint64_t rows = tensor.shape.ne[1];
  if (!has_row_groups(tensor.dtype, rows)) {
    dequantize_row(tensor.dtype, bytes.data(), out, n);
    return out;
  }
  std::vector<std::byte> row(row_bytes(tensor.dtype, cols));
  for (uint64_t r = 0; r < n / cols; ++r) {
    load_grouped_row(tensor.dtype, bytes.data() + r / rows * rows * row.size(), rows, cols, r % rows, row.data());
    dequantize_row(tensor.dtype, row.data(), out + r * cols, cols);
  }
  return out;
}

void TensorBinder::require_all_bound() const {
  std::string names;
  size_t count = 0;
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (bound_[i]) continue;
    if (++count <= 3) names += (count > 1 ? ", " : "") + pack_.manifest().dense[i].name;
  }
  if (count == 0) return;
  fail(ErrorKind::kUnsupported, "{}: the forward pass of {} does not use {} tensor{} of this pack: {}{}; running it would "
       "give wrong answers", pack_.directory().filename().string(), architecture_name(pack_.config().architecture), count,
       count == 1 ? "" : "s", names, count > 3 ? ", ..." : "");
}

}  // namespace tierpack::model

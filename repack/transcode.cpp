#include "repack/transcode.h"

#include "base/error.h"
#include "formats/dequant.h"
#include "formats/expert_stacks.h"
#include "formats/quantize.h"

namespace tierpack::repack {

namespace {

// Kernels of convolutions have a few columns only.
constexpr uint64_t kColumnsMin = 32;

bool is_matrix(const TensorInfo& tensor) {
  return tensor.shape.ne[0] >= kColumnsMin && tensor.shape.ne[1] > 1 && tensor.name.ends_with(".weight");
}

}  // namespace

TranscodeRule parse_transcode_rule(const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0) fail(ErrorKind::kUsage, "--transcode {}: expected REGEX=TYPE, such as 'ffn_.*_exps=Q4_K'", text);
  const std::optional<DType> type = dtype_from_name(text.substr(at + 1));
  if (!type || !is_quantize_target(*type)) {
    fail(ErrorKind::kUsage, "--transcode {}: '{}' is no type to write; choose Q8_0, Q6_K, Q5_K, Q4_K, IQ4_NL, NVFP4, F16, BF16 or F32", text, text.substr(at + 1));
  }
  return {Regex(text.substr(0, at)), *type};
}

std::map<std::string, DType> transcoded_types(const std::vector<TranscodeRule>& rules, const std::vector<TensorInfo>& tensors, const std::string& source) {
  std::map<std::string, DType> out;
  std::vector<bool> used(rules.size());
  for (const TensorInfo& tensor : tensors) {
    if (!is_matrix(tensor)) continue;
    for (size_t i = 0; i < rules.size(); ++i) {
      if (!rules[i].names.found_in(tensor.name)) continue;
      used[i] = true;
      if (rules[i].to == tensor.dtype) break;
      const uint32_t block = traits(rules[i].to).block_elements;
      if (tensor.shape.ne[0] % block != 0) {
        fail(ErrorKind::kUnsupported, "{}: rows of {} ({} values) are no whole blocks of {}; name another type for it in an earlier --transcode", source,
             tensor.name, tensor.shape.ne[0], dtype_name(rules[i].to));
      }
      if (classify(tensor) == TensorClass::kRows) {
        fail(ErrorKind::kUnsupported, "{}: {} is a lookup table, which cannot be transcoded", source, tensor.name);
      }
      if (tensor.dtype == DType::kF8_E4M3 || tensor.dtype == DType::kNVFP4) {
        fail(ErrorKind::kUnsupported, "{}: {} is {}, which cannot be transcoded yet; start from a BF16 or GGUF source", source, tensor.name, dtype_name(tensor.dtype));
      }
      out.emplace(tensor.name, rules[i].to);
      break;
    }
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    if (!used[i]) fail(ErrorKind::kUsage, "--transcode {}: no matrix of {} has such a name", rules[i].names.pattern(), source);
  }
  return out;
}

CodingError Transcoder::encode(const Rows& rows, Bytes source, std::span<float> values, MutableBytes out) const {
  const uint64_t from_stride = row_bytes(rows.from, rows.columns);
  const uint64_t to_stride = row_bytes(rows.to, rows.columns);
  TIERPACK_CHECK(values.size() >= rows.rows * rows.columns && source.size() == rows.rows * from_stride && out.size() == rows.rows * to_stride);
  values = values.first(rows.rows * rows.columns);
  for (uint64_t r = 0; r < rows.rows; ++r) dequantize_row(rows.from, source.data() + r * from_stride, values.data() + r * rows.columns, rows.columns);
  if (rows.scale != 1) {
    for (float& value : values) value /= rows.scale;
  }
  std::vector<float> importance;
  if (imatrix_) importance = imatrix_->importance(rows.tensor, rows.columns, rows.matrices, rows.matrix);
  quantize_rows(rows.to, rows.rows, rows.columns, values, importance, out);
  CodingError sum;
  std::vector<float> coded(rows.columns);
  for (uint64_t r = 0; r < rows.rows; ++r) {
    dequantize_row(rows.to, out.data() + r * to_stride, coded.data(), rows.columns);
    for (uint64_t c = 0; c < rows.columns; ++c) {
      const double value = values[r * rows.columns + c];
      const double difference = value - coded[c];
      sum.error += difference * difference;
      sum.square += value * value;
    }
  }
  const double scale = rows.scale;
  return {sum.error * scale * scale, sum.square * scale * scale};
}

}  // namespace tierpack::repack

#include "formats/quant_decode.h"

#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "formats/dequant.h"
#include "formats/small_floats.h"

namespace tierpack {

namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

template <typename T>
void convert(const std::byte* from, float* to, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) to[i] = static_cast<float>(load<T>(from + i * sizeof(T)));
}

void look_up(const std::array<float, 256>& values, const std::byte* from, float* to, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) to[i] = values[static_cast<uint8_t>(from[i])];
}

// Scales as f32. U8 holds E8M0, as MXFP4 and MXFP8 checkpoints store it.
void decode_scales(HfType type, const std::byte* from, float* to, uint64_t count) {
  if (type == HfType::kU8) {
    look_up(kE8m0Values, from, to, count);
  } else {
    decode_plain(type, from, to, count);
  }
}

std::vector<float> read_numbers(const SafetensorsSource& source, const SafetensorsTensor& tensor, uint64_t first,
                                uint64_t count) {
  const uint64_t width = hf_traits(tensor.dtype).bits / 8;
  std::vector<std::byte> raw(count * width);
  source.read(tensor, first * width, raw);
  std::vector<float> numbers(count);
  decode_scales(tensor.dtype, raw.data(), numbers.data(), count);
  return numbers;
}

// Where the scales of a row lie in the scale tensor: a grid of `down` x `across` for each matrix.
struct ScaleGrid {
  explicit ScaleGrid(const QuantWeight& weight)
      : matrix_rows(weight.matrix_rows()),
        block_rows(weight.block_rows),
        down(weight.whole_stack ? 1 : ceil_div(weight.matrix_rows(), weight.block_rows)),
        across(weight.whole_stack ? 1 : ceil_div(weight.columns(), weight.block_columns)),
        shared(weight.whole_stack) {}
  uint64_t line(uint64_t row) const { return shared ? 0 : row / matrix_rows * down + row % matrix_rows / block_rows; }
  uint64_t matrix_rows, block_rows, down, across;
  bool shared;
};

// One row of codes and its line of scales.
void decode_row(const QuantWeight& weight, const std::byte* codes, const float* scales, float* out) {
  const uint64_t columns = weight.columns(), block = weight.block_columns;
  const bool packed = weight.scheme == QuantScheme::kNvfp4 || weight.scheme == QuantScheme::kMxfp4;
  const auto& values = weight.data->dtype == HfType::kF8E5M2 ? kE5m2Values : kE4m3Values;
  for (uint64_t begin = 0; begin < columns; begin += block) {
    const uint64_t end = std::min(columns, begin + block);
    const float scale = *scales++;
    if (packed) {  // blocks of an even number of columns
      for (uint64_t i = begin; i < end; i += 2) {
        const auto byte = static_cast<uint8_t>(codes[i / 2]);
        out[i] = kE2m1Values[byte & 15] * scale;
        out[i + 1] = kE2m1Values[byte >> 4] * scale;
      }
    } else {
      for (uint64_t i = begin; i < end; ++i) out[i] = values[static_cast<uint8_t>(codes[i])] * scale;
    }
  }
}

void apply_second_scale(float* row, uint64_t columns, float scale, bool divide) {
  if (divide) {
    for (uint64_t i = 0; i < columns; ++i) row[i] /= scale;
  } else {
    for (uint64_t i = 0; i < columns; ++i) row[i] *= scale;
  }
}

}  // namespace

bool is_decodable(HfType type) {
  switch (type) {
    case HfType::kC64:
    case HfType::kF4:
    case HfType::kF6E2M3:
    case HfType::kF6E3M2:
    case HfType::kF8E4M3Fnuz:
    case HfType::kF8E5M2Fnuz: return false;
    default: return true;
  }
}

void decode_plain(HfType type, const std::byte* from, float* to, uint64_t count) {
  if (count == 0) return;
  switch (type) {
    case HfType::kF32: std::memcpy(to, from, count * sizeof(float)); return;
    case HfType::kBF16:
      for (uint64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(uint32_t{load<uint16_t>(from + 2 * i)} << 16);
      return;
    case HfType::kF16:
      for (uint64_t i = 0; i < count; ++i) to[i] = f16_to_f32(load<uint16_t>(from + 2 * i));
      return;
    case HfType::kF8E4M3: return look_up(kE4m3Values, from, to, count);
    case HfType::kF8E5M2: return look_up(kE5m2Values, from, to, count);
    case HfType::kF8E8M0: return look_up(kE8m0Values, from, to, count);
    case HfType::kF64: return convert<double>(from, to, count);
    case HfType::kBool:
    case HfType::kU8: return convert<uint8_t>(from, to, count);
    case HfType::kI8: return convert<int8_t>(from, to, count);
    case HfType::kU16: return convert<uint16_t>(from, to, count);
    case HfType::kI16: return convert<int16_t>(from, to, count);
    case HfType::kU32: return convert<uint32_t>(from, to, count);
    case HfType::kI32: return convert<int32_t>(from, to, count);
    case HfType::kU64: return convert<uint64_t>(from, to, count);
    case HfType::kI64: return convert<int64_t>(from, to, count);
    default: fail(ErrorKind::kUnsupported, "cannot decode numbers of type {}", hf_type_name(type));
  }
}

std::vector<float> second_scale_multipliers(const SafetensorsSource& source, const QuantWeight& weight) {
  TIERPACK_CHECK(weight.scheme == QuantScheme::kNvfp4);
  std::vector<float> scales = read_numbers(source, *weight.scale_2, 0, weight.scale_2->elements());
  if (weight.scale_2_divides) {
    for (float& scale : scales) scale = 1.0f / scale;
  }
  return scales;
}

void decode_rows(const SafetensorsSource& source, const QuantWeight& weight, uint64_t first_row, uint64_t row_count,
                 std::span<float> out, GlobalScale global) {
  const uint64_t columns = weight.columns();
  TIERPACK_CHECK(row_count == 0 || (first_row < weight.rows() && row_count <= weight.rows() - first_row));
  TIERPACK_CHECK(out.size() == row_count * columns);
  if (out.empty()) return;
  const SafetensorsTensor& data = *weight.data;
  if (!is_decodable(data.dtype)) {
    fail(ErrorKind::kUnsupported, "{}: cannot decode tensor '{}' of type {}", source.name(), data.name,
         hf_type_name(data.dtype));
  }
  const bool packed = weight.scheme == QuantScheme::kNvfp4 || weight.scheme == QuantScheme::kMxfp4;
  const uint64_t row_bytes = packed ? columns / 2 : columns * hf_traits(data.dtype).bits / 8;
  const uint64_t rows_at_once = std::max<uint64_t>(1, kPieceBytes / row_bytes);
  std::vector<std::byte> codes(std::min(rows_at_once, row_count) * row_bytes);
  const bool divide = weight.scale_2_divides && global == GlobalScale::kDivide;
  std::vector<float> second;
  if (weight.scale_2 != nullptr) {
    second = divide ? read_numbers(source, *weight.scale_2, 0, weight.scale_2->elements())
                    : second_scale_multipliers(source, weight);
  }

  for (uint64_t done = 0; done < row_count;) {
    const uint64_t first = first_row + done, count = std::min(rows_at_once, row_count - done);
    float* to = out.data() + done * columns;
    source.read(data, first * row_bytes, MutableBytes(codes).first(count * row_bytes));
    done += count;
    if (weight.scheme == QuantScheme::kPlain) {
      decode_plain(data.dtype, codes.data(), to, count * columns);
      continue;
    }
    const ScaleGrid grid(weight);
    const uint64_t first_line = grid.line(first);
    const std::vector<float> scales = read_numbers(source, *weight.scale, first_line * grid.across,
                                                   (grid.line(first + count - 1) - first_line + 1) * grid.across);
    for (uint64_t i = 0; i < count; ++i) {
      float* row = to + i * columns;
      decode_row(weight, codes.data() + i * row_bytes,
                 scales.data() + (grid.line(first + i) - first_line) * grid.across, row);
      if (!second.empty()) apply_second_scale(row, columns, second[(first + i) / weight.scale_2_rows], divide);
    }
  }
}

}  // namespace tierpack

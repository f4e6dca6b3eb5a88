// Writing of GGUF heads, from trusted values.
#include "base/error.h"
#include "formats/gguf.h"

namespace tierpack {
namespace {

class HeadWriter {
 public:
  template <typename T>
  void put(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof value);
  }

  void put_string(std::string_view text) {
    put(uint64_t{text.size()});
    const Bytes bytes = as_bytes(text);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }

  // One value of the given type, without the type itself.
  void put_scalar(ValueType type, const MetaValue::Scalar& value) {
    const auto integer = [&]() -> uint64_t {
      if (const auto* u = std::get_if<uint64_t>(&value)) return *u;
      return static_cast<uint64_t>(std::get<int64_t>(value));
    };
    switch (type) {
      case ValueType::kU8:
      case ValueType::kI8: return put(static_cast<uint8_t>(integer()));
      case ValueType::kU16:
      case ValueType::kI16: return put(static_cast<uint16_t>(integer()));
      case ValueType::kU32:
      case ValueType::kI32: return put(static_cast<uint32_t>(integer()));
      case ValueType::kU64:
      case ValueType::kI64: return put(integer());
      case ValueType::kF32: return put(static_cast<float>(std::get<double>(value)));
      case ValueType::kF64: return put(std::get<double>(value));
      case ValueType::kBool: return put(static_cast<uint8_t>(std::get<bool>(value)));
      case ValueType::kString: return put_string(std::get<std::string>(value));
      case ValueType::kArray: break;
    }
    TIERPACK_CHECK(!"a scalar of array type");
  }

  void put_value(const MetaValue& value) {
    put(static_cast<int32_t>(value.type));
    if (!value.is_array()) return put_scalar(value.type, std::get<MetaValue::Scalar>(value.value));
    put(static_cast<int32_t>(value.element_type));
    put(value.array_size());
    std::visit(
        [&](const auto& elements) {
          using T = typename std::decay_t<decltype(elements)>::value_type;
          for (const auto& element : elements)
            put_scalar(value.element_type, MetaValue::Scalar(static_cast<T>(element)));
        },
        std::get<MetaValue::Array>(value.value));
  }

  std::vector<std::byte> out;
};

}  // namespace

std::vector<std::byte> encode_gguf_header(const Metadata& metadata, const std::vector<TensorInfo>& tensors,
                                          uint64_t alignment) {
  TIERPACK_CHECK(metadata.u64_or("general.alignment", 32) == alignment);
  HeadWriter writer;
  for (const char c : {'G', 'G', 'U', 'F'}) writer.put(c);
  writer.put(uint32_t{3});
  writer.put(uint64_t{tensors.size()});
  writer.put(uint64_t{metadata.entries().size()});
  for (const auto& [key, value] : metadata.entries()) {
    writer.put_string(key);
    writer.put_value(value);
  }
  for (const TensorInfo& tensor : tensors) {
    writer.put_string(tensor.name);
    writer.put(tensor.shape.dims);
    for (uint32_t d = 0; d < tensor.shape.dims; ++d) writer.put(tensor.shape.ne[d]);
    const auto type = static_cast<int32_t>(tensor.dtype);
    TIERPACK_CHECK(dtype_from_ggml(type));  // a type of GGUF
    writer.put(type);
    writer.put(tensor.offset);
  }
  writer.out.resize(align_up(writer.out.size(), alignment));
  return std::move(writer.out);
}

}  // namespace tierpack

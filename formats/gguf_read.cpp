// Reading of GGUF heads. The bytes are untrusted: every length is compared with what remains and with GgufLimits before
// memory is taken for it, and arithmetic on sizes is checked.
#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "formats/gguf.h"

namespace tierpack {
namespace {

// A forward cursor that reads a ByteSource in pieces which grow from 64 KiB to 4 MiB: a small head costs one small
// read, a large one few requests.
class HeadCursor {
 public:
  // `readable` bytes of the source may be used.
  HeadCursor(const ByteSource& source, uint64_t readable) : source_(source), end_(readable) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return end_ - position_; }

  template <typename T>
  T read(const char* what) {
    T value;
    read_into({reinterpret_cast<std::byte*>(&value), sizeof value}, what);
    return value;
  }

  void read_into(MutableBytes out, const char* what) {
    need(out.size(), what);
    while (!out.empty()) {
      if (at_ == buffer_.size()) refill();
      const uint64_t n = std::min<uint64_t>(out.size(), buffer_.size() - at_);
      std::memcpy(out.data(), buffer_.data() + at_, n);
      at_ += n;
      position_ += n;
      out = out.subspan(n);
    }
  }

  std::string read_string(uint64_t limit, const char* what) {
    const auto length = read<uint64_t>(what);
    if (length > limit) fail_here(fmt::format("{} is {} bytes long, more than the limit of {}", what, length, limit));
    need(length, what);
    std::string text(length, '\0');
    read_into({reinterpret_cast<std::byte*>(text.data()), text.size()}, what);
    return text;
  }

  void need(uint64_t n, const char* what) const {
    if (n > remaining()) {
      fail_here(
          fmt::format("{} needs {} bytes but only {} remain; the file is cut off or damaged", what, n, remaining()));
    }
  }

  [[noreturn]] void fail_here(const std::string& message, ErrorKind kind = ErrorKind::kCorrupt) const {
    fail(kind, "{}: {} (in the GGUF header, near byte {})", source_.name(), message, position_);
  }

 private:
  void refill() {
    const uint64_t n = std::min(piece_, end_ - position_);
    buffer_.resize(n);
    source_.read_at(position_, buffer_);
    at_ = 0;
    piece_ = std::min(piece_ * 2, kLargestPiece);
  }

  static constexpr uint64_t kLargestPiece = uint64_t{4} << 20;
  const ByteSource& source_;
  uint64_t end_;
  uint64_t position_ = 0;
  uint64_t piece_ = uint64_t{64} << 10;
  std::vector<std::byte> buffer_;
  uint64_t at_ = 0;
};

// Keys and tensor names are printed, compared and used in patterns: valid UTF-8 without control characters.
bool is_plain_text(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) return false;
    const size_t length = byte < 0x80                   ? 1
                          : byte >= 0xc2 && byte < 0xe0 ? 2
                          : byte >= 0xe0 && byte < 0xf0 ? 3
                          : byte >= 0xf0 && byte < 0xf5 ? 4
                                                        : 0;
    if (length == 0 || i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

uint64_t value_bytes(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool: return 1;
    case ValueType::kU16:
    case ValueType::kI16: return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32: return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
    case ValueType::kString: return 8;  // a string's length field
    case ValueType::kArray: break;
  }
  return 0;
}

ValueType read_value_type(HeadCursor& in, const char* what) {
  const auto id = in.read<int32_t>(what);
  if (id < 0 || id > static_cast<int32_t>(ValueType::kF64)) {
    in.fail_here(fmt::format("{} is {}, which is no GGUF value type", what, id));
  }
  return static_cast<ValueType>(id);
}

MetaValue::Scalar read_scalar(HeadCursor& in, ValueType type, const char* what) {
  switch (type) {
    case ValueType::kU8: return uint64_t{in.read<uint8_t>(what)};
    case ValueType::kU16: return uint64_t{in.read<uint16_t>(what)};
    case ValueType::kU32: return uint64_t{in.read<uint32_t>(what)};
    case ValueType::kU64: return in.read<uint64_t>(what);
    case ValueType::kI8: return int64_t{in.read<int8_t>(what)};
    case ValueType::kI16: return int64_t{in.read<int16_t>(what)};
    case ValueType::kI32: return int64_t{in.read<int32_t>(what)};
    case ValueType::kI64: return in.read<int64_t>(what);
    case ValueType::kF32: return double{in.read<float>(what)};
    case ValueType::kF64: return in.read<double>(what);
    case ValueType::kBool: return in.read<uint8_t>(what) != 0;
    case ValueType::kString: return in.read_string(GgufLimits::kStringBytes, what);
    case ValueType::kArray: break;
  }
  in.fail_here("a value of an unexpected type");
}

template <typename T>
std::vector<T> read_elements(HeadCursor& in, ValueType type, uint64_t count) {
  std::vector<T> out;
  out.reserve(count);
  for (uint64_t i = 0; i < count; ++i) out.push_back(std::get<T>(read_scalar(in, type, "an array element")));
  return out;
}

MetaValue read_array(HeadCursor& in, const std::string& key, uint64_t& elements_left) {
  const ValueType type = read_value_type(in, "an array's element type");
  const auto count = in.read<uint64_t>("an array's length");
  if (type == ValueType::kArray) {
    in.fail_here(fmt::format("'{}' is an array of arrays, which is not supported", key), ErrorKind::kUnsupported);
  }
  if (count > in.remaining() / value_bytes(type)) {
    in.fail_here(fmt::format("'{}' claims {} array elements but only {} bytes remain", key, count, in.remaining()));
  }
  if (count > elements_left) {
    in.fail_here(
        fmt::format("'{}' has {} array elements; a header may hold {} in all", key, count, GgufLimits::kArrayElements));
  }
  elements_left -= count;
  switch (type) {
    case ValueType::kU8:
    case ValueType::kU16:
    case ValueType::kU32:
    case ValueType::kU64: return MetaValue::array(type, read_elements<uint64_t>(in, type, count));
    case ValueType::kI8:
    case ValueType::kI16:
    case ValueType::kI32:
    case ValueType::kI64: return MetaValue::array(type, read_elements<int64_t>(in, type, count));
    case ValueType::kF32:
    case ValueType::kF64: return MetaValue::array(type, read_elements<double>(in, type, count));
    case ValueType::kBool: return MetaValue::array(type, read_elements<bool>(in, type, count));
    default: return MetaValue::array(type, read_elements<std::string>(in, type, count));
  }
}

void read_metadata(HeadCursor& in, uint64_t count, Metadata& out) {
  uint64_t elements_left = GgufLimits::kArrayElements;
  for (uint64_t i = 0; i < count; ++i) {
    std::string key = in.read_string(GgufLimits::kKeyBytes, "a metadata key");
    if (key.empty()) in.fail_here(fmt::format("metadata key {} is empty", i));
    if (!is_plain_text(key)) in.fail_here(fmt::format("metadata key {} is not plain text", i));
    const ValueType type = read_value_type(in, "a metadata value type");
    MetaValue value = type == ValueType::kArray ? read_array(in, key, elements_left)
                                                : MetaValue::scalar(type, read_scalar(in, type, "a metadata value"));
    out.add(std::move(key), std::move(value));
  }
}

// Name, type, shape and size of one tensor; `offset` is still relative to the data section.
TensorInfo read_tensor_info(HeadCursor& in, uint64_t index) {
  TensorInfo tensor;
  tensor.name = in.read_string(GgufLimits::kNameBytes, "a tensor name");
  if (tensor.name.empty()) in.fail_here(fmt::format("the name of tensor {} is empty", index));
  if (!is_plain_text(tensor.name)) in.fail_here(fmt::format("the name of tensor {} is not plain text", index));
  const auto complain = [&](const std::string& message, ErrorKind kind = ErrorKind::kCorrupt) {
    in.fail_here(fmt::format("tensor '{}': {}", tensor.name, message), kind);
  };

  const auto dims = in.read<uint32_t>("a tensor's number of dimensions");
  if (dims > tensor.shape.ne.size()) complain(fmt::format("{} dimensions; at most 4 are possible", dims));
  tensor.shape.dims = dims;
  uint64_t elements = 1;
  for (uint32_t d = 0; d < dims; ++d) {
    const auto n = in.read<uint64_t>("a tensor dimension");
    const auto product = checked_mul(elements, n);
    if (n == 0) complain(fmt::format("dimension {} is 0", d));
    if (!product || *product > uint64_t{std::numeric_limits<int64_t>::max()}) {
      complain("the product of the dimensions overflows");
    }
    elements = *product;
    tensor.shape.ne[d] = n;
  }

  const auto id = in.read<int32_t>("a tensor type");
  const auto dtype = dtype_from_ggml(id);
  if (!dtype) complain(ggml_type_problem(id), ErrorKind::kUnsupported);
  tensor.dtype = *dtype;
  const DTypeTraits& t = traits(tensor.dtype);
  if (tensor.shape.ne[0] % t.block_elements != 0) {
    complain(fmt::format("rows of {} elements are not whole blocks of {} ({})", tensor.shape.ne[0], t.block_elements,
                         t.name));
  }
  const auto bytes = checked_mul(elements / t.block_elements, t.block_bytes);
  if (!bytes) complain("the size in bytes overflows");
  tensor.bytes = *bytes;
  tensor.offset = in.read<uint64_t>("a tensor offset");
  return tensor;
}

uint64_t read_alignment(const HeadCursor& in, const Metadata& metadata) {
  const MetaValue* value = metadata.find("general.alignment");
  if (!value) return 32;
  if (value->type != ValueType::kU32) in.fail_here("general.alignment must be a u32");
  const uint64_t alignment = metadata.u64("general.alignment");
  if (alignment < 8 || alignment > GgufLimits::kAlignmentMax || (alignment & (alignment - 1)) != 0) {
    in.fail_here(fmt::format("general.alignment is {}; it must be a power of two from 8 to {}", alignment,
                             GgufLimits::kAlignmentMax));
  }
  return alignment;
}

// Makes offsets absolute and proves that the tensors' ranges lie in the file and apart from each other.
void place_tensors(GgufHeader& header, const std::string& source) {
  for (TensorInfo& tensor : header.tensors) {
    if (tensor.offset % header.alignment != 0) {
      fail(ErrorKind::kCorrupt, "{}: tensor '{}' begins at offset {}, not a multiple of the alignment {}", source,
           tensor.name, tensor.offset, header.alignment);
    }
    const auto begin = checked_add(header.data_offset, tensor.offset);
    const auto end = begin ? checked_add(*begin, tensor.bytes) : std::nullopt;
    if (!end || *end > header.file_bytes) {
      fail(ErrorKind::kCorrupt,
           "{}: tensor '{}' needs {} bytes at offset {} of the data, which ends {} bytes into it; the file is cut off "
           "or "
           "damaged, fetch it again",
           source, tensor.name, tensor.bytes, tensor.offset, header.file_bytes - header.data_offset);
    }
    tensor.offset = *begin;
  }

  std::vector<const TensorInfo*> by_offset;
  by_offset.reserve(header.tensors.size());
  for (const TensorInfo& tensor : header.tensors) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const TensorInfo& before = *by_offset[i - 1];
    if (before.offset + before.bytes > by_offset[i]->offset) {
      fail(ErrorKind::kCorrupt, "{}: the data of tensors '{}' and '{}' overlap", source, before.name,
           by_offset[i]->name);
    }
  }
}

// What a file that is not GGUF seems to be, for the error message.
std::string guess_content(std::string_view magic) {
  if (magic == "vers") return "; it looks like a Git LFS pointer, the file itself must still be fetched";
  if (magic[0] == '<') return "; it looks like a web page, perhaps an error message saved under this name";
  if (magic == "FUGG") return "; it looks like GGUF with reversed byte order, which is not supported";
  if (magic == "lmgg" || magic == "tjgg" || magic == "fmgg" || magic == "algg") {
    return "; it is one of ggml's formats before GGUF, which must be converted";
  }
  if (magic == std::string_view("\0\0\0\0", 4)) return "; it begins with zeros, perhaps an unfinished download";
  return "";
}

void read_version(HeadCursor& in, GgufHeader& header) {
  std::string magic(4, '\0');
  in.read_into({reinterpret_cast<std::byte*>(magic.data()), magic.size()}, "the magic number");
  if (magic != "GGUF") in.fail_here("the file does not begin with 'GGUF'" + guess_content(magic));
  header.version = in.read<uint32_t>("the version");
  if (header.version == 2 || header.version == 3) return;
  if (header.version == 0) in.fail_here("version 0 does not exist");
  if ((header.version & 0xffff) == 0) {
    in.fail_here("this is a big-endian GGUF file; only little-endian ones are supported", ErrorKind::kUnsupported);
  }
  in.fail_here(fmt::format("GGUF version {} is not supported, only 2 and 3; convert the model again", header.version),
               ErrorKind::kUnsupported);
}

}  // namespace

GgufHeader read_gguf_header(const ByteSource& source) { return read_gguf_header(source, source.size()); }

GgufHeader read_gguf_header(const ByteSource& prefix, uint64_t promised_bytes) {
  const uint64_t readable = std::min({prefix.size(), promised_bytes, GgufLimits::kHeaderBytes});
  HeadCursor in(prefix, readable);
  GgufHeader header;
  header.metadata = Metadata(prefix.name());
  header.file_bytes = promised_bytes;
  read_version(in, header);

  // The smallest tensor info is a name of one byte without dimensions; the smallest pair a key of one byte and a bool.
  constexpr uint64_t kTensorInfoMin = 8 + 1 + 4 + 4 + 8;
  constexpr uint64_t kPairMin = 8 + 1 + 4 + 1;
  const auto tensor_count = in.read<uint64_t>("the number of tensors");
  const auto key_count = in.read<uint64_t>("the number of metadata keys");
  if (tensor_count > in.remaining() / kTensorInfoMin || tensor_count > GgufLimits::kTensors) {
    in.fail_here(
        fmt::format("the header claims {} tensors, which cannot be in {} bytes", tensor_count, in.remaining()));
  }
  if (key_count > in.remaining() / kPairMin || key_count > GgufLimits::kKeys) {
    in.fail_here(
        fmt::format("the header claims {} metadata keys, which cannot be in {} bytes", key_count, in.remaining()));
  }

  read_metadata(in, key_count, header.metadata);
  header.alignment = read_alignment(in, header.metadata);

  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < tensor_count; ++i) {
    header.tensors.push_back(read_tensor_info(in, i));
    if (!names.insert(header.tensors.back().name).second) {
      in.fail_here(fmt::format("two tensors are named '{}'", header.tensors.back().name));
    }
  }

  // A file without tensors needs no padding.
  header.data_offset = align_up(in.position(), header.alignment);
  if (header.data_offset > header.file_bytes) {
    if (tensor_count > 0) in.fail_here("the file ends before its tensor data begins");
    header.data_offset = header.file_bytes;
  }
  place_tensors(header, prefix.name());
  return header;
}

}  // namespace tierpack

#include "formats/safetensors.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "formats/json_cursor.h"

namespace tierpack {

namespace {

constexpr std::array kTypes = {
    HfTypeTraits{HfType::kBool, "BOOL", 8},
    HfTypeTraits{HfType::kF4, "F4", 4},
    HfTypeTraits{HfType::kF6E2M3, "F6_E2M3", 6},
    HfTypeTraits{HfType::kF6E3M2, "F6_E3M2", 6},
    HfTypeTraits{HfType::kU8, "U8", 8},
    HfTypeTraits{HfType::kI8, "I8", 8},
    HfTypeTraits{HfType::kF8E5M2, "F8_E5M2", 8},
    HfTypeTraits{HfType::kF8E4M3, "F8_E4M3", 8},
    HfTypeTraits{HfType::kF8E8M0, "F8_E8M0", 8},
    HfTypeTraits{HfType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    HfTypeTraits{HfType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    HfTypeTraits{HfType::kI16, "I16", 16},
    HfTypeTraits{HfType::kU16, "U16", 16},
    HfTypeTraits{HfType::kF16, "F16", 16},
    HfTypeTraits{HfType::kBF16, "BF16", 16},
    HfTypeTraits{HfType::kI32, "I32", 32},
    HfTypeTraits{HfType::kU32, "U32", 32},
    HfTypeTraits{HfType::kF32, "F32", 32},
    HfTypeTraits{HfType::kC64, "C64", 64},
    HfTypeTraits{HfType::kF64, "F64", 64},
    HfTypeTraits{HfType::kI64, "I64", 64},
    HfTypeTraits{HfType::kU64, "U64", 64},
};

constexpr bool in_enum_order() {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (static_cast<size_t>(kTypes[i].type) != i) return false;
  }
  return true;
}
static_assert(in_enum_order());

constexpr size_t kMaxMetadataEntries = 65'536;

}  // namespace

std::span<const HfTypeTraits> all_hf_types() { return kTypes; }

const HfTypeTraits& hf_traits(HfType type) { return kTypes[static_cast<size_t>(type)]; }

std::optional<HfType> hf_type_from_name(std::string_view name) {
  for (const HfTypeTraits& traits : kTypes) {
    if (name == traits.name) return traits.type;
  }
  return std::nullopt;
}

uint64_t SafetensorsTensor::elements() const {
  uint64_t product = 1;
  for (const uint64_t n : shape) product *= n;
  return product;
}

std::string hf_shape_text(std::span<const uint64_t> shape) {
  std::string text = "[";
  for (const uint64_t n : shape) text += fmt::format("{}{}", text.size() > 1 ? ", " : "", n);
  return text + "]";
}

const SafetensorsTensor* SafetensorsHeader::find(std::string_view name) const {
  const auto id = index.find(name, [&](uint32_t i) { return tensors[i].name; });
  return id ? &tensors[*id] : nullptr;
}

namespace {

// Walks the header once, then checks the tensors against each other and the file.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& source) : json_(text, source, 8), source_(source) {}

  SafetensorsHeader parse(uint64_t file_bytes) {
    header_.file_bytes = file_bytes;
    if (json_.peek() != '{') json_.fail_here("the header is not a JSON object");
    json_.object("the header", [&](std::string_view key) {
      if (key == "__metadata__") {
        parse_metadata();
      } else {
        parse_tensor(key);
      }
    });
    json_.end();
    return std::move(header_);
  }

  void check(SafetensorsHeader& header) const {
    check_names(header);
    check_layout(header);
  }

 private:
  void parse_metadata() {
    if (seen_metadata_) json_.fail_here("__metadata__ appears twice");
    seen_metadata_ = true;
    json_.object("__metadata__ as an object of strings", [&](std::string_view key) {
      if (header_.metadata.size() == kMaxMetadataEntries) {
        json_.fail_here(fmt::format("__metadata__ has more than {} entries", kMaxMetadataEntries));
      }
      std::string name(key);
      header_.metadata.emplace_back(std::move(name), json_.string("a string in __metadata__"));
    });
    std::vector<std::string_view> keys;
    for (const auto& [key, value] : header_.metadata) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end()) {
      json_.fail_here("a key appears twice in __metadata__");
    }
  }

  void parse_tensor(std::string_view key) {
    if (!is_tensor_name(key)) json_.fail_here("a tensor name that is too long or has control characters");
    if (header_.tensors.size() == kMaxSafetensorsTensors) {
      json_.fail_here(fmt::format("the header names more than {} tensors", kMaxSafetensorsTensors));
    }
    SafetensorsTensor tensor;
    tensor.name = header_.arena.keep(key);
    bool has_dtype = false, has_shape = false, has_offsets = false;
    const auto once = [&](bool& seen, const char* what) {
      if (seen) json_.fail_here(fmt::format("tensor '{}': {} appears twice", tensor.name, what));
      seen = true;
    };
    json_.object("a tensor's description as an object", [&](std::string_view field) {
      if (field == "dtype") {
        once(has_dtype, "dtype");
        tensor.dtype = parse_type(tensor.name);
      } else if (field == "shape") {
        once(has_shape, "shape");
        tensor.shape = parse_shape(tensor.name);
      } else if (field == "data_offsets") {
        once(has_offsets, "data_offsets");
        parse_offsets(tensor);
      } else {
        json_.skip_value();  // a later version's addition, as the reference skips it
      }
    });
    if (!has_dtype || !has_shape || !has_offsets) {
      json_.fail_here(fmt::format("tensor '{}' has no {}", tensor.name,
                                  !has_dtype   ? "dtype"
                                  : !has_shape ? "shape"
                                               : "data_offsets"));
    }
    check_size(tensor);
    header_.tensors.push_back(tensor);
  }

  HfType parse_type(std::string_view name) {
    const std::string_view text = json_.string("dtype as a string");
    if (const auto type = hf_type_from_name(text)) return *type;
    fail(ErrorKind::kUnsupported, "{}: tensor '{}' has dtype '{}', which this version does not know", source_, name,
         text.substr(0, 40));
  }

  std::span<const uint64_t> parse_shape(std::string_view name) {
    std::array<uint64_t, kMaxSafetensorsDims> dims{};
    size_t count = 0;
    json_.array("shape as an array", [&] {
      if (count == dims.size()) {
        json_.fail_here(fmt::format("tensor '{}' has more than {} dimensions", name, dims.size()));
      }
      dims[count++] = json_.u64("a dimension");
    });
    return header_.arena.keep(std::span<const uint64_t>(dims.data(), count));
  }

  void parse_offsets(SafetensorsTensor& tensor) {
    std::array<uint64_t, 2> ends{};
    size_t count = 0;
    json_.array("data_offsets as an array", [&] {
      if (count == 2) json_.fail_here(fmt::format("tensor '{}' has more than 2 data_offsets", tensor.name));
      ends[count++] = json_.u64("a data offset");
    });
    if (count != 2 || ends[1] < ends[0]) {
      json_.fail_here(fmt::format("tensor '{}': data_offsets are not [begin, end]", tensor.name));
    }
    tensor.offset = ends[0];
    tensor.bytes = ends[1] - ends[0];
  }

  static std::optional<uint64_t> data_bits(const SafetensorsTensor& tensor) {
    // A dimension of 0 makes the product 0 whatever the others are.
    if (std::find(tensor.shape.begin(), tensor.shape.end(), 0u) != tensor.shape.end()) return 0;
    uint64_t bits = hf_traits(tensor.dtype).bits;
    for (const uint64_t n : tensor.shape) {
      const auto product = checked_mul(bits, n);
      if (!product) return std::nullopt;
      bits = *product;
    }
    return bits;
  }

  void check_size(const SafetensorsTensor& tensor) const {
    const std::optional<uint64_t> bits = data_bits(tensor);
    if (!bits || *bits % 8 != 0) {
      json_.fail_here(fmt::format("tensor '{}': {} x {} is {}", tensor.name, hf_type_name(tensor.dtype),
                                  hf_shape_text(tensor.shape), bits ? "not a whole number of bytes" : "too large"));
    }
    if (*bits / 8 != tensor.bytes) {
      json_.fail_here(fmt::format("tensor '{}': {} x {} takes {} bytes, but its data_offsets span {}", tensor.name,
                                  hf_type_name(tensor.dtype), hf_shape_text(tensor.shape), *bits / 8, tensor.bytes));
    }
  }

  void check_names(SafetensorsHeader& header) const {
    std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
      if (a.offset != b.offset) return a.offset < b.offset;
      if (a.bytes != b.bytes) return a.bytes < b.bytes;  // empty tensors before the one that begins at the same byte
      return a.name < b.name;
    });
    const auto names = [&](uint32_t id) { return header.tensors[id].name; };
    header.index.build(header.tensors.size(), names);
    if (const auto twice = header.index.duplicate(names)) {
      fail(ErrorKind::kCorrupt, "{}: the header describes tensor '{}' twice", source_, names(*twice));
    }
  }

  // Also makes offsets absolute.
  void check_layout(SafetensorsHeader& header) const {
    uint64_t at = 0;
    const SafetensorsTensor* before = nullptr;
    for (SafetensorsTensor& tensor : header.tensors) {
      if (tensor.offset != at) {
        fail(ErrorKind::kCorrupt, "{}: tensor '{}' begins at data byte {}, but {} ends at {}: {}", source_, tensor.name,
             tensor.offset, before != nullptr ? fmt::format("'{}'", before->name) : "the header", at,
             tensor.offset > at ? "a gap" : "they overlap");
      }
      at += tensor.bytes;  // cannot overflow: both ends were u64
      tensor.offset += header.data_offset;
      before = &tensor;
    }
    const uint64_t data_bytes = header.file_bytes - header.data_offset;
    if (at != data_bytes) {
      fail(ErrorKind::kCorrupt, "{}: tensors take {} bytes after a header of {}, but the file has {}: {}", source_, at,
           header.data_offset, header.file_bytes,
           at > data_bytes ? "it is truncated or still being downloaded" : "it has bytes that belong to no tensor");
    }
  }

  JsonCursor json_;
  std::string source_;
  SafetensorsHeader header_;
  bool seen_metadata_ = false;
};

}  // namespace

std::optional<uint64_t> safetensors_header_bytes(Bytes first, uint64_t file_bytes, const std::string& source) {
  if (file_bytes < 8) {
    fail(ErrorKind::kCorrupt, "{}: {} bytes are too few for a safetensors file", source, file_bytes);
  }
  if (first.size() < 8) return std::nullopt;
  const auto length = load<uint64_t>(first.data());
  if (length > kMaxSafetensorsHeaderBytes) {
    fail(ErrorKind::kCorrupt, "{}: not a safetensors file: its first 8 bytes give a header of {} bytes, more than {}",
         source, length, kMaxSafetensorsHeaderBytes);
  }
  if (length > file_bytes - 8) {
    fail(ErrorKind::kCorrupt, "{}: the header takes {} bytes, but the file has {}: it is truncated", source, length + 8,
         file_bytes);
  }
  return length + 8;
}

SafetensorsHeader read_safetensors_header(const ByteSource& prefix, uint64_t promised_bytes) {
  std::array<std::byte, 8> first{};
  if (prefix.size() < 8 || promised_bytes < 8) {
    fail(ErrorKind::kCorrupt, "{}: {} bytes are too few for a safetensors file", prefix.name(),
         std::min(prefix.size(), promised_bytes));
  }
  prefix.read_at(0, first);
  const uint64_t head = *safetensors_header_bytes(first, promised_bytes, prefix.name());
  if (head > prefix.size()) {
    fail(ErrorKind::kCorrupt, "{}: the header takes {} bytes, but only {} are at hand", prefix.name(), head,
         prefix.size());
  }
  std::string text(head - 8, '\0');
  prefix.read_at(8, {reinterpret_cast<std::byte*>(text.data()), text.size()});
  HeaderParser parser(text, prefix.name());
  SafetensorsHeader header = parser.parse(promised_bytes);
  std::string().swap(text);  // the checks below need memory of their own, but not the text
  header.data_offset = head;
  parser.check(header);
  return header;
}

SafetensorsHeader read_safetensors_header(const ByteSource& source) {
  return read_safetensors_header(source, source.size());
}

}  // namespace tierpack

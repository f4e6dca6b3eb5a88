// GGUF heads from arbitrary bytes: the reader, the model configuration and the printers end in a value or an Error;
// what was read can be written and read again with the same content.
#include <cstdlib>

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/model_config.h"

namespace {

using namespace tierpack;

std::string describe(const GgufHeader& header) {
  std::string out;
  for (const auto& [key, value] : header.metadata.entries()) out += key + "=" + value.text(500) + "\n";
  for (const TensorInfo& tensor : header.tensors) {
    out += fmt::format("{} {} {} {}\n", tensor.name, dtype_name(tensor.dtype), tensor.shape.text(),
                       tensor.offset - header.data_offset);
  }
  return out;
}

void check(Bytes bytes, uint64_t promised_bytes) {
  GgufHeader header;
  try {
    header = read_gguf_header(MemorySource(bytes, "fuzz"), promised_bytes);
  } catch (const Error&) {
    return;
  }
  for (const TensorInfo& tensor : header.tensors) {
    if (tensor.offset + tensor.bytes > promised_bytes || tensor.offset < header.data_offset) std::abort();
  }
  std::vector<TensorInfo> relative = header.tensors;
  for (TensorInfo& tensor : relative) tensor.offset -= header.data_offset;
  const std::vector<std::byte> again = encode_gguf_header(header.metadata, relative, header.alignment);
  // An encoded head is padded even when there are no tensors and may be longer than one of version 2.
  const uint64_t room = promised_bytes + again.size();
  if (describe(read_gguf_header(MemorySource(again, "again"), room)) != describe(header)) std::abort();
  try {
    read_model_config(header.metadata);
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes bytes{reinterpret_cast<const std::byte*>(data), size};
  check(bytes, size);
  check(bytes, uint64_t{1} << 50);
  return 0;
}

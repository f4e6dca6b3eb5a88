// Everything that is read from a safetensors checkpoint before its numbers are trusted. The first byte says what the
// rest is: a whole file, a header (given as many data bytes as it speaks of), an index, or a configuration.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "formats/float_scan.h"
#include "formats/quant_decode.h"
#include "formats/quant_scheme.h"
#include "formats/safetensors.h"

namespace {

using namespace tierpack;

constexpr uint64_t kMaxData = 1 << 16;

// Owns its bytes.
class OwnedSource final : public ByteSource {
 public:
  explicit OwnedSource(std::string bytes) : bytes_(std::move(bytes)), view_(as_bytes(bytes_), "fuzz") {}
  uint64_t size() const override { return view_.size(); }
  void read_at(uint64_t offset, MutableBytes out) const override { view_.read_at(offset, out); }
  const std::string& name() const override { return view_.name(); }

 private:
  std::string bytes_;
  MemorySource view_;
};

std::string file_of(std::string_view header, uint64_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), 8);
  file += header;
  for (uint64_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i * 37 + i / 256);
  return file;
}

// The largest number in the text that could be a data size.
uint64_t largest_number(std::string_view text) {
  uint64_t largest = 0, number = 0;
  for (const char c : text) {
    number = c >= '0' && c <= '9' && number < kMaxData ? number * 10 + static_cast<uint64_t>(c - '0') : 0;
    if (number < kMaxData) largest = std::max(largest, number);
  }
  return largest;
}

void use(const SafetensorsSource& source) {
  std::vector<std::byte> buffer(256);
  for (const SafetensorsTensor& tensor : source.tensors()) scan_tensor(source, tensor, buffer);
  const QuantCatalog catalog = recognise_weights(source, {});
  for (const QuantWeight& weight : catalog.weights) {
    const uint64_t columns = weight.columns(), rows = weight.rows();
    if (weight.data->bytes == 0 || !is_decodable(weight.data->dtype)) continue;
    std::vector<float> out(rows * columns);  // at most two values a byte
    decode_rows(source, weight, 0, rows, out);
    decode_rows(source, weight, rows / 2, rows - rows / 2, std::span(out).first((rows - rows / 2) * columns),
                GlobalScale::kMultiplyByReciprocal);
  }
}

void run(uint8_t kind, std::string_view text) {
  switch (kind % 4) {
    case 0: use(SafetensorsSource::open_single(std::make_unique<OwnedSource>(std::string(text)), "fuzz")); return;
    case 1: {
      const std::string file = file_of(text, largest_number(text));
      use(SafetensorsSource::open_single(std::make_unique<OwnedSource>(file), "fuzz"));
      return;
    }
    case 2:
      use(SafetensorsSource::open_index(text, "fuzz", [](const std::string& name) {
        return std::make_unique<OwnedSource>(
            file_of(R"({"a":{"dtype":"U8","shape":[1,16],"data_offsets":[0,16]},)"
                    R"("a_scale":{"dtype":"U8","shape":[1,1],"data_offsets":[16,17]},")" +
                        name + R"(":{"dtype":"F32","shape":[],"data_offsets":[17,21]}})",
                    21));
      }));
      return;
    default: parse_quant_config(text, text, "fuzz"); return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    run(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kInternal) throw;  // a promise of our own was broken
  }
  return 0;
}

#include "verify/content_scan.h"

#include <algorithm>
#include <cstring>

#include "base/interrupt.h"

namespace tierpack::verify {

namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kZeroBlock = 4096;  // runs are found at this granularity

bool all_zero(Bytes data) { return data.front() == std::byte{0} && std::memcmp(data.data(), data.data() + 1, data.size() - 1) == 0; }

// The longest run of zeros among bytes that are fed in order.
class ZeroRun {
 public:
  explicit ZeroRun(uint64_t offset) : at_(offset) {}
  void feed(Bytes data) {
    while (!data.empty()) {
      const Bytes block = data.first(std::min(kZeroBlock, data.size()));
      if (!all_zero(block)) {
        length_ = 0;
      } else {
        length_ += block.size();
        if (length_ > longest_) {
          longest_ = length_;
          longest_end_ = at_ + block.size();
        }
      }
      at_ += block.size();
      data = data.subspan(block.size());
    }
  }
  void tell(TensorOddity& oddity) const {
    if (longest_ < kZeroRunBytes) return;
    oddity.zero_run_bytes = longest_;
    oddity.zero_run_at = longest_end_ - longest_;
  }

 private:
  uint64_t at_;
  uint64_t length_ = 0;
  uint64_t longest_ = 0;
  uint64_t longest_end_ = 0;
};

// `unit`: bytes that must not be torn apart. read(offset in the tensor, out), scan(piece).
template <typename Read, typename Scan>
void scan_tensor_bytes(std::string_view name, uint64_t offset, uint64_t bytes, uint64_t unit, MutableBytes buffer, Read&& read,
                       Scan&& scan, std::vector<TensorOddity>& out) {
  TensorOddity oddity;
  ZeroRun zeros(offset);
  const uint64_t step = buffer.size() / unit * unit;
  for (uint64_t at = 0; at < bytes; at += step) {
    throw_if_interrupted();
    const MutableBytes piece = buffer.first(std::min(step, bytes - at));
    read(at, piece);
    oddity.floats += scan(piece);
    zeros.feed(piece);
  }
  zeros.tell(oddity);
  if (oddity.floats.clean() && oddity.zero_run_bytes == 0) return;
  oddity.tensor = name;
  out.push_back(std::move(oddity));
}

}  // namespace

std::vector<TensorOddity> scan_contents(const File& file, const GgufHeader& header) {
  std::vector<const TensorInfo*> order;
  for (const TensorInfo& tensor : header.tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  std::vector<TensorOddity> out;
  std::vector<std::byte> buffer(kBufferBytes);
  for (const TensorInfo* tensor : order) {
    const size_t before = out.size();
    scan_tensor_bytes(
        tensor->name, tensor->offset, tensor->bytes, traits(tensor->dtype).block_bytes, buffer,
        [&](uint64_t at, MutableBytes piece) { file.read_at(tensor->offset + at, piece); },
        [&](Bytes piece) { return scan_floats(tensor->dtype, piece); }, out);
    if (out.size() > before) out.back().counts_blocks = traits(tensor->dtype).quantised;
  }
  return out;
}

std::vector<TensorOddity> scan_contents(const SafetensorsSource& source) {
  std::vector<TensorOddity> out;
  std::vector<std::byte> buffer(kBufferBytes);
  for (const SafetensorsTensor& tensor : source.tensors()) {
    scan_tensor_bytes(
        tensor.name, tensor.offset, tensor.bytes, 8, buffer,
        [&](uint64_t at, MutableBytes piece) { source.read(tensor, at, piece); },
        [&](Bytes piece) { return has_nonfinite_codes(tensor.dtype) ? scan_floats(tensor.dtype, piece) : FloatScan{}; }, out);
  }
  return out;
}

}  // namespace tierpack::verify

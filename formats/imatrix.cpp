#include "formats/imatrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "base/error.h"
#include "base/printable.h"
#include "formats/gguf.h"
#include "formats/tensor_names.h"

namespace tierpack {
namespace {

constexpr uint64_t kFileBytesMax = uint64_t{4} << 30;
constexpr uint64_t kMatricesMax = 65536;
constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";

// Largest size of either form that is read; the largest published ones have a few hundred MiB.
void require_size(const ByteSource& source) {
  if (source.size() > kFileBytesMax) {
    fail(ErrorKind::kCorrupt, "{}: {} is more than any importance matrix has", source.name(),
         format_size(source.size()));
  }
}

void require_values(const std::vector<float>& values, const std::string& source, std::string_view tensor) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= 0 && std::isfinite(values[i])) continue;
    fail(ErrorKind::kCorrupt, "{}: {}: value {} is {}; it must be a non-negative number", source, tensor, i, values[i]);
  }
}

void sort_entries(Imatrix& out) {
  std::sort(out.entries.begin(), out.entries.end(),
            [](const Imatrix::Entry& a, const Imatrix::Entry& b) { return a.tensor < b.tensor; });
  for (size_t i = 1; i < out.entries.size(); ++i) {
    if (out.entries[i].tensor == out.entries[i - 1].tensor) {
      fail(ErrorKind::kCorrupt, "{}: {} occurs twice", out.source, out.entries[i].tensor);
    }
  }
  if (out.entries.empty()) fail(ErrorKind::kCorrupt, "{}: it holds no importances", out.source);
}

// --- GGUF form

// Dimensions of 1 are there or not, depending on the writer.
bool is_matrix(const Shape& shape) { return shape.ne[2] == 1 && shape.ne[3] == 1; }

std::vector<float> read_floats(const ByteSource& source, const TensorInfo& tensor) {
  if (tensor.dtype != DType::kF32 || !is_matrix(tensor.shape)) {
    fail(ErrorKind::kCorrupt, "{}: {} is {} {}; expected an F32 matrix", source.name(), tensor.name,
         dtype_name(tensor.dtype), tensor.shape.text());
  }
  std::vector<float> values(tensor.shape.elements());  // its bytes lie in the file, as the header's reader checked
  source.read_at(tensor.offset, std::as_writable_bytes(std::span(values)));
  require_values(values, source.name(), tensor.name);
  return values;
}

const TensorInfo* find_tensor(const std::vector<const TensorInfo*>& sorted, std::string_view name) {
  const auto at = std::lower_bound(sorted.begin(), sorted.end(), name,
                                   [](const TensorInfo* t, std::string_view wanted) { return t->name < wanted; });
  return at != sorted.end() && (*at)->name == name ? *at : nullptr;
}

Imatrix read_gguf_form(const ByteSource& source) {
  const GgufHeader header = read_gguf_header(source);
  const Metadata& metadata = header.metadata;
  if (const std::string type = metadata.string_or("general.type", "model"); type != "imatrix") {
    fail(ErrorKind::kUnsupported, "{}: a GGUF of the type '{}'; expected an importance matrix (general.type 'imatrix')",
         source.name(), printable(type));
  }
  Imatrix out;
  out.source = source.name();
  out.chunks = metadata.u64_or("imatrix.chunk_count", 0);
  out.chunk_tokens = metadata.u64_or("imatrix.chunk_size", 0);
  if (metadata.has("imatrix.datasets")) out.datasets = metadata.string_array("imatrix.datasets");

  std::vector<const TensorInfo*> sorted;
  for (const TensorInfo& tensor : header.tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const TensorInfo* a, const TensorInfo* b) { return a->name < b->name; });
  for (const TensorInfo& sums : header.tensors) {
    if (!sums.name.ends_with(kSums)) continue;
    Imatrix::Entry entry;
    entry.tensor = sums.name.substr(0, sums.name.size() - kSums.size());
    const TensorInfo* const counts = find_tensor(sorted, entry.tensor + std::string(kCounts));
    if (counts == nullptr) {
      fail(ErrorKind::kCorrupt, "{}: {} has no {} beside it", source.name(), sums.name,
           entry.tensor + std::string(kCounts));
    }
    entry.columns = sums.shape.ne[0];
    entry.matrices = sums.shape.ne[1];
    if (counts->shape.elements() != entry.matrices || entry.matrices > kMatricesMax) {
      fail(ErrorKind::kCorrupt, "{}: {} is {} and {} is {}: their matrices differ", source.name(), sums.name,
           sums.shape.text(), counts->name, counts->shape.text());
    }
    entry.sum2 = read_floats(source, sums);
    for (const float count : read_floats(source, *counts)) entry.counts.push_back(double{count});
    out.entries.push_back(std::move(entry));
  }
  sort_entries(out);
  return out;
}

// --- Older form

std::string read_name(ByteReader& reader, const char* what) {
  const int32_t length = reader.read<int32_t>(what);
  if (length < 1 || length > static_cast<int32_t>(kMaxTensorNameBytes)) {
    reader.fail_here(fmt::format("{} of {} bytes", what, length));
  }
  return std::string(as_text(reader.take(static_cast<uint64_t>(length), what)));
}

Imatrix read_older_form(const ByteSource& source) {
  const std::vector<std::byte> bytes = read_all(source, kFileBytesMax);
  ByteReader reader(bytes, source.name());
  constexpr uint64_t kEntryBytesMin = 4 + 1 + 4 + 4 + 4;
  const int32_t count = reader.read<int32_t>("number of entries");
  if (count < 1 || static_cast<uint64_t>(count) > reader.remaining() / kEntryBytesMin) {
    reader.fail_here(fmt::format("this is no importance matrix: neither a GGUF nor a list of {} entries", count));
  }
  Imatrix out;
  out.source = source.name();
  out.has_expert_counts = false;
  for (int32_t i = 0; i < count; ++i) {
    Imatrix::Entry entry;
    entry.tensor = read_name(reader, "tensor name");
    if (!is_tensor_name(entry.tensor)) reader.fail_here("a tensor name with control characters");
    const int32_t calls = reader.read<int32_t>("number of calls");
    const int32_t values = reader.read<int32_t>("number of values");
    if (calls < 0 || values < 1) {
      reader.fail_here(fmt::format("{}: {} calls and {} values", entry.tensor, calls, values));
    }
    entry.columns = static_cast<uint64_t>(values);
    entry.matrices = 1;
    entry.counts = {static_cast<double>(calls)};
    const Bytes data = reader.take(entry.columns * sizeof(float), "values");
    entry.sum2.resize(entry.columns);
    std::memcpy(entry.sum2.data(), data.data(), data.size());
    require_values(entry.sum2, source.name(), entry.tensor);
    out.entries.push_back(std::move(entry));
  }
  if (reader.remaining() > 0) {
    const int32_t chunks = reader.read<int32_t>("number of chunks");
    if (chunks > 0) out.chunks = static_cast<uint64_t>(chunks);
  }
  if (reader.remaining() > 0) out.datasets.push_back(read_name(reader, "name of the text"));
  sort_entries(out);
  return out;
}

}  // namespace

const Imatrix::Entry* Imatrix::find(std::string_view tensor) const {
  const auto at = std::lower_bound(entries.begin(), entries.end(), tensor,
                                   [](const Entry& entry, std::string_view wanted) { return entry.tensor < wanted; });
  return at != entries.end() && at->tensor == tensor ? &*at : nullptr;
}

std::vector<float> Imatrix::importance(std::string_view tensor, uint64_t columns, uint64_t matrices,
                                       uint64_t matrix) const {
  TIERPACK_CHECK(columns > 0 && matrix < matrices);
  const Entry* const entry = find(tensor);
  if (entry == nullptr) return {};
  const bool whole = entry->matrices == matrices && entry->columns == columns;
  const bool divided = !has_expert_counts && entry->columns / columns == matrices && entry->columns % columns == 0;
  if (!whole && !divided) {
    fail(ErrorKind::kUsage,
         "{}: {} has {} matrices of {} columns there and {} of {} in the model: the file is of another model", source,
         tensor, entry->matrices, entry->columns, matrices, columns);
  }
  const double count = entry->counts[whole ? matrix : 0];
  std::vector<float> means(columns, 1.0f);
  if (!(count > 0)) return means;
  const float* const sums = entry->sum2.data() + matrix * columns;
  bool any = false;
  for (uint64_t i = 0; i < columns; ++i) {
    means[i] = static_cast<float>(double{sums[i]} / count);
    any |= means[i] > 0;
  }
  if (!any) std::fill(means.begin(), means.end(), 1.0f);
  return means;
}

Imatrix read_imatrix(const ByteSource& source) {
  require_size(source);
  std::array<std::byte, 4> magic{};
  if (source.size() >= magic.size()) source.read_at(0, magic);
  return as_text(magic) == "GGUF" ? read_gguf_form(source) : read_older_form(source);
}

Imatrix read_imatrix(const std::filesystem::path& path) { return read_imatrix(File::open(path, File::Mode::kRead)); }

}  // namespace tierpack

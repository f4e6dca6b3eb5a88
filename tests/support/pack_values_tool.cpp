// Holds the values of a pack against those that an independent reader found in its source: pack_values_tool PACK OUT, where OUT.txt has lines
// `name ne0,ne1,... offset` and OUT.bin raw f32. Every tensor of the list must be in the pack, with its factors applied, bit for bit (zeros may
// differ in sign); -exp(A_log) may differ by one unit in the last place.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "formats/dequant.h"
#include "formats/expert_stacks.h"
#include "formats/packed_shard.h"

namespace tierpack {
namespace {

class Values {
 public:
  explicit Values(const char* pack) : pack_(Pack::open(pack)), reader_(pack_, 0), tensors_(pack_tensors(pack_.manifest())) {}

  // The values of a tensor, or of the factors of a stack.
  std::vector<float> of(const std::string& name, std::vector<uint64_t>& shape) {
    if (is_expert_scale(name)) return factors(name.substr(0, name.rfind('.')) + ".weight", shape);
    const std::optional<uint32_t> number = pack_.manifest().find_tensor(name);
    if (!number) return {};
    for (const TensorInfo& tensor : tensors_) {
      if (tensor.name != name) continue;
      shape.assign(tensor.shape.ne.begin(), tensor.shape.ne.end());
      std::vector<float> out(tensor.shape.elements());
      std::vector<std::byte> row(row_bytes(tensor.dtype, shape[0]));
      for (uint64_t r = 0; r < tensor.shape.rows(); ++r) {
        reader_.read_tensor(*number, r, 1, row);
        dequantize_row(tensor.dtype, row.data(), &out[r * shape[0]], shape[0]);
      }
      apply_factors(name, tensor.shape, out);
      return out;
    }
    return {};
  }

 private:
  const ExpertPart* part_of(const std::string& name, const ExpertLayer** layer) const {
    for (const ExpertLayer& l : pack_.manifest().expert_layers) {
      for (const ExpertPart* part : l.parts()) {
        if (part->tensor != name) continue;
        *layer = &l;
        return part;
      }
    }
    return nullptr;
  }

  std::vector<float> factors(const std::string& stack, std::vector<uint64_t>& shape) const {
    const ExpertLayer* layer = nullptr;
    const ExpertPart* part = part_of(stack, &layer);
    if (part == nullptr || part->scale_rows == 0) return {};
    const size_t each = size_t{part->scale_rows} * part->scale_columns;
    std::vector<float> out(each * layer->experts);
    for (uint32_t e = 0; e < layer->experts; ++e) {
      const Record& record = pack_.manifest().records[layer->first_record + e];
      pack_.segment(Segment::kExperts).read_at(record.offset + part->scale_offset, std::as_writable_bytes(std::span(&out[e * each], each)));
    }
    shape = {part->scale_columns, part->scale_rows, layer->experts, 1};
    return out;
  }

  void apply_factors(const std::string& name, const Shape& shape, std::vector<float>& values) {
    if (!name.ends_with(".weight")) return;
    const std::string scale = name.substr(0, name.rfind('.')) + ".scale";
    std::vector<uint64_t> dims;
    std::vector<float> factors = of(scale, dims);
    if (factors.empty()) return;
    const uint64_t matrices = shape.ne[2] * shape.ne[3];
    const uint64_t columns = factors.size() == matrices ? 1 : dims[0], rows = factors.size() == matrices ? 1 : dims[1];
    for (uint64_t i = 0; i < values.size(); ++i) {
      const uint64_t c = i % shape.ne[0], r = i / shape.ne[0] % shape.ne[1], m = i / shape.ne[0] / shape.ne[1];
      const uint64_t fr = rows == 1 ? 0 : rows == shape.ne[1] ? r : r / 128, fc = columns == 1 ? 0 : c / 128;
      values[i] *= factors[(m * rows + fr) * columns + fc];
    }
  }

  const Pack pack_;
  const PackedShard reader_;
  const std::vector<TensorInfo> tensors_;
};

bool same(float a, float b, bool loose) {
  if (a == b || std::memcmp(&a, &b, sizeof a) == 0) return true;
  return loose && (std::nextafter(a, b) == b);
}

int run(const char* pack, const std::string& list) {
  Values values(pack);
  std::ifstream index(list + ".txt"), data(list + ".bin", std::ios::binary);
  std::string line;
  int wrong = 0, tensors = 0;
  while (std::getline(index, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream in(line);
    std::string name, dims;
    uint64_t offset = 0;
    in >> name >> dims >> offset;
    std::vector<uint64_t> want;
    uint64_t count = 1;
    for (std::istringstream d(dims); std::getline(d, line, ',');) want.push_back(std::stoull(line));
    for (const uint64_t n : want) count *= n;
    std::vector<float> expected(count);
    data.seekg(static_cast<std::streamoff>(offset));
    data.read(reinterpret_cast<char*>(expected.data()), static_cast<std::streamsize>(count * sizeof(float)));
    std::vector<uint64_t> shape;
    const std::vector<float> found = values.of(name, shape);
    ++tensors;
    want.resize(4, 1);
    bool good = found.size() == expected.size() && shape == want;
    uint64_t first = 0;
    for (uint64_t i = 0; good && i < count; ++i) {
      first = i;
      good = same(found[i], expected[i], name.ends_with("ssm_a"));
    }
    if (good) continue;
    ++wrong;
    std::printf("%s: differs (%zu of %zu values, element %llu: %g, expected %g)\n", name.c_str(), found.size(), expected.size(),
                static_cast<unsigned long long>(first), found.empty() ? 0.0 : static_cast<double>(found[first]), static_cast<double>(expected[first]));
  }
  std::printf("%d tensors, %d differ\n", tensors, wrong);
  return wrong == 0 && tensors > 0 ? 0 : 1;
}

}  // namespace
}  // namespace tierpack

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    return tierpack::run(argv[1], argv[2]);
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}

#include "runtime/bench_work.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "base/error.h"

namespace tierpack {

namespace {

constexpr size_t kLengthsMax = 64;

// The block of "blk.N.NAME"; nullopt for other tensors.
std::optional<uint32_t> block_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  uint32_t block = 0;
  const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), block);
  if (problem != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
  return block;
}

}  // namespace

uint64_t PassWork::pass_bytes(uint64_t tokens) const {
  return dense_bytes + std::min<uint64_t>(experts, tokens * experts_used) * expert_bytes;
}

uint64_t PassWork::prompt_bytes(uint64_t tokens, uint64_t chunk) const {
  const uint64_t whole = tokens / chunk;
  const uint64_t rest = tokens % chunk;
  const uint64_t passes = whole + (rest > 0 ? 1 : 0);
  return whole * pass_bytes(chunk) + (rest > 0 ? pass_bytes(rest) : 0) - (passes - 1) * output_bytes;
}

uint64_t PassWork::prompt_products(uint64_t tokens) const {
  return tokens * (dense_products + uint64_t{experts_used} * expert_products) + output_products;
}

PassWork pass_work(const PackManifest& manifest, const ModelConfig& config) {
  PassWork work;
  work.experts = config.experts;
  work.experts_used = config.experts_used;
  const bool tied = std::none_of(manifest.dense.begin(), manifest.dense.end(),
                                 [](const DenseTensor& t) { return t.name == "output.weight"; });
  for (const DenseTensor& tensor : manifest.dense) {
    if (block_of(tensor.name).value_or(0) >= config.layers) continue;
    const uint64_t bytes = manifest.records[tensor.record].bytes;
    const bool scales = tensor.name.ends_with("scale");  // read beside a matrix: their multiplications are few
    const uint64_t products = tensor.shape.dims >= 2 && !scales ? tensor.shape.elements() : 0;
    const bool embedding = tensor.name == "token_embd.weight";
    if (tensor.name == "output.weight" || (embedding && tied)) {
      work.output_bytes = bytes;
      work.output_products = products;
      work.dense_bytes += bytes;
    } else if (embedding) {
      work.dense_bytes += bytes / std::max<uint64_t>(1, tensor.shape.rows());
    } else {
      work.dense_bytes += bytes;
      work.dense_products += products;
    }
  }
  for (const ExpertLayer& layer : manifest.expert_layers) {
    if (layer.layer >= config.layers) continue;
    work.expert_bytes += layer.record_bytes;
    for (const ExpertPart* part : layer.parts()) work.expert_products += part->in * part->out;
  }
  return work;
}

Ceiling ceiling_of(uint64_t bytes, uint64_t products, double bytes_per_second, double products_per_second) {
  const double memory = static_cast<double>(bytes) / bytes_per_second;
  const double arithmetic = static_cast<double>(products) / products_per_second;
  return {std::max(memory, arithmetic), memory >= arithmetic};
}

double Samples::median() const {
  TIERPACK_CHECK(!values_.empty());
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double Samples::min() const { return *std::min_element(values_.begin(), values_.end()); }
double Samples::max() const { return *std::max_element(values_.begin(), values_.end()); }

std::vector<uint32_t> parse_lengths(std::string_view text, uint32_t most) {
  std::vector<uint32_t> lengths;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const bool kilo = item.ends_with('K') || item.ends_with('k');
    const std::string_view digits = item.substr(0, item.size() - (kilo ? 1 : 0));
    uint64_t value = 0;
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || problem != std::errc() || end != digits.data() + digits.size() || value > most) {
      value = 0;  // refused below
    }
    value *= kilo ? 1024 : 1;
    if (value == 0 || value > most) {
      fail(ErrorKind::kUsage, "'{}' in the prompt lengths '{}' is not a number of tokens from 1 to {}; expected for example "
           "512,1K,4K", std::string(item), std::string(text), most);
    }
    lengths.push_back(static_cast<uint32_t>(value));
    if (lengths.size() > kLengthsMax) fail(ErrorKind::kUsage, "more than {} prompt lengths were asked for", kLengthsMax);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

std::vector<uint32_t> seeded_tokens(size_t count, uint32_t vocab, uint64_t seed) {
  std::vector<uint32_t> tokens(count);
  uint64_t state = seed;
  for (uint32_t& token : tokens) {
    state += 0x9E3779B97F4A7C15u;  // splitmix64
    uint64_t x = state;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    token = static_cast<uint32_t>((x ^ (x >> 31)) % vocab);
  }
  return tokens;
}

}  // namespace tierpack

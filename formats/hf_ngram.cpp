// The n-gram embedding of qwen4exp: its hash constants come from the checkpoint's own tensors or from the formula that
// made them.
#include <algorithm>
#include <array>
#include <limits>

#include "formats/hf_parts.h"
#include "formats/model_keys.h"

namespace tierpack {

namespace {

constexpr uint64_t kRowsMax = std::numeric_limits<int32_t>::max();
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

uint64_t splitmix(uint64_t z) {
  z += kGolden;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// Miller-Rabin with the bases that decide all 32-bit numbers.
bool is_prime(uint64_t n) {
  for (const uint64_t small : {2, 3, 5, 7, 11, 13, 61}) {
    if (n % small == 0) return n == small;
  }
  if (n < 2) return false;
  uint64_t odd = n - 1;
  int twos = 0;
  for (; odd % 2 == 0; odd /= 2) ++twos;
  for (const uint64_t base : {2, 7, 61}) {
    uint64_t x = 1, power = base % n;
    for (uint64_t e = odd; e > 0; e /= 2, power = power * power % n) {
      if (e % 2 == 1) x = x * power % n;
    }
    if (x == 1 || x == n - 1) continue;
    int i = 1;
    for (; i < twos && x != n - 1; ++i) x = x * x % n;
    if (x != n - 1) return false;
  }
  return true;
}

struct Constants {
  std::vector<uint64_t> multipliers;  // [ngram]
  std::vector<uint64_t> offsets;      // [heads]
  std::vector<uint64_t> sizes;        // [heads]
};

// Odd multipliers below 2^63 / vocab, one prime a head from `base` on, offsets as their sums.
Constants from_formula(uint64_t vocab, uint64_t seed, uint64_t base, uint64_t ngram, uint64_t heads) {
  Constants out;
  const uint64_t half = std::max<uint64_t>(1, (~uint64_t{0} >> 1) / vocab / 2);
  for (uint64_t i = 0; i < ngram; ++i) out.multipliers.push_back(2 * (splitmix(seed + kGolden * (i + 1)) % half) + 1);
  uint64_t offset = 0;
  for (uint64_t n = base; out.sizes.size() < heads; ++n) {
    if (!is_prime(n)) continue;
    out.sizes.push_back(n);
    out.offsets.push_back(offset);
    offset += n;
  }
  return out;
}

// The tensor of either form of the name; texts of one tower alone leave out "language_model.".
std::optional<std::vector<uint64_t>> tensor(const HfIntegers& integers, uint64_t layer, const char* name,
                                            uint64_t count, const HfObject& in) {
  if (!integers) return std::nullopt;
  for (const char* stem : {"model.language_model.layers", "model.layers"}) {
    const std::string full = fmt::format("{}.{}.ple.ple_embedding.{}", stem, layer, name);
    const std::optional<std::vector<int64_t>> values = integers(full);
    if (!values) continue;
    if (values->size() != count) {
      in.corrupt("the tensor {} has {} values, the configuration asks for {}", full, values->size(), count);
    }
    std::vector<uint64_t> out;
    for (const int64_t value : *values) {
      if (value < 0) in.corrupt("the tensor {} holds {}", full, value);
      out.push_back(static_cast<uint64_t>(value));
    }
    return out;
  }
  return std::nullopt;
}

Constants constants_of(const HfConfig& config, const HfIntegers& integers, uint64_t layer, uint64_t ngram,
                       uint64_t heads) {
  const HfObject& in = config.text;
  const auto seed = in.find_count("seed", 0, std::numeric_limits<int64_t>::max());
  const auto base = in.find_count("ngram_vocab_size_base", 2, kRowsMax / 2);
  std::optional<Constants> formula;
  if (seed && base) formula = from_formula(config.vocab, *seed, *base, ngram, heads);

  Constants out;
  const auto choose = [&](const char* name, uint64_t count, std::vector<uint64_t> Constants::* member) {
    const auto stored = tensor(integers, layer, name, count, in);
    if (!stored && !formula) {
      in.corrupt("the checkpoint has no {}, and 'seed' or 'ngram_vocab_size_base' is missing to compute them", name);
    }
    if (stored && formula && *stored != (*formula).*member) {
      in.corrupt("{} of the checkpoint are not those that 'seed' and 'ngram_vocab_size_base' give", name);
    }
    out.*member = stored ? *stored : (*formula).*member;
  };
  choose("layer_multipliers", ngram, &Constants::multipliers);
  choose("ngram_heads_offsets", heads, &Constants::offsets);
  choose("ngram_heads_vocab_sizes", heads, &Constants::sizes);
  return out;
}

// A number, or the first of a list.
uint64_t end_of_text(const HfObject& in, uint64_t vocab) {
  const Json* value = in.find("eos_token_id");
  if (value == nullptr || !value->is_array()) return in.count("eos_token_id", 0, vocab - 1);
  const std::vector<uint64_t> ids = in.counts("eos_token_id", vocab - 1, 64);
  if (ids.empty()) in.corrupt("'eos_token_id' is an empty list");
  return ids.front();
}

}  // namespace

void write_hf_ngram_embedding(const HfConfig& config, const HfIntegers& integers, uint64_t layers,
                              MetadataWriter& out) {
  const HfObject& in = config.text;
  if (!in.has("ple_layer_ids")) return;
  const std::vector<uint64_t> ids = in.counts("ple_layer_ids", layers, kLayersMax);  // from 1
  if (ids.empty()) return;
  if (ids.size() > 1) in.unsupported("{} layers have an n-gram embedding instead of one", ids.size());
  if (ids[0] == 0) in.corrupt("'ple_layer_ids' holds 0; layers are counted from 1");
  const uint64_t ngram = in.count("ngram_size", 2, 8);
  const uint64_t per_ngram = in.count("heads_per_ngram", 1, 1024);
  const uint64_t heads = (ngram - 1) * per_ngram;
  const uint64_t width = in.count("ple_embed_dim", 1, kWidthMax);
  if (width % heads != 0) in.corrupt("'ple_embed_dim' is {}, which {} heads do not divide", width, heads);

  const Constants constants = constants_of(config, integers, ids[0] - 1, ngram, heads);
  out.array("ple.layers", ValueType::kU32, std::vector<uint64_t>{ids[0] - 1});
  out.u32("ple.ngram_size", ngram);
  out.u32("ple.heads_per_ngram", per_ngram);
  out.u32("ple.conv_kernel", in.count("ple_conv_kernel_size", 1, kKernelMax));
  out.u32("ple.eos_token_id", end_of_text(in, config.vocab));
  out.u32("ple.image_token_id", config.root.find_count("image_token_id", 0, config.vocab - 1));
  out.u32("embedding_length_per_layer_input", width / heads);
  out.array("ple.layer_multipliers", ValueType::kU64, constants.multipliers);
  out.array("ple.head_offsets", ValueType::kU64, constants.offsets);
  out.array("ple.head_vocab_sizes", ValueType::kU64, constants.sizes);
}

}  // namespace tierpack

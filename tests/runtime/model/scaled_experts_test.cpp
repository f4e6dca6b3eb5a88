// Experts with scales in their records, or beside their stacks: against a plain computation in double, and one answer
// whatever computes it.
#include "runtime/model/moe.h"

#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "base/digest.h"
#include "formats/dequant.h"
#include "formats/row_groups.h"
#include "runtime/engine.h"

namespace tierpack::model {
namespace {

constexpr uint32_t kHidden = 192, kFf = 320, kExperts = 5, kUsed = 2, kTokens = 9;

float uniform(std::mt19937& random) { return static_cast<float>(random() % 20001) / 10000.0f - 1.0f; }

// All records in memory, handed out last one first.
class MemoryStore final : public ExpertStore {
 public:
  MemoryStore(uint64_t record_bytes, uint32_t experts)
      : stride_((record_bytes + 63) / 64), lines_(stride_ * experts), bytes_(record_bytes) {}
  std::byte* record(uint32_t expert) { return lines_[expert * stride_].bytes; }

  Lease acquire(uint32_t, std::span<const uint32_t> experts, const RouteCounts&) override {
    lease_.store = this;
    lease_.wanted.assign(experts.begin(), experts.end());
    lease_.left = static_cast<int>(experts.size());
    return Lease(lease_);
  }
  ExpertCounters counters() const override { return {}; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };
  struct Impl final : Lease::Impl {
    MemoryStore* store = nullptr;
    std::vector<uint32_t> wanted;
    int left = 0;
    int next_ready() override { return --left; }
    int poll_ready() override { return left > 0 ? --left : -1; }
    Bytes record(int index) const override {
      return {store->record(wanted[static_cast<size_t>(index)]), store->bytes_};
    }
    void done(int) override {}
    void release() override {}
  };
  uint64_t stride_;
  std::vector<Line> lines_;
  uint64_t bytes_;
  Impl lease_;
};

struct PartKind {
  DType type = DType::kF32;
  uint32_t scale_rows = 0, scale_columns = 0;  // in the record
  bool beside = false;                         // a scale for each expert beside the stack
};

// A layer of random experts, and what their weights are.
struct Layer {
  ExpertLayer layout;
  std::unique_ptr<MemoryStore> store;
  std::vector<float> router = std::vector<float>(size_t{kExperts} * kHidden);
  std::map<const ExpertPart*, std::vector<float>> beside;
  std::map<const ExpertPart*, std::vector<std::vector<double>>> values;  // of each expert
  MoeWeights weights;

  Layer(PartKind gate, PartKind up, PartKind down) {
    std::mt19937 random(5);
    layout.experts = kExperts;
    place(layout.gate, gate, kHidden, kFf);
    place(layout.up, up, kHidden, kFf);
    place(layout.down, down, kFf, kHidden);
    store = std::make_unique<MemoryStore>(layout.record_bytes, kExperts);
    for (const auto& [part, kind] : {std::pair{&layout.gate, gate}, {&layout.up, up}, {&layout.down, down}}) {
      for (uint32_t e = 0; e < kExperts; ++e) fill(*part, kind, e, random);
    }
    for (float& v : router) v = uniform(random) * 0.3f;
    weights.router = {DType::kF32, reinterpret_cast<const std::byte*>(router.data()), kExperts, kHidden};
    weights.experts = &layout;
    if (gate.beside) weights.gate_scales = beside[&layout.gate].data();
    if (up.beside) weights.up_scales = beside[&layout.up].data();
    if (down.beside) weights.down_scales = beside[&layout.down].data();
  }

 private:
  void place(ExpertPart& part, const PartKind& kind, uint64_t in, uint64_t out) {
    part.dtype = kind.type;
    part.in = in;
    part.out = out;
    part.bytes = row_bytes(kind.type, in) * out;
    part.offset = layout.record_bytes;
    layout.record_bytes = align_up(part.offset + part.bytes, kPartAlignment);
    if (kind.scale_rows == 0) return;
    part.scale_rows = kind.scale_rows;
    part.scale_columns = kind.scale_columns;
    part.scale_offset = layout.record_bytes;
    layout.record_bytes =
        align_up(part.scale_offset + size_t{kind.scale_rows} * kind.scale_columns * 4, kPartAlignment);
  }

  void fill(const ExpertPart& part, const PartKind& kind, uint32_t expert, std::mt19937& random) {
    std::vector<std::byte> published(part.bytes);
    const uint32_t block = traits(part.dtype).block_bytes;
    for (size_t i = 0; i < published.size(); ++i) {
      published[i] = static_cast<std::byte>(random() % 256);
      if (part.dtype == DType::kF8_E4M3)
        published[i] = static_cast<std::byte>((random() & 0x80) | (0x20 + random() % 0x20));
      if (part.dtype == DType::kNVFP4 && i % block < 4) published[i] = static_cast<std::byte>(0x28 + random() % 16);
      if (part.dtype == DType::kQ8_0 && i % block == 1) published[i] = std::byte{0x14};  // scales near 2^-10
    }
    std::byte* const record = store->record(expert);
    to_row_groups(part.dtype, part.out, part.in, published, {record + part.offset, part.bytes});
    std::vector<float> scales(size_t{std::max(1u, part.scale_rows)} * std::max(1u, part.scale_columns), 1.0f);
    const bool scaled = part.scale_rows > 0 || kind.beside;
    for (float& s : scales) {
      if (scaled) s = 0.05f * (1.5f + uniform(random));
    }
    if (part.scale_rows > 0) std::memcpy(record + part.scale_offset, scales.data(), scales.size() * 4);
    if (kind.beside) beside[&part].push_back(scales[0]);
    std::vector<double> out(part.in * part.out);
    std::vector<float> row(part.in);
    for (uint64_t r = 0; r < part.out; ++r) {
      dequantize_row(part.dtype, published.data() + r * row_bytes(part.dtype, part.in), row.data(), part.in);
      for (uint64_t c = 0; c < part.in; ++c) {
        const uint64_t line = part.scale_rows <= 1 ? 0 : part.scale_rows == part.out ? r : r / 128;
        const uint64_t column = part.scale_columns <= 1 ? 0 : c / 128;
        out[r * part.in + c] = double{row[c]} * scales[line * std::max(1u, part.scale_columns) + column];
      }
    }
    values[&part].push_back(std::move(out));
  }
};

std::vector<float> inputs() {
  std::mt19937 random(8);
  std::vector<float> x(size_t{kTokens} * kHidden);
  for (float& v : x) v = uniform(random);
  return x;
}

struct Routes final : ForwardObserver {
  std::map<uint32_t, std::vector<std::pair<uint32_t, double>>> of;  // by token
  void on_route(uint32_t, uint32_t position, std::span<const uint32_t> experts,
                std::span<const float> weights) override {
    for (size_t i = 0; i < experts.size(); ++i) of[position].emplace_back(experts[i], weights[i]);
  }
};

// y of all tokens, `chunk` at a time.
std::vector<float> run(Layer& layer, const kernels::KernelTable& table, int threads, uint32_t chunk,
                       ActivationType activations, Routes* routes = nullptr) {
  ModelConfig c;
  c.architecture = Architecture::kQwen3Moe;
  c.vocab = c.heads = c.kv_heads = 1;
  c.head_dim = c.rotary_dim = 2;
  c.hidden = kHidden;
  c.experts = kExperts;
  c.experts_used = kUsed;
  c.expert_ff = kFf;
  Carver counter;
  Workspace::carve(counter, c, chunk, 16);
  CarvedMemory memory(counter.bytes());
  Carver carver(memory.data());
  Workspace ws = Workspace::carve(carver, c, chunk, 16);
  ThreadTeam team(threads);
  const Compute compute{table, team, activations};
  const std::vector<float> x = inputs();
  std::vector<float> out;
  for (uint32_t at = 0; at < kTokens; at += chunk) {
    const Chunk tokens{{}, at, std::min(chunk, kTokens - at), routes};
    std::copy_n(x.data() + size_t{at} * kHidden, size_t{tokens.tokens} * kHidden, ws.x.x);
    mixture_of_experts({compute, c, tokens, ws, nullptr}, layer.weights, *layer.store, 0);
    out.insert(out.end(), ws.y, ws.y + size_t{tokens.tokens} * kHidden);
  }
  return out;
}

std::vector<double> plain_computation(Layer& layer, const Routes& routes) {
  const std::vector<float> x = inputs();
  std::vector<double> y(size_t{kTokens} * kHidden);
  for (const auto& [token, chosen] : routes.of) {
    for (const auto& [expert, weight] : chosen) {
      const auto row = [&](const ExpertPart& part, uint64_t r, const auto& in) {
        const double* const w = layer.values[&part][expert].data() + r * part.in;
        double sum = 0;
        for (uint64_t i = 0; i < part.in; ++i) sum += w[i] * static_cast<double>(in[i]);
        return sum;
      };
      std::vector<double> hidden(kFf);
      for (uint32_t r = 0; r < kFf; ++r) {
        const double gate = row(layer.layout.gate, r, x.data() + size_t{token} * kHidden);
        hidden[r] = gate / (1 + std::exp(-gate)) * row(layer.layout.up, r, x.data() + size_t{token} * kHidden);
      }
      for (uint32_t r = 0; r < kHidden; ++r)
        y[size_t{token} * kHidden + r] += weight * row(layer.layout.down, r, hidden);
    }
  }
  return y;
}

// The largest difference, as a share of the largest value.
double distance(const std::vector<double>& expected, const std::vector<float>& found) {
  double largest = 0, difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::fabs(expected[i]));
    difference = std::max(difference, std::fabs(expected[i] - static_cast<double>(found[i])));
  }
  EXPECT_GT(largest, 0.01);
  return difference / largest;
}

constexpr PartKind kSecond{DType::kNVFP4, 1, 1}, kBeside{DType::kNVFP4, 0, 0, true}, kUnscaled{DType::kQ8_0};
constexpr PartKind kTensor{DType::kF8_E4M3, 1, 1};
PartKind blocks(uint32_t in, uint32_t out) { return {DType::kF8_E4M3, (out + 127) / 128, (in + 127) / 128}; }
PartKind channels(uint32_t out) { return {DType::kF8_E4M3, out, 1}; }

std::vector<std::array<PartKind, 3>> layers() {
  return {{kSecond, kSecond, kSecond},
          {kBeside, kBeside, kBeside},
          {blocks(kHidden, kFf), blocks(kHidden, kFf), blocks(kFf, kHidden)},
          {channels(kFf), channels(kFf), channels(kHidden)},
          {kTensor, kTensor, kTensor},
          {kSecond, blocks(kHidden, kFf), kUnscaled},
          {blocks(kHidden, kFf), kUnscaled, kBeside}};
}

TEST(ScaledExperts, EqualThePlainComputation) {
  for (const auto& [gate, up, down] : layers()) {
    Layer layer(gate, up, down);
    Routes routes;
    const std::vector<float> exact = run(layer, kernels::best(), 2, kTokens, ActivationType::kF32, &routes);
    const std::vector<double> expected = plain_computation(layer, routes);
    EXPECT_LT(distance(expected, exact), 1e-5) << dtype_name(gate.type) << " " << gate.scale_rows;
    EXPECT_LT(distance(expected, run(layer, kernels::best(), 2, kTokens, ActivationType::kInt8)), 0.03)
        << dtype_name(gate.type) << " " << gate.scale_rows;
  }
}

TEST(ScaledExperts, NothingChangesABit) {
  for (const auto& [gate, up, down] : layers()) {
    Layer layer(gate, up, down);
    for (const ActivationType activations : {ActivationType::kInt8, ActivationType::kF32}) {
      const std::vector<float> expected = run(layer, kernels::reference(), 1, kTokens, activations);
      for (const kernels::KernelTable* table : kernels::available()) {
        for (const auto& [threads, chunk] : {std::pair{1, 1u}, {3, 4u}, {2, kTokens}}) {
          const std::vector<float> found = run(layer, *table, threads, chunk, activations);
          EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0)
              << table->name << ", " << threads << " threads, chunks of " << chunk << ", " << dtype_name(gate.type)
              << ", " << activation_type_name(activations);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tierpack::model

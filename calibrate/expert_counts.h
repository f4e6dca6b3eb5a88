// Counts which experts a text uses, by running it through a model.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "formats/profile.h"
#include "runtime/engine.h"

namespace tierpack::calibrate {

// Counts of routed experts and sums of router weights, both (layers, experts). Blocks beyond `layers` (MTP) and
// everything outside these shapes is a broken promise of the engine.
class ExpertCounts final : public ForwardObserver {
 public:
  ExpertCounts(uint32_t layers, uint32_t experts)
      : layers_(layers), experts_(experts), counts_(size_t{layers} * experts), weights_(size_t{layers} * experts) {}

  void on_route(uint32_t layer, uint32_t position, std::span<const uint32_t> experts,
                std::span<const float> weights) override;

  const std::vector<uint64_t>& counts() const { return counts_; }
  const std::vector<double>& weights() const { return weights_; }

 private:
  uint32_t layers_;
  uint32_t experts_;
  std::vector<uint64_t> counts_;
  std::vector<double> weights_;
};

struct Corpus {
  std::string name;
  std::string text;
};

// What a profile says about the model it was taken from.
struct ModelIdentity {
  Sha256Digest routing_id;
  std::string tool_version;
};

struct CountOptions {
  uint32_t window = 0;  // tokens computed as one timeline; at most the session's capacity, 0 = that
  std::function<void(uint64_t tokens)> on_tokens;  // progress
  std::function<bool()> should_stop;               // throws kInterrupted when it returns true
};

// The tokens of each corpus, without a beginning token. Throws kUsage for a corpus without tokens.
std::vector<std::vector<uint32_t>> tokenize(const Engine& engine, std::span<const Corpus> corpora);

// Runs every corpus in windows, each from an empty session and with the model's beginning token where it wants one, and
// returns the profile; its token counts are the tokens computed. `tokens[i]` are those of corpus i. The result depends
// on the pack, the corpora, their order and the window alone. Throws kUsage for a window that a session cannot hold.
Profile count_experts(Engine& engine, const ModelIdentity& identity, std::span<const Corpus> corpora,
                      std::span<const std::vector<uint32_t>> tokens, const CountOptions& options);

// How uneven a layer's routing is.
struct LayerCoverage {
  uint64_t routed = 0;
  double top_quarter = 0;  // share of the activations that the busiest quarter of the experts takes (rounded up)
  uint32_t unused = 0;     // experts never routed to
};
std::vector<LayerCoverage> coverage(const Profile& profile);

}  // namespace tierpack::calibrate

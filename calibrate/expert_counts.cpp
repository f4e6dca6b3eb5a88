#include "calibrate/expert_counts.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "runtime/text/tokenizer.h"

namespace tierpack::calibrate {

void ExpertCounts::on_route(uint32_t layer, uint32_t, std::span<const uint32_t> experts,
                            std::span<const float> weights) {
  TIERPACK_CHECK(layer < layers_ && experts.size() == weights.size());
  for (size_t i = 0; i < experts.size(); ++i) {
    TIERPACK_CHECK(experts[i] < experts_);
    const size_t at = size_t{layer} * experts_ + experts[i];
    ++counts_[at];
    weights_[at] += static_cast<double>(weights[i]);
  }
}

std::vector<std::vector<uint32_t>> tokenize(const Engine& engine, std::span<const Corpus> corpora) {
  std::vector<std::vector<uint32_t>> tokens;
  for (const Corpus& corpus : corpora) {
    // Corpora are written by their owner, so that <|im_end|> in them means the token.
    tokens.push_back(engine.tokenizer().encode(corpus.text, text::Tokenizer::Special::kParse));
    if (tokens.back().empty()) fail(ErrorKind::kUsage, "{}: no tokens in it to calibrate with", corpus.name);
  }
  return tokens;
}

Profile count_experts(Engine& engine, const ModelIdentity& identity, std::span<const Corpus> corpora,
                      std::span<const std::vector<uint32_t>> tokens, const CountOptions& options) {
  TIERPACK_CHECK(corpora.size() == tokens.size());
  const ModelConfig& config = engine.config();
  const std::unique_ptr<Session> session = engine.new_session();
  const uint32_t window = options.window == 0 ? session->capacity() : options.window;
  if (window > session->capacity()) {
    fail(ErrorKind::kUsage,
         "a window of {} tokens was asked for; a session holds {}: ask for a larger context or a "
         "smaller window",
         window, session->capacity());
  }
  const text::Tokenizer& tokenizer = engine.tokenizer();
  std::vector<uint32_t> beginning;
  if (tokenizer.adds_bos() && tokenizer.bos() >= 0) beginning.push_back(static_cast<uint32_t>(tokenizer.bos()));
  if (window <= beginning.size()) fail(ErrorKind::kUsage, "a window of {} tokens has no room for text", window);
  const size_t step = window - beginning.size();

  // In chunks, so that progress and interruption do not wait for a window's end.
  const auto run = [&](std::span<const uint32_t> piece) {
    const size_t chunk = std::max<size_t>(1, engine.options().chunk);
    for (size_t at = 0; at < piece.size(); at += chunk) {
      const auto part = piece.subspan(at, std::min(chunk, piece.size() - at));
      session->append(part, false, {}, options.should_stop);
      if (options.on_tokens) options.on_tokens(part.size());
    }
  };

  ExpertCounts counts(config.layers, config.experts);
  session->set_observer(&counts);

  Profile profile;
  profile.architecture = architecture_name(config.architecture);
  profile.routing_id = identity.routing_id;
  profile.layers = config.layers;
  profile.experts = config.experts;
  profile.used = config.experts_used;
  profile.tool_version = identity.tool_version;
  for (size_t i = 0; i < corpora.size(); ++i) {
    const std::span<const uint32_t> all = tokens[i];
    uint64_t computed = 0;
    for (size_t at = 0; at < all.size(); at += step) {
      session->clear();
      run(beginning);
      run(all.subspan(at, std::min(step, all.size() - at)));
      computed += session->length();
    }
    profile.corpora.push_back({corpora[i].name, Sha256::of(as_bytes(corpora[i].text)), computed});
  }
  session->set_observer(nullptr);
  profile.counts = counts.counts();
  profile.weights = counts.weights();
  return profile;
}

std::vector<LayerCoverage> coverage(const Profile& profile) {
  std::vector<LayerCoverage> layers;
  for (uint32_t layer = 0; layer < profile.layers; ++layer) {
    const auto first = profile.counts.begin() + static_cast<ptrdiff_t>(size_t{layer} * profile.experts);
    std::vector<uint64_t> counts(first, first + profile.experts);
    std::sort(counts.begin(), counts.end(), std::greater<>());
    LayerCoverage c;
    c.routed = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
    const uint64_t top = std::accumulate(counts.begin(), counts.begin() + (profile.experts + 3) / 4, uint64_t{0});
    c.top_quarter = c.routed > 0 ? static_cast<double>(top) / static_cast<double>(c.routed) : 0;
    c.unused = static_cast<uint32_t>(std::count(counts.begin(), counts.end(), uint64_t{0}));
    layers.push_back(c);
  }
  return layers;
}

}  // namespace tierpack::calibrate
